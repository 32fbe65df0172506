"""Deadlines of turns and sessions, on a clock that the test moves."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel import (
    Engine,
    EngineConfig,
    PromptTooLong,
    QueueTimeout,
    RunningTurn,
    SamplingParams,
    SessionBusy,
    SessionClosed,
    SessionNotFound,
    StallTimeout,
    TurnTimeout,
)
from tests.cancellation.clock import Clock
from tests.cancellation.holding import assert_at_rest
from tests.cancellation.killing import deliver

GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
CONFIG = EngineConfig(
    model="fake", num_slots=1, num_pages=40, page_size=4, max_num_seqs=1, step_timeout_s=1e6
)


@attrs.frozen
class Hall:
    """An engine with one slot, on a device that the test steps by hand."""

    engine: Engine
    device: FakeDevice
    clock: Clock

    async def step(self, count: int = 1) -> None:
        """Let the device complete so many steps."""
        for _ in range(count):
            await deliver(self.engine)
            self.device.complete()
        await deliver(self.engine)

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(self.engine, seconds)

    async def finish(self) -> None:
        """Let the device complete whatever comes."""
        await deliver(self.engine)
        while self.device.waiting:
            await self.step()


@asynccontextmanager
async def _open() -> AsyncGenerator[Hall]:
    clock, device = Clock(), FakeDevice(mode="manual", eos_token_ids=())
    async with Engine.open(CONFIG, device=device, environment=clock.environment()) as engine:
        hall = Hall(engine, device, clock)
        yield hall
        await hall.finish()
        assert_at_rest(engine, device=device)


async def _end(turn: RunningTurn) -> None:
    with anyio.fail_after(2):
        await turn.wait()


async def test_a_turn_that_is_not_admitted_in_time_fails(anyio_backend: str) -> None:
    """It waits for the one slot; the turn that has it is not disturbed."""
    async with _open() as hall:
        holder = await hall.engine.stream([1, 2], GREEDY, queue_timeout_s=5).__aenter__()
        await deliver(hall.engine)
        queued = await hall.engine.stream([3], GREEDY, queue_timeout_s=5).__aenter__()
        await hall.pass_time(4.9)
        assert queued.has_result is False
        await hall.pass_time(0.2)

        with pytest.raises(QueueTimeout, match="queue_timeout_s=5"):
            await _end(queued)
        await hall.finish()
        await _end(holder)


async def test_waiting_in_ones_session_counts_as_queueing(anyio_backend: str) -> None:
    """The clock runs from the submission, wherever the turn stands in line."""
    async with _open() as hall, hall.engine.session() as session:
        active = await session.turn([1], LONG).__aenter__()
        behind = await session.turn([2], GREEDY, wait=True, queue_timeout_s=5).__aenter__()
        other = await session.turn([2], GREEDY, wait=True, timeout_s=6).__aenter__()
        await hall.step()
        await hall.pass_time(5.1)
        with pytest.raises(QueueTimeout):
            await _end(behind)
        await hall.pass_time(1)
        with pytest.raises(TurnTimeout):
            await _end(other)
        active.cancel()


async def test_the_wait_in_ones_session_is_part_of_the_whole(anyio_backend: str) -> None:
    """A turn that began late has less time left, not its whole time anew."""
    async with _open() as hall, hall.engine.session() as session:
        await session.turn([1], GREEDY).__aenter__()
        late = await session.turn([2], LONG, wait=True, timeout_s=6).__aenter__()
        await hall.pass_time(4)
        await hall.step(4)
        assert late.has_result is False
        await hall.pass_time(2.1)
        with pytest.raises(TurnTimeout):
            await _end(late)


async def test_deadlines_run_from_the_submission_and_not_from_the_making(
    anyio_backend: str,
) -> None:
    """A request may be made out long before its block is entered."""
    async with _open() as hall:
        turn = hall.engine.stream([1], GREEDY, timeout_s=10, queue_timeout_s=10)
        await hall.pass_time(100)
        async with turn:
            await hall.pass_time(1)
            await hall.finish()
            await _end(turn)
        assert turn.result.timings.total_s == 1


async def test_a_turn_that_does_not_end_in_time_is_rolled_back(anyio_backend: str) -> None:
    """Wherever it is then, here in the middle of a step; its session is where it was."""
    async with _open() as hall, hall.engine.session() as session:
        turn = await session.turn([1, 2], LONG, timeout_s=10).__aenter__()
        await hall.step(3)
        await hall.pass_time(10.1)

        with pytest.raises(TurnTimeout, match="timeout_s=10"):
            await _end(turn)
        assert session.info.num_tokens == 0
        assert session.info.state == "idle"


async def test_a_consumer_that_stops_reading_loses_its_turn(anyio_backend: str) -> None:
    """The clock runs while output lies unread, from its arrival on."""
    async with _open() as hall:
        turn = await hall.engine.stream([1], LONG, stall_timeout_s=3).__aenter__()
        await hall.step()
        await hall.pass_time(3.1)

        with pytest.raises(StallTimeout, match="stall_timeout_s=3"):
            await _end(turn)


async def test_a_consumer_that_reads_slowly_keeps_its_turn(anyio_backend: str) -> None:
    """Each read starts the clock again; a turn without output has nothing to be read."""
    async with _open() as hall:
        turn = await hall.engine.stream([1], LONG, stall_timeout_s=3).__aenter__()
        await hall.pass_time(100)
        for _ in range(5):
            await hall.step()
            await hall.pass_time(2)
            await anext(turn)
            await hall.pass_time(2)
        assert turn.has_result is False
        await hall.step()
        await hall.pass_time(3.1)
        with pytest.raises(StallTimeout):
            await _end(turn)


async def test_a_consumer_that_waits_for_the_end_is_no_stalled_one(anyio_backend: str) -> None:
    """``wait`` reads nothing on purpose."""
    async with _open() as hall:
        turn = await hall.engine.stream([1], GREEDY, stall_timeout_s=3).__aenter__()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.wait)
            await hall.step()
            await hall.pass_time(3.1)
            await hall.finish()
        assert turn.result.finish_reason == "length"


async def test_a_deadline_that_passes_after_the_end_changes_nothing(anyio_backend: str) -> None:
    """The alarm names its turn; the next one of the session isn't hit."""
    async with _open() as hall, hall.engine.session() as session:
        turn = await session.turn([1], GREEDY, timeout_s=5, stall_timeout_s=5).__aenter__()
        await hall.finish()
        await _end(turn)
        following = await session.turn([2], LONG).__aenter__()
        await hall.step()
        await hall.pass_time(6)
        assert following.has_result is False
        following.cancel()


