"""What a reading with fresh eyes found: turns that hung, and work that grew with the idle."""

from typing import Any

import anyio
import anyio.to_thread
import pytest

from kernel import Engine, SamplingParams
from kernel.actors.actor import Address
from kernel.actors.door import Door
from kernel.errors import EngineClosed, EngineFault, RequestAborted, WrongContext
from kernel.ids import GPU_POOL
from kernel.messages import SessionMessage, StartTurn, Tick
from kernel.probe import EventProbe
from kernel.scheduling.room import Room
from ownership import BaseName
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.kernel.small import LONG, config, opened
from tests.kernel.toys import CALLER
from tests.kernel.turns import make_request

FEW = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
MANY = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)


# Quarantine


def _hang_with_a_pinned_base(num_slots: int) -> Loopless:
    """Session ``a`` rests in one slot; the step that was to copy it hangs with another."""
    world = Loopless.open(num_slots=num_slots, step_timeout_s=5.0)
    session = world.session("a")
    world.finish(world.start(session, [1, 2, 3], FEW))
    world.device.hang_next()
    lost = world.start(session, [4, 5], FEW)
    world.advance(6)
    assert isinstance(error_of(lost), EngineFault)
    return world


def test_a_turn_that_a_pinned_base_leaves_no_room_for_fails() -> None:
    """A base that a hanging step pins is never asked for, so nobody may wait for its slot."""
    world = _hang_with_a_pinned_base(num_slots=2)
    other = world.start(world.session("b"), [1, 2], FEW)
    again = world.start(world.core.sessions[next(iter(world.core.sessions))], [6], FEW)

    for turn in (other, again):
        assert isinstance(error_of(turn), EngineFault)
        assert "quarantine" in str(error_of(turn))


def test_a_third_slot_serves_everybody_while_a_step_hangs() -> None:
    """The session itself too: its state can still be copied."""
    world = _hang_with_a_pinned_base(num_slots=3)
    other = world.start(world.session("b"), [1, 2], FEW)
    again = world.start(world.core.sessions[next(iter(world.core.sessions))], [6], FEW)
    while other.output.end is None or again.output.end is None:
        world.device.complete(len(world.device.waiting) - 1)
        world.run()

    assert len(tokens_of(other)) == len(tokens_of(again)) == 3


# A death, told late


def test_a_step_of_the_new_pool_survives_the_news_of_the_old_ones_death() -> None:
    """A tick that stood in the mail before ``Down`` launches on the successor."""
    world = Loopless.open()
    dispatcher, session = world.core.dispatcher, world.session()
    turn = make_request("turn", [1, 2, 3], FEW)
    dispatcher.post(Address[SessionMessage](session.name), StartTurn(turn), CALLER)
    scheduler = world.core.scheduler
    assert scheduler is not None
    while not any(isinstance(mail, Tick) for mail in scheduler.mailbox):
        dispatcher.run(1)
    dispatcher.kill(GPU_POOL, RuntimeError("planted"))
    world.run()
    world.finish(turn)

    assert error_of(turn) is None
    assert len(tokens_of(turn)) == 3


# Many at once


def test_any_number_of_waiting_turns_may_end_at_their_start() -> None:
    """Each used to start the next from within its own end, until the stack was used up."""
    world = Loopless.open()
    session = world.session()
    first = world.start(session, [1, 2, 3], MANY)
    waiting = [world.start(session, [1], FEW, wait=True) for _ in range(600)]
    for turn in waiting:
        world.interrupt(session, 0, turn)
    world.cancel(session, first)

    assert world.core.dispatcher.deaths == 0
    assert all(tokens_of(turn) == [] and error_of(turn) is None for turn in waiting)
    assert len(session.state.log) == 600


def test_a_turn_that_waits_for_a_row_looks_at_no_session_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full engine is the normal case, and every tick of it would pay for all that are idle."""
    world = Loopless.open(max_num_seqs=1, num_slots=8)
    for name in "abc":
        world.finish(world.start(world.session(name), [1, 2], FEW))
    looked: list[BaseName] = []

    def note(_room: Room, base: BaseName) -> bool:
        looked.append(base)
        return True

    monkeypatch.setattr(Room, "_may_ask", note)
    running = world.start(world.session("d"), [1, 2], FEW)
    world.start(world.session("e"), [1, 2], FEW)
    world.finish(running)

    assert looked == []


def test_the_error_of_a_closed_door_does_not_grow() -> None:
    """It is one object for everybody; a loop of retries would keep every frame alive."""
    door = Door(max_reqs=1, max_tokens=1)
    door.close()

    def depth() -> int:
        with pytest.raises(EngineClosed) as caught:
            door.check_open()
        return len(caught.traceback)

    assert len({depth() for _ in range(10)}) == 1


# The edge


async def test_a_block_of_a_session_may_follow_another_at_once(anyio_backend: str) -> None:
    """Its id and its place among ``max_sessions`` are free when the block has been left."""
    async with Engine.open(config(max_sessions=1), device=opened()) as engine:
        for _ in range(3):
            async with engine.session(session_id="one") as session:
                await session.append([1, 2, 3])


async def test_closing_a_session_waits_for_no_stranger(anyio_backend: str) -> None:
    """On a device that completes at once the mail never ends while any turn runs."""
    async with Engine.open(config(), device=opened()) as engine, engine.session() as session:
        async with engine.stream([1, 2, 3], LONG) as out:
            await session.close()
            assert session.info.state == "closed"
            assert not out.has_result


async def test_two_tasks_may_read_one_turn(anyio_backend: str) -> None:
    """The second used to take the wake-up of the first, which then hung."""
    async with Engine.open(config(), device=opened(delay=0.001)) as engine:
        async with engine.stream([1, 2, 3], MANY) as out:

            async def read() -> None:
                async for _ in out:
                    pass

            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read)
                    await anyio.sleep(0.003)
                    await out.wait()
        assert len(out.result.token_ids) == 50


class _FullDisk:
    def info(self, event: str, **fields: Any) -> None:
        raise OSError("no space left on device")


async def test_a_logger_that_fails_ends_no_turn(anyio_backend: str) -> None:
    """It runs inside of verbs; its trouble is counted, and the log's audit sees the gap."""
    async with Engine.open(config(), device=opened(), logger=_FullDisk()) as engine:
        result = await engine.complete([1, 2, 3], FEW)
        deaths = engine.core.dispatcher.deaths
        probe = engine.core.probe

    assert len(result.token_ids) == 3
    assert deaths == 0
    assert isinstance(probe, EventProbe)
    assert probe.lost > 0


async def test_a_cancel_from_another_thread_is_refused_and_harms_nothing(
    anyio_backend: str,
) -> None:
    """On trio the session's mailbox used to be left marked as queued, and was never served."""
    async with Engine.open(config(), device=opened(delay=0.001)) as engine:
        async with engine.stream([1, 2, 3], LONG) as out:
            with pytest.raises(WrongContext):
                await anyio.to_thread.run_sync(out.cancel)
            out.cancel()
            with anyio.fail_after(5), pytest.raises(RequestAborted):
                await out.wait()


async def test_everybody_who_waits_for_a_failed_turn_is_told(anyio_backend: str) -> None:
    """The second was told that the turn goes on."""
    async with Engine.open(config(), device=opened(delay=0.001)) as engine:
        async with engine.stream([1, 2, 3], LONG) as out:
            engine.abort(out.request_id)
            for _ in range(2):
                with pytest.raises(RequestAborted):
                    await out.wait()
