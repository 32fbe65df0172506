"""DF-5: a session runs one turn; a second one is refused, or waits, and disturbs nothing."""

from typing import Any, Literal

import pytest

from kernel import (
    QueueTimeout,
    RequestAborted,
    SessionBusy,
    SessionClosed,
    TenureError,
    TurnTimeout,
)
from tests.known import known
from tests.scenarios.stage import greedy, open_stage, prompt

Where = Literal["queued", "running"]

each_place = pytest.mark.parametrize("where", ["queued", "running"])


@each_place
async def test_an_overlapping_turn_is_refused_and_the_first_one_commits(where: Where) -> None:
    """Also when the first turn of a fresh session has not been admitted yet."""
    async with open_stage(num_slots=1) as stage, stage.engine.session() as session:
        blocker = stage.engine.stream(prompt(4, 1), greedy(6 if where == "queued" else 1))
        async with blocker, session.turn(prompt(5), greedy(6)) as first:
            await stage.step(2)
            assert session.info.state == where
            queued = stage.engine.stats().num_queued_tokens
            for salt in (2, 3):
                second = session.turn(prompt(3, salt), greedy(2))
                with pytest.raises(SessionBusy, match=first.request_id):
                    await stage.run(second)
                await stage.settle()
                assert session.info.state == where
                assert stage.engine.stats().num_queued_tokens == queued
                assert not stage.engine.abort(second.request_id)
                second.cancel()
            stage.note([], await stage.finish(blocker))
            history = stage.note([], await stage.finish(first))
        assert session.info.turns == 1
        stage.note(history, await stage.run(session.turn(prompt(3, 4), greedy(2))))


@each_place
async def test_turns_that_wait_run_in_order_on_each_others_log(where: Where) -> None:
    """With ``wait`` a turn queues behind the active one and starts from what that one leaves."""
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        turns = [session.turn(prompt(3, salt), greedy(4), wait=True) for salt in range(3)]
        async with turns[0], turns[1], turns[2]:
            await stage.step(1 if where == "queued" else 2)
            history: list[int] = []
            for turn in turns:
                history = stage.note(history, await stage.finish(turn))
                assert known(session.info.num_tokens) >= len(history)
        assert session.info.turns == 3
        assert session.info.num_tokens == len(history)


@pytest.mark.parametrize("how", ["leave", "abort"])
async def test_a_waiting_turn_can_be_cancelled(how: str) -> None:
    """The active turn and the one behind it don't notice."""
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        turns = [session.turn(prompt(3, salt), greedy(4), wait=True) for salt in range(3)]
        async with turns[0], turns[1], turns[2]:
            await stage.step(2)
            if how == "abort":
                assert stage.engine.abort(turns[1].request_id)
            else:
                turns[1].cancel()
            await stage.settle()
            with pytest.raises(RequestAborted):
                await turns[1].wait()
            history = stage.note([], await stage.finish(turns[0]))
            stage.note(history, await stage.finish(turns[2]))
        assert session.info.turns == 2


async def test_a_waiting_turn_that_is_left_for_keeps_does_not_generate() -> None:
    """Nobody reads it any more; its input stays, as with any interrupt that keeps nothing."""
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        async with session.turn(prompt(3), greedy(4)) as first:
            async with session.turn(prompt(3, 1), greedy(8), wait=True, on_exit="keep") as waiting:
                await stage.step()
            history = stage.note([], await stage.finish(first))
        await stage.settle()
        assert stage.device.waiting == 0
        assert waiting.has_result
        assert waiting.result.finish_reason == "interrupt"
        history += waiting.result.prompt_token_ids
        assert session.info.num_tokens == len(history)
        stage.note(history, await stage.run(session.turn(prompt(2, 2), greedy(3))))


async def test_a_waiting_turn_can_be_interrupted() -> None:
    """The answer comes when its place in the log is known; nothing was generated to keep."""
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        async with (
            session.turn(prompt(3), greedy(4)) as first,
            session.turn(prompt(3, 1), greedy(8), wait=True) as waiting,
        ):
            await stage.step()
            stage.device.open()
            assert await waiting.interrupt() == 0
            result = await waiting.wait()
            assert result.finish_reason == "interrupt"
            history = stage.note([], await first.wait())
        history = stage.note(history, result)
        assert session.info.num_tokens == len(history)
        stage.note(history, await session_turn(session.turn(prompt(2, 2), greedy(3))))


async def session_turn(turn: Any) -> Any:
    async with turn:
        return await turn.wait()


@pytest.mark.parametrize(
    ("option", "error"), [("queue_timeout_s", QueueTimeout), ("timeout_s", TurnTimeout)]
)
async def test_waiting_behind_the_own_session_counts_as_waiting(
    option: str, error: type[TenureError]
) -> None:
    """A deadline runs from the submit, wherever the turn waits."""
    options: dict[str, Any] = {option: 5}
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        async with (
            session.turn(prompt(3), greedy(6)) as first,
            session.turn(prompt(3, 1), greedy(4), wait=True, **options) as waiting,
        ):
            await stage.step(2)
            await stage.advance(5)
            with pytest.raises(error):
                await waiting.wait()
            history = stage.note([], await stage.finish(first))
        stage.note(history, await stage.run(session.turn(prompt(3, 2), greedy(2))))


async def test_close_answers_every_waiting_turn_once() -> None:
    """Active or waiting, each caller gets its own error; nothing is left behind."""
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        turns = [session.turn(prompt(3, salt), greedy(4), wait=True) for salt in range(3)]
        async with turns[0], turns[1], turns[2]:
            await stage.step(2)
            await session.close()
            for turn in turns:
                with pytest.raises(SessionClosed):
                    await turn.wait()
                with pytest.raises(StopAsyncIteration):
                    await anext(turn)
        await stage.drain()
        stage.assert_at_rest()


async def test_a_turn_that_comes_while_an_interrupt_lands_waits_without_being_asked() -> None:
    """Barge-in: the next turn may be submitted at once; it is not refused as busy."""
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        first = session.turn(prompt(3), greedy(9), on_exit="keep")
        async with first:
            await stage.step(4)
            received = await stage.read(first)
        async with session.turn(prompt(3, 1), greedy(3)) as second:
            assert session.info.state in ("running", "queued")
            result = await stage.finish(second)
        assert first.result.finish_reason == "interrupt"
        assert first.result.token_ids == received
        stage.note(stage.note([], first.result), result)
