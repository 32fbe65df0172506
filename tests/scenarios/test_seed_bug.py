"""The bug that this project is built against, and the leak in its repair.

A scheduler takes a slot for a turn before it knows whether the turn fits, and gives it back when it
doesn't. The slot of a *later* turn is its session's: giving it back frees it twice, and in between
two clients write into one state. The slot of a *first* turn is the turn's own: "don't give it back
if there is a session" leaks it.
"""

from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
import pytest

from adapters.cli.plant import plant
from kernel import QueueTimeout, RequestAborted, RunningTurn, Session, SessionClosed, TurnTimeout
from ownership import ZEROS, Need
from tests.scenarios.stage import DeviceFactory, Stage, greedy, open_stage, prompt

Which = Literal["first", "later"]
Ending = Callable[[Stage, Session, list[int], list[int]], Awaitable[list[int]]]
"""Submits a turn that is refused, ends it in some way, and returns the session's history then."""

CONTEXT = 23
"""Tokens of the refused turn's whole context: six pages of ten, and a senior has six."""


async def assert_refused(stage: Stage, session: Session, turn: RunningTurn) -> None:
    """The turn was tried, found no room, and holds nothing."""
    await stage.step()
    view = stage.engine.core.ledger.view
    held = stage.held_by(session)
    base = held[-1].name if held else None
    assert stage.engine.stats().num_requests_running == 1
    assert view.free_slots
    assert view.pages_needed(Need(CONTEXT), base or ZEROS) > view.free_pages
    assert session.info.state == "queued"
    assert turn.request_id not in stage.running()
    assert all(claim.pinned == 0 for claim in held)


async def leave(stage: Stage, session: Session, history: list[int], tokens: list[int]) -> list[int]:
    async with session.turn(tokens, greedy(3)) as turn:
        await assert_refused(stage, session, turn)
    return history


async def be_cancelled(
    stage: Stage, session: Session, history: list[int], tokens: list[int]
) -> list[int]:
    with anyio.CancelScope() as scope:
        async with session.turn(tokens, greedy(3)) as turn:
            await assert_refused(stage, session, turn)
            scope.cancel()
            await turn.wait()
    assert scope.cancelled_caught
    return history


async def abort(stage: Stage, session: Session, history: list[int], tokens: list[int]) -> list[int]:
    async with session.turn(tokens, greedy(3)) as turn:
        await assert_refused(stage, session, turn)
        assert stage.engine.abort(turn.request_id)
        with pytest.raises(RequestAborted):
            await turn.wait()
    return history


async def time_out_in_the_queue(
    stage: Stage, session: Session, history: list[int], tokens: list[int]
) -> list[int]:
    async with session.turn(tokens, greedy(3), queue_timeout_s=5) as turn:
        await assert_refused(stage, session, turn)
        await stage.advance(5)
        with pytest.raises(QueueTimeout):
            await turn.wait()
    return history


async def time_out(
    stage: Stage, session: Session, history: list[int], tokens: list[int]
) -> list[int]:
    async with session.turn(tokens, greedy(3), timeout_s=5) as turn:
        await assert_refused(stage, session, turn)
        await stage.advance(5)
        with pytest.raises(TurnTimeout):
            await turn.wait()
    return history


async def be_interrupted(
    stage: Stage, session: Session, history: list[int], tokens: list[int]
) -> list[int]:
    """A queued turn that is interrupted ends at once; its input stays."""
    async with session.turn(tokens, greedy(3)) as turn:
        await assert_refused(stage, session, turn)
        assert await turn.interrupt() == 0
        assert (await turn.wait()).finish_reason == "interrupt"
    return [*history, *tokens]


async def be_admitted_later(
    stage: Stage, session: Session, history: list[int], tokens: list[int]
) -> list[int]:
    async with session.turn(tokens, greedy(3)) as turn:
        await assert_refused(stage, session, turn)
        return stage.note(history, await stage.finish(turn))


ROLLED_BACK: list[Ending] = [leave, be_cancelled, abort, time_out_in_the_queue, time_out]
ALL: list[Ending] = [*ROLLED_BACK, be_interrupted, be_admitted_later]


