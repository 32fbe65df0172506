"""Barge-in at every moment: the log keeps what was heard, to the token, and the next turn is right.

A state can't be cut, so what lies beyond the cut is rolled back; the log is the truth.
"""

import anyio
import pytest

from kernel import RequestAborted, RunningTurn, Session, TooLate, TurnNotFound, ValidationError
from tests.known import known
from tests.scenarios.stage import Stage, greedy, open_stage, prompt


async def speak(stage: Stage, turn: RunningTurn, tokens: int) -> tuple[int, ...]:
    """Step until the reader has that many tokens; one more step is in flight then."""
    heard: tuple[int, ...] = ()
    while len(heard) < tokens:
        await stage.step()
        heard += await stage.read(turn)
    return heard


async def post_interrupt(turn: RunningTurn, keep: int | None) -> None:
    """Submit an interrupt, and don't wait for its answer."""
    with anyio.move_on_after(0):
        await turn.interrupt(keep)


async def go_on(stage: Stage, session: Session, history: list[int]) -> None:
    """The next turn is the judge of log and state."""
    assert session.info.num_tokens == len(history)
    assert known(session.info.position) < len(history)
    stage.note(history, await stage.run(session.turn(prompt(3, 9), greedy(3))))


@pytest.mark.parametrize("keep", [0, 1, 3, 5])
async def test_a_running_turn_keeps_what_was_heard(keep: int) -> None:
    """It ends when the step in flight has landed, whatever that one still says."""
    async with open_stage() as stage, stage.engine.session() as session:
        async with session.turn(prompt(6), greedy(20)) as turn:
            heard = await speak(stage, turn, 5)
            await post_interrupt(turn, keep)
            await stage.land()
            result = await turn.wait()
        assert result.finish_reason == "interrupt"
        assert result.token_ids == heard[:keep]
        await go_on(stage, session, stage.note([], result))


async def test_without_a_number_all_that_was_generated_stays() -> None:
    """Also the token of the step that was in flight."""
    async with open_stage() as stage, stage.engine.session() as session:
        async with session.turn(prompt(6), greedy(20)) as turn:
            heard = await speak(stage, turn, 5)
            await post_interrupt(turn, None)
            await stage.land()
            result = await turn.wait()
        assert result.token_ids[:5] == heard
        assert len(result.token_ids) == 6
        await go_on(stage, session, stage.note([], result))


@pytest.mark.parametrize("landed", [0, 1, 2])
async def test_before_the_first_token_only_the_input_stays(landed: int) -> None:
    """Interrupted between the chunks of its prompt, the turn has said nothing."""
    async with (
        open_stage(max_num_batched_tokens=8, max_num_seqs=1) as stage,
        stage.engine.session() as session,
    ):
        async with session.turn(prompt(20), greedy(5)) as turn:
            await stage.step(landed)
            await post_interrupt(turn, 0)
            await stage.land()
            result = await turn.wait()
        assert result.token_ids == ()
        await go_on(stage, session, stage.note([], result))


async def test_of_two_interrupts_the_smaller_number_counts() -> None:
    """Nobody gets back what somebody else has cut."""
    async with open_stage() as stage, stage.engine.session() as session:
        async with session.turn(prompt(6), greedy(20)) as turn:
            heard = await speak(stage, turn, 5)
            for keep in (4, 2, 3):
                await post_interrupt(turn, keep)
            await stage.land()
            result = await turn.wait()
        assert result.token_ids == heard[:2]
        await go_on(stage, session, stage.note([], result))


async def test_an_interrupt_that_crosses_the_end_of_the_turn_still_cuts() -> None:
    """The scheduler has finished the turn, the session has accepted the interrupt before."""
    async with open_stage() as stage, stage.engine.session() as session:
        async with session.turn(prompt(6), greedy(6)) as turn:
            heard = await speak(stage, turn, 5)
            # The last step reports, and the interrupt is posted before anybody handles that.
            stage.device.release()
            await post_interrupt(turn, 2)
            await stage.settle()
            result = await turn.wait()
        assert result.finish_reason == "interrupt"
        assert result.token_ids == heard[:2]
        await go_on(stage, session, stage.note([], result))


async def test_cancel_overrides_an_interrupt_that_has_not_landed() -> None:
    """The turn is forgotten; its input is not in the log."""
    async with open_stage() as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(2))))
        async with session.turn(prompt(6), greedy(20)) as turn:
            await speak(stage, turn, 3)
            await post_interrupt(turn, 2)
            turn.cancel()
            await stage.land()
            with pytest.raises(RequestAborted):
                await turn.wait()
        await go_on(stage, session, history)


async def test_more_than_was_heard_is_refused() -> None:
    """And so is less than nothing; the turn goes on."""
    async with open_stage() as stage, stage.engine.session() as session:
        async with session.turn(prompt(6), greedy(8)) as turn:
            await speak(stage, turn, 3)
            for keep in (4, -1):
                with pytest.raises(ValidationError):
                    await turn.interrupt(keep)
            result = await stage.finish(turn)
        assert len(result.token_ids) == 8
        await go_on(stage, session, stage.note([], result))


async def test_a_late_interrupt_names_its_turn() -> None:
    """Once the session has accepted another one, the answer stays as it ended."""
    async with open_stage() as stage, stage.engine.session() as session:
        with pytest.raises(TurnNotFound):
            await session.interrupt()
        first = session.turn(prompt(6), greedy(5))
        history = stage.note([], await stage.run(first))
        async with session.turn(prompt(3, 1), greedy(4)) as second:
            with pytest.raises(TooLate):
                await first.interrupt(2)
            history = stage.note(history, await stage.finish(second))
        with pytest.raises(TooLate):
            await first.interrupt(2)
        assert await second.interrupt(1) == 1
        await go_on(stage, session, history[:-3])


async def test_late_interrupts_cost_that_turn_and_not_the_history() -> None:
    """The state that the turn started from is kept for this, until room is short."""
    async with open_stage(num_pages=100) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(40), greedy(2))))
        whole = await stage.run(session.turn(prompt(6, 1), greedy(8)))
        assert await session.interrupt(3) == 3
        history += [*whole.prompt_token_ids, *whole.token_ids[:3]]
        result = await stage.run(session.turn(prompt(2, 2), greedy(2)))
        assert result.usage.cached_tokens == 41
        stage.note(history, result)
