"""DF-8: a session is closed at every point of its turns; what it held comes back exactly once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kernel import RunningTurn, Session, SessionClosed, SessionNotFound, TenureError
from tests.scenarios.stage import DeviceFactory, Stage, greedy, open_fake, open_stage, prompt

MOMENTS = {"queued": 0, "first chunk in flight": 1, "between two chunks": 2, "decoding": 5}
"""Steps that have landed when the session is closed. The first step is the blocker's."""

each_moment = pytest.mark.parametrize("moment", MOMENTS)


@asynccontextmanager
async def running_turn(
    moment: str, open_device: DeviceFactory = open_fake, **options: Any
) -> AsyncGenerator[tuple[Stage, Session, RunningTurn]]:
    """A later turn of a session at some moment; the session holds a slot and a checkpoint."""
    async with (
        open_stage(
            open_device, num_slots=4, num_pages=40, max_num_seqs=1, max_num_batched_tokens=8
        ) as stage,
        stage.engine.session(session_id="mine") as session,
    ):
        for salt in range(2):
            await stage.run(session.turn(prompt(4, salt), greedy(2)))
        assert len(stage.held_by(session)) == 2
        async with (
            stage.engine.stream(prompt(4, 3), greedy(1)),
            session.turn(prompt(20, 4), greedy(9), **options) as turn,
        ):
            await stage.step(MOMENTS[moment])
            yield stage, session, turn


async def assert_closed_once(stage: Stage, session: Session, turn: RunningTurn) -> None:
    """Every state was closed by the one close, nothing came back twice, nobody is in doubt."""
    closes = stage.engine.core.ledger.view.counters.closes
    await session.close()
    await stage.land()
    assert stage.free == stage.capacity
    assert stage.engine.core.ledger.view.counters.closes == closes
    for attempt in (session.turn(prompt(1), greedy(1)), session.turn([], greedy(1))):
        with pytest.raises(SessionClosed):
            await stage.run(attempt)
    with pytest.raises(SessionNotFound):
        stage.engine.attach("mine")
    with pytest.raises(StopAsyncIteration):
        await anext(turn)


async def close_at(moment: str, open_device: DeviceFactory) -> None:
    async with running_turn(moment, open_device) as (stage, session, turn):
        closes = stage.engine.core.ledger.view.counters.closes
        held = len(stage.held_by(session))
        await session.close()
        stage.check()
        assert stage.held_by(session) == ()
        assert stage.engine.core.ledger.view.counters.closes == closes + held
        with pytest.raises(SessionClosed):
            await turn.wait()
        await assert_closed_once(stage, session, turn)


@each_moment
async def test_close_forgets_the_turn_and_gives_back_once(moment: str) -> None:
    """There is no deferred close: what was at rest is free on return, the rest when it lands."""
    await close_at(moment, open_fake)


@pytest.mark.parametrize(
    ("anyio_backend", "opened_device", "moment"),
    [("asyncio", "bundled", "between two chunks"), ("trio", "bundled", "decoding")],
    indirect=["opened_device"],
)
async def test_close_on_a_real_model(opened_device: DeviceFactory, moment: str) -> None:
    """The device thread still writes into the claim when the session is gone."""
    await close_at(moment, opened_device)


@each_moment
async def test_close_after_abort(moment: str) -> None:
    """The turn is forgotten already; its claim comes back on its own."""
    async with running_turn(moment) as (stage, session, turn):
        stage.engine.abort(turn.request_id)
        await session.close()
        with pytest.raises(TenureError):
            await turn.wait()
        await assert_closed_once(stage, session, turn)


@each_moment
async def test_close_after_an_interrupt_that_has_not_landed(moment: str) -> None:
    """Close overrides; whoever waits for the interrupt is answered too."""
    async with running_turn(moment) as (stage, session, turn):
        answers: list[int | SessionClosed] = []

        async def interrupt() -> None:
            try:
                answers.append(await turn.interrupt())
            except SessionClosed as closed:
                answers.append(closed)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(interrupt)
            await anyio.lowlevel.checkpoint()
            await session.close()
        assert len(answers) == 1
        assert turn.has_result == isinstance(answers[0], int)
        await assert_closed_once_after_any_end(stage, session, turn)


async def assert_closed_once_after_any_end(
    stage: Stage, session: Session, turn: RunningTurn
) -> None:
    """As above, for a turn that may have ended with a result before."""
    if not turn.has_result:
        with pytest.raises(SessionClosed):
            await turn.wait()
    else:
        await turn.wait()
    await assert_closed_once(stage, session, turn)


@each_moment
@pytest.mark.parametrize("first", ["close", "timeout"])
async def test_close_and_timeout_at_once(moment: str, first: str) -> None:
    """Whichever the session handles first is the outcome; the other one finds nothing to do."""
    async with running_turn(moment, timeout_s=5) as (stage, session, turn):
        if first == "close":
            await session.close()
            await stage.advance(5)
        else:
            await stage.advance(5)
            await session.close()
        with pytest.raises(TenureError) as caught:
            await turn.wait()
        assert isinstance(caught.value, SessionClosed) == (first == "close")
        await assert_closed_once(stage, session, turn)


async def test_close_at_the_end_of_a_turn() -> None:
    """The landing step has been handled, its result was not read: it stands."""
    async with running_turn("decoding") as (stage, session, turn):
        await stage.finish(turn)
        await session.close()
        assert turn.result.finish_reason == "length"
        await assert_closed_once(stage, session, turn)


async def test_leaving_the_block_closes_and_an_attached_session_is_left_open() -> None:
    """``attach`` never closes; ``detached`` leaves the session for it."""
    async with open_stage(num_slots=2, num_pages=20) as stage:
        async with stage.engine.session(session_id="kept", detached=True) as session:
            history = stage.note([], await stage.run(session.turn(prompt(4), greedy(3))))
        async with stage.engine.attach("kept") as again:
            stage.note(history, await stage.run(again.turn(prompt(2, 1), greedy(3))))
        await stage.settle()
        assert [info.session_id for info in stage.engine.list_sessions()] == ["kept"]
        await again.close()
        stage.assert_at_rest()


async def test_a_session_is_closed_by_its_idle_timeout_but_never_in_a_turn() -> None:
    """The clock of an idle session starts when its turn has ended."""
    async with (
        open_stage(num_slots=2, num_pages=20) as stage,
        stage.engine.session(idle_timeout_s=10) as session,
    ):
        async with session.turn(prompt(4), greedy(3)) as turn:
            await stage.step()
            await stage.advance(100)
            await stage.finish(turn)
        await stage.advance(9)
        assert session.info.state == "idle"
        await stage.advance(1)
        stage.assert_at_rest()
        with pytest.raises(SessionClosed):
            await stage.run(session.turn(prompt(1), greedy(1)))