@pytest.mark.parametrize("which", ["first", "later"])
@pytest.mark.parametrize(
    ("anyio_backend", "opened_device", "ending"),
    [
        *(("asyncio", "fake", ending) for ending in ALL),
        *(("trio", "fake", ending) for ending in ALL),
        ("asyncio", "bundled", be_admitted_later),
        ("trio", "bundled", leave),
    ],
    indirect=["opened_device"],
)
async def test_a_refused_turn_then_another_client_then_close(
    opened_device: DeviceFactory, which: Which, ending: Ending
) -> None:
    """The seed's scenario and its mirror: one owner throughout, and every slot free at the end."""
    async with (
        open_stage(opened_device, num_slots=3, num_pages=10) as stage,
        stage.engine.session() as session,
    ):
        history: list[int] = []
        if which == "later":
            history = stage.note([], await stage.run(session.turn(prompt(5), greedy(4))))
        kept = stage.held_by(session)
        async with stage.engine.stream(prompt(20, 1), greedy(6)) as senior:
            await stage.step()
            tokens = prompt(CONTEXT - len(history), 2)
            history = await ending(stage, session, history, tokens)
            await stage.settle()
            if ending in ROLLED_BACK:
                assert stage.held_by(session) == kept
            stage.note([], await stage.finish(senior))
        assert session.info.num_tokens == len(history)

        await run_another_client(stage, session)
        stage.note(history, await stage.run(session.turn(prompt(2, 4), greedy(3))))
        await close_twice(stage, session)


async def run_another_client(stage: Stage, session: Session) -> None:
    """What the session rests in is neither drawn nor written by somebody else."""
    resting = stage.held_by(session)
    begun = len(stage.device.steps)
    stage.note([], await stage.run(stage.engine.stream(prompt(4, 3), greedy(5))))
    assert stage.held_by(session) == resting
    rows = [row for step in stage.device.steps[begun:] for row in step.rows]
    assert rows
    for claim in resting:
        assert claim.slot not in {row.slot for row in rows}
        # Its frozen pages are nobody else's base, so they aren't even read.
        assert set(claim.pages).isdisjoint(page for row in rows for page in row.pages)


async def close_twice(stage: Stage, session: Session) -> None:
    """The session's slot comes back once, and only once."""
    await session.close()
    assert stage.free == stage.capacity
    await session.close()
    with pytest.raises(SessionClosed):
        await stage.run(session.turn(prompt(2), greedy(1)))
    await stage.settle()
    stage.assert_at_rest()


@pytest.mark.parametrize("ending", [leave, abort, time_out_in_the_queue])
async def test_nine_refused_turns_do_not_count_anything_down(ending: Ending) -> None:
    """The public report: nine refused turns, and the pool counted minus nine leaked slots."""
    async with (
        open_stage(num_slots=3, num_pages=10) as stage,
        stage.engine.session() as session,
    ):
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(4))))
        kept = stage.held_by(session)
        async with stage.engine.stream(prompt(20, 1), greedy(12)) as senior:
            await stage.step()
            free = stage.free
            for salt in range(9):
                await ending(stage, session, history, prompt(CONTEXT - len(history), salt))
                await stage.settle()
                assert stage.held_by(session) == kept
                assert stage.free[0] == free[0]
            stage.note([], await stage.finish(senior))
        stage.note(history, await stage.run(session.turn(prompt(3), greedy(3))))
        await close_twice(stage, session)


async def test_a_first_turn_refused_for_want_of_a_slot_takes_none() -> None:
    """Slots alone can refuse a first turn only: a later one can always give up its own base."""
    async with (
        open_stage(num_slots=1, num_pages=20) as stage,
        stage.engine.session() as session,
    ):
        async with stage.engine.stream(prompt(4, 1), greedy(6)) as senior:
            await stage.step()
            for _ in range(2):
                async with session.turn(prompt(3), greedy(2)) as turn:
                    await stage.step()
                    assert stage.free[0] == 0
                    assert stage.running() == {senior.request_id}
                    assert turn.request_id not in stage.running()
                await stage.settle()
            stage.note([], await stage.finish(senior))
        assert stage.free == stage.capacity
        stage.note([], await stage.run(session.turn(prompt(3), greedy(2))))
        await close_twice(stage, session)


async def test_these_scenarios_would_see_the_bug() -> None:
    """Planted below the ledger, since it can't be written above: the very next count fails."""
    with plant("seed-rollback"), pytest.raises(AssertionError, match="stands in 2 columns"):
        async with open_stage(num_slots=3, num_pages=10) as stage:
            async with stage.engine.session() as session:
                history = stage.note([], await stage.run(session.turn(prompt(5), greedy(4))))
                async with stage.engine.stream(prompt(20, 1), greedy(6)):
                    await stage.step()
                    await leave(stage, session, history, prompt(CONTEXT - len(history), 2))
