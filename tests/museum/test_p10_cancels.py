"""P10: a cancel or a disconnect at an unusual moment."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from kernel import Session
from kernel.actors.actor import Address
from kernel.engine.request import RunningTurn
from kernel.errors import QueueTimeout, RequestAborted, SessionBusy, SessionClosed
from kernel.ids import SessionId, TurnId, session_custodian
from kernel.messages import CancelTurn, SessionMessage
from kernel.turn import TurnRequest
from tests.cancellation.killing import Victim, start
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.toys import CALLER
from tests.museum.acts import finish, greedy, held, judge, one_shot, prompt, resting, talk, working
from tests.museum.exhibit import exhibit
from tests.scenarios.stage import Stage, open_stage


@asynccontextmanager
async def a_reader(
    backend: str, stage: Stage, turn: RunningTurn
) -> AsyncGenerator[tuple[Victim, list[int]]]:
    """A client that streams a turn until it is killed, natively; and what it has received."""
    received: list[int] = []

    async def stream() -> None:
        async with turn:
            async for delta in turn:
                received.extend(delta.token_ids)

    async with anyio.create_task_group() as tasks:
        victim = start(backend, tasks, stream)
        while not turn.has_result and not stage.device.waiting:
            await anyio.lowlevel.checkpoint()
        yield victim, received


def _address(session: Session) -> Address[SessionMessage]:
    return Address[SessionMessage](session_custodian(SessionId(session.session_id)))


@exhibit("M012", pattern="P10", guard="protocol", bug="refusal-clears-the-active-turn")
def test_m012_a_refused_turn_does_not_end_the_one_that_runs() -> None:
    """sgl-project/sglang#40250: the refusal of turn 2 cleared the mark of turn 1; turn 3 ran too.

    A session knows its active turn by its id, and only that turn's own end lets another begin.
    """
    world = Loopless.open(num_slots=4, num_pages=40)
    session, log = world.session("s"), list[int]()
    first = world.start(session, prompt(4), greedy(6))
    world.step()
    for salt in (1, 2):
        late = world.start(session, prompt(3, salt), greedy(2))
        error = error_of(late)
        assert isinstance(error, SessionBusy)
        assert error.turn_id == first.id
        assert session.active is not None
        assert session.active.id == first.id
        (step,) = world.device.waiting
        assert len(step.rows) == 1
    finish(world, first)
    judge(log, prompt(4), first)
    talk(world, session, log, prompt(3, 3), 2)
    world.close(session)
    world.assert_all_free()


@exhibit("M022", pattern="P10", guard="protocol", bug="refused-turn-stays-counted")
def test_m022_a_refused_turn_leaves_no_record_that_a_close_could_wait_for() -> None:
    """sgl-project/sglang#27025: a busy turn left an orphan; the deferred close waited for it.

    The refused turn is counted nowhere, and a close is not deferred: it forgets the turn that
    stalls for memory, too, and is done at once.
    """
    world = Loopless.open(num_slots=2, num_pages=8)
    session = world.session("s")
    senior = one_shot(world, "senior", prompt(20, 1), 10)
    world.step()
    stalled = world.start(session, prompt(9), greedy(4))
    assert working(world, stalled) is None
    refused = world.start(session, prompt(3, 2), greedy(2))
    assert isinstance(error_of(refused), SessionBusy)
    scheduler = world.core.scheduler
    assert scheduler is not None
    assert {turn.id for turn in scheduler.roster} == {senior.id, stalled.id}
    assert world.core.door.queued_reqs == 1

    world.close(session)
    assert session.is_closed
    assert isinstance(error_of(stalled), SessionClosed)
    assert {turn.id for turn in scheduler.roster} == {senior.id}
    assert world.core.door.queued_reqs == 0
    finish(world, senior)
    judge([], prompt(20, 1), senior)
    world.assert_all_free()


@exhibit("M023", pattern="P10", guard="protocol", bug="cancelled-turn-keeps-its-session-busy")
async def test_m023_the_turn_after_a_disconnect_has_its_whole_context(anyio_backend: str) -> None:
    """sgl-project/sglang#36475: the next turn was served as a stub of one token.

    Killing the reader cancels its turn. The next one runs on exactly what came before, at once or
    after the cancel has arrived.
    """
    async with open_stage(num_slots=3, num_pages=40) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(6), greedy(4))))
        turn = session.turn(prompt(5, 1), greedy(9))
        async with a_reader(anyio_backend, stage, turn) as (victim, received):
            await stage.step_until(lambda: bool(received))
            victim.kill()
            async with session.turn(prompt(3, 2), greedy(3), wait=True) as second:
                result = await stage.finish(second)
            assert result.usage.prompt_tokens == len(history) + 3
            history = stage.note(history, result)
            await victim.wait()
        assert session.info.num_tokens == len(history)
        stage.note(history, await stage.run(session.turn(prompt(2, 3), greedy(3))))


@exhibit("M024", pattern="P10", guard="protocol", bug="cancel-without-an-address")
async def test_m024_a_turn_without_a_client_never_commits_and_its_cancel_hits_no_other(
    anyio_backend: str,
) -> None:
    """sgl-project/sglang#36552: a zombie ran to its end and was saved; its late cancel hit another.

    The cancel is posted by the reader's own way out, before anybody forgets the turn, and it names
    its turn: when it comes again, late, it is void.
    """
    async with open_stage(num_slots=3, num_pages=40) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(6), greedy(4))))
        turn = session.turn(prompt(5, 1), greedy(9))
        async with a_reader(anyio_backend, stage, turn) as (victim, received):
            await stage.step_until(lambda: bool(received))
            victim.kill()
            await victim.wait()
        await stage.settle()
        await stage.drain()
        assert session.info.num_tokens == len(history)
        assert turn.request_id not in stage.running()
        async with session.turn(prompt(3, 2), greedy(4)) as second:
            await stage.step()
            late = CancelTurn(TurnId(turn.request_id), "abort")
            stage.engine.core.dispatcher.post(_address(session), late, CALLER)
            turn.cancel()
            await stage.settle()
            result = await stage.finish(second)
        assert len(result.token_ids) == 4
        stage.note(history, result)


@exhibit("M025", pattern="P10", guard="protocol", bug="cancelled-turn-keeps-its-session-busy")
@pytest.mark.parametrize("why", ["cancel", "timeout"])
def test_m025_a_session_whose_queued_turn_was_dropped_takes_the_next(why: str) -> None:
    """sgl-project/sglang#31765: the mark set at the submit outlived the turn that left the queue.

    Whatever ends a turn goes through the session, and there is one place where its turn ends.
    """
    world = Loopless.open(num_slots=2, num_pages=40, max_num_seqs=1)
    session, log = world.session("s"), list[int]()
    running = one_shot(world, "running", prompt(4, 1), 6)
    world.step()
    queued = world.start(session, prompt(4), greedy(2), queue_timeout_s=5.0)
    assert session.active is not None
    assert queued.output.admitted_at is None
    if why == "cancel":
        world.cancel(session, queued)
    else:
        world.advance(5)
    expected = RequestAborted if why == "cancel" else QueueTimeout
    assert isinstance(error_of(queued), expected)
    assert session.phase == "idle"
    second = world.start(session, prompt(3, 2), greedy(2))
    assert second.output.end is None
    finish(world, running, second)
    judge(log, prompt(3, 2), second)
    world.close(session)
    world.assert_all_free()


@exhibit("M027", pattern="P10", guard="protocol", bug="dropped-from-its-queue-untold")
@pytest.mark.parametrize("queue", ["session", "scheduler", "preempted", "chunks", "device"])
def test_m027_a_cancel_has_one_reason_wherever_it_finds_its_turn(queue: str) -> None:
    """sgl-project/sglang#40251: none of five queues stamped the reason of what it dropped.

    The session stamps it, first and once; what comes later (here: the step fails) changes nothing.
    """
    world = Loopless.open(
        num_slots=4,
        num_pages=40,
        max_num_seqs=1,
        max_num_batched_tokens=4,
        scheduling_policy="priority",
    )
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    base, others = resting(session), list[TurnRequest]()
    if queue == "session":
        others.append(world.start(session, prompt(2, 7), greedy(2)))
    elif queue == "scheduler":
        others.append(one_shot(world, "other", prompt(3, 7), 2))
    turn = world.start(session, prompt(11, 1), greedy(3), wait=queue == "session")
    if queue == "chunks":
        world.step()
    elif queue == "preempted":
        others.append(one_shot(world, "urgent", prompt(3, 7), 2, priority=-9))
        world.step()
        assert working(world, turn) is None
    world.cancel(session, turn)

    assert isinstance(error_of(turn), RequestAborted)
    if queue == "device":
        world.device.fail(why="too late to matter")
        world.run()
    assert session.phase == ("running" if queue == "session" else "idle")
    assert working(world, turn) is None or not others
    finish(world, *others)
    while world.device.waiting:
        world.step()
    assert isinstance(error_of(turn), RequestAborted)
    if queue == "session":
        judge(log, prompt(2, 7), others[0])
    else:
        assert resting(session) == base
        assert [claim.pinned for claim in held(world, session)] == [0]
    talk(world, session, log, prompt(2, 2), 2)
    world.close(session)
    world.assert_all_free()


@exhibit("M060", pattern="P10", guard="protocol", bug="cancel-not-passed-on")
async def test_m060_streams_that_nobody_reads_make_room_within_a_step(anyio_backend: str) -> None:
    """sgl-project/sglang#36333: two disconnected streams decoded on for a quarter of an hour.

    Leaving by a kill is leaving: with the landing of the step in flight both rows are free.
    """
    async with open_stage(num_slots=2, num_pages=60, max_num_seqs=2) as stage:
        turns = [stage.engine.stream(prompt(4, salt), greedy(60)) for salt in range(2)]
        async with (
            a_reader(anyio_backend, stage, turns[0]) as (first, heard),
            a_reader(anyio_backend, stage, turns[1]) as (second, also_heard),
        ):
            await stage.step_until(lambda: bool(heard and also_heard))
            first.kill()
            second.kill()
            await first.wait()
            await second.wait()
            async with stage.engine.stream(prompt(5, 2), greedy(3)) as third:
                await stage.settle()
                assert third.request_id not in stage.running()
                await stage.step()
                assert stage.running() == {third.request_id}
                stage.note([], await stage.finish(third))
        assert stage.free == stage.capacity