async def test_an_idle_session_is_closed(anyio_backend: str) -> None:
    """With its slot, its log and its id."""
    async with _open() as hall:
        session = await hall.engine.session(session_id="a", idle_timeout_s=10).__aenter__()
        await hall.pass_time(9.9)
        assert session.info.state == "idle"
        await hall.pass_time(0.2)

        assert not hall.engine.list_sessions()
        with pytest.raises(SessionClosed):
            await session.append([1])
        with pytest.raises(SessionNotFound):
            hall.engine.attach("a")


async def test_the_idle_clock_stands_while_a_turn_is_live(anyio_backend: str) -> None:
    """A turn may take longer than the timeout; the clock starts at its completion."""
    async with _open() as hall:
        session = await hall.engine.session(idle_timeout_s=10).__aenter__()
        turn = await session.turn([1], GREEDY).__aenter__()
        await hall.pass_time(50)
        await hall.finish()
        await _end(turn)
        await hall.pass_time(9.9)
        assert session.info.state == "idle"
        await hall.pass_time(0.2)
        assert not hall.engine.list_sessions()


async def test_a_refused_turn_does_not_keep_a_session_alive(anyio_backend: str) -> None:
    """Else a client that only makes mistakes would hold its slot for ever."""
    async with _open() as hall:
        session = await hall.engine.session(idle_timeout_s=10).__aenter__()
        await hall.pass_time(9)
        with pytest.raises(PromptTooLong):
            await session.append([1] * 1000)
        await hall.pass_time(1.1)
        assert not hall.engine.list_sessions()


async def test_a_busy_refusal_leaves_the_idle_clock_alone(anyio_backend: str) -> None:
    """It neither starts nor stops it: the turn that runs decides."""
    async with _open() as hall:
        session = await hall.engine.session(idle_timeout_s=10).__aenter__()
        turn = await session.turn([1], GREEDY).__aenter__()
        with pytest.raises(SessionBusy):
            await session.append([1])
        await hall.pass_time(20)
        await hall.finish()
        await _end(turn)
        assert session.info.state == "idle"
        await hall.pass_time(10.1)
        assert not hall.engine.list_sessions()


async def test_the_idle_clock_of_a_dead_session_does_not_close_its_namesake(
    anyio_backend: str,
) -> None:
    """A timer posts by name; the next session of that name has a clock of its own."""
    async with _open() as hall:
        first = await hall.engine.session(session_id="a", idle_timeout_s=10).__aenter__()
        await hall.pass_time(6)
        hall.engine.core.dispatcher.kill(
            hall.engine.core.dispatcher.actors()[-1].name, RuntimeError("planted")
        )
        second = await hall.engine.session(session_id="a", idle_timeout_s=10).__aenter__()
        await hall.pass_time(5)
        assert second.info.state == "idle"
        await hall.pass_time(5.1)
        assert not hall.engine.list_sessions()
        del first
