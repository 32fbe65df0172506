"""Sessions that go dormant just when somebody wants something else of them."""

import anyio
import attrs
import pytest

from kernel import SamplingParams
from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.engine.desk import CALLER
from kernel.engine.inspection import dormant_info, session_info
from kernel.errors import Overloaded, SessionLost, SessionNotFound, TenureError, TooManySessions
from kernel.ids import STORE, SessionId
from kernel.messages import (
    CancelTurn,
    Exported,
    ExportSession,
    GiveUp,
    Hibernate,
    InterruptTurn,
    SessionMessage,
    SetMark,
)
from kernel.session_store import KeepState
from kernel.sessions.store_actor import StoreActor
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import Durable, open_engine, settled
from tests.kernel.loopless import Loopless
from tests.kernel.toys import Recorder
from tests.pressure.worlds import name_of
from tests.scenarios.inputs import greedy

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


async def test_a_block_removes_its_session_also_when_somebody_else_has_woken_it() -> None:
    """Its actor is another one by then, and the session is the same."""
    files = MemoryFiles()
    async with open_engine(files, session_store="anywhere", max_resident_sessions=1) as engine:
        async with engine.session(session_id="a") as session:
            async with session.turn([1, 2, 3], greedy(2)) as turn:
                await turn.wait()
            async with engine.session(session_id="b"), engine.session(session_id="c"):
                with anyio.fail_after(5):
                    while session.info.state != "dormant":
                        await engine.settle()
            async with engine.attach("a").turn([4], greedy(2)) as turn:
                await turn.wait()
        assert engine.session_ids() == []


async def test_a_stale_object_removes_no_dormant_namesake() -> None:
    """Whoever closes what is gone already closes nothing."""
    files = MemoryFiles()
    async with open_engine(files, session_store="anywhere", max_resident_sessions=1) as engine:

        async def dormant(name: str) -> object:
            session = engine.session(session_id=name, detached=True)
            async with session:
                async with session.turn([1, 2, 3], greedy(2)) as turn:
                    await turn.wait()
            async with engine.session(), engine.session():
                with anyio.fail_after(5):
                    while session.info.state != "dormant":
                        await engine.settle()
            return session

        old = await dormant("a")
        await engine.forget("a")
        await dormant("a")
        await old.close()  # type: ignore[attr-defined]

        assert engine.session_ids() == ["a"]


async def test_a_dormant_session_is_exported_with_its_state() -> None:
    """Also where it is left to the store again as soon as it is woken."""
    files = MemoryFiles()
    async with open_engine(files, session_store="anywhere", max_resident_sessions=1) as engine:
        session = engine.session(session_id="a", detached=True)
        async with session:
            async with session.turn([1, 2, 3], greedy(2)) as turn:
                await turn.wait()
        async with engine.session(), engine.session():
            with anyio.fail_after(5):
                while session.info.state != "dormant":
                    await engine.settle()
            data = await session.export()
    header = files.disk.header
    assert header is not None
    _, image = files.unpack(data, header, source="here")
    assert image is not None


async def test_resume_opens_a_new_session_while_the_old_one_is_being_removed() -> None:
    """There is none of the name any more by then."""
    files = MemoryFiles(MemoryStore())
    async with open_engine(files, session_store="anywhere") as engine:
        old = engine.session(session_id="a")
        await old.__aenter__()
        async with old.turn([1, 2, 3], greedy(2)) as turn:
            await turn.wait()
        files.disk.manual = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(old.close)
            with anyio.fail_after(5):
                while "a" in engine.core.sessions:  # noqa: ASYNC110  it tells nobody
                    await anyio.sleep(0.01)

            async def work() -> None:
                while True:
                    await anyio.sleep(0.01)
                    files.disk.work()

            tasks.start_soon(work)
            with anyio.fail_after(5):
                async with engine.session(session_id="a", resume=True) as session:
                    assert session.info.num_tokens == 0
            files.disk.manual = False
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["wake", "forget"])
async def test_a_crowd_at_the_store_is_served_or_refused_by_name(what: str) -> None:
    """No mailbox overflows, and nobody waits for a request that was never posted."""
    disk = MemoryStore()
    files = MemoryFiles(disk)
    names = [f"s{number}" for number in range(110)]
    async with open_engine(files, session_store="anywhere") as engine:
        for name in names:
            async with engine.session(session_id=name, detached=True) as session:
                await session.append([1, 2])
    failed: list[BaseException] = []

    async with open_engine(
        files, session_store="anywhere", max_sessions=4, max_resident_sessions=2
    ) as engine:

        async def use(name: str) -> None:
            try:
                if what == "wake":
                    await engine.attach(name).append([3])
                else:
                    await engine.forget(name)
            except TenureError as error:
                failed.append(error)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for name in names:
                    tasks.start_soon(use, name)
        assert all(isinstance(error, Overloaded) for error in failed), failed[:3]
        if what == "wake":
            with anyio.fail_after(5):
                await engine.attach(names[-1]).append([3])


async def test_a_crowd_at_a_session_whose_disk_is_slow_is_refused_by_name() -> None:
    """What waits for a change of the log is mail, wherever it waits."""
    disk = MemoryStore()
    refused: list[BaseException] = []
    async with open_engine(
        MemoryFiles(disk), session_store="anywhere", max_num_queued_reqs=8
    ) as engine:
        async with engine.session(session_id="a", detached=True) as session:
            await session.append([1, 2])
        actor = engine.core.sessions[SessionId("a")]
        disk.manual = True
        waiting = 0

        async def ask() -> None:
            try:
                await session.checkpoint("here")
            except Overloaded as error:
                refused.append(error)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(2 * actor.mail_bound):
                    tasks.start_soon(ask)
                    await anyio.lowlevel.checkpoint()
                await engine.settle()
                waiting = actor.num_mail
                disk.manual = False
                disk.work()

    assert 2 * waiting <= actor.mail_bound
    assert len(refused) >= actor.mail_bound


def test_a_salt_outlives_the_turn_that_brought_it_and_was_cancelled() -> None:
    """A session goes on with the one that it was given last, wherever it was meanwhile."""
    world = Durable.on()
    session = world.session("a")
    world.start(session, [1, 2, 3])
    world.rest()
    request = world.start(session, [4], cache_salt="secret")
    world.cancel(session, request)
    world.rest()
    assert session.state.cache_salt == "secret"

    for _ in range(3):
        if not session.is_closed:
            world.post(session, Hibernate())
            world.rest()

    assert session.is_closed
    assert world.wake("a").state.cache_salt == "secret"


def test_whoever_exports_a_session_that_dies_is_told() -> None:
    """The state was on its way, and nobody is left who could pass it on."""
    world = Durable.on()
    session = world.session("a")
    world.start(session, [1, 2, 3])
    world.rest()
    reply: Reply[Exported] = Reply()
    world.post(session, ExportSession(reply))
    assert not reply.is_settled

    world.core.dispatcher.kill(session.name, RuntimeError("planted"))
    world.run()

    assert isinstance(settled(reply), SessionLost)


@pytest.mark.parametrize("deferred", [False, True])
def test_a_session_that_dies_of_a_change_tells_who_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, deferred: bool
) -> None:
    """Kept on the disk, and then the session fails to do it."""
    world = Durable.on()
    session = world.session("a")
    world.start(session, [1, 2, 3])
    world.rest()
    first: Reply[int] = Reply()
    reply: Reply[int] = Reply()

    def crash(*_args: object) -> None:
        raise RuntimeError("planted")

    if deferred:
        world.post(session, SetMark("first", first))
    world.post(session, SetMark("here", reply))
    if deferred:
        monkeypatch.setattr("kernel.sessions.log_changes.check_history", crash)
    else:
        monkeypatch.setattr("kernel.sessions.log_changes.change_history", crash)
    world.rest()

    assert isinstance(settled(reply), SessionLost)


@pytest.mark.parametrize("way", ["restore", "import"])
async def test_a_restore_that_is_cancelled_opens_nothing(way: str) -> None:
    """Nobody has it, so nobody would ever close it; and its name is free for the next try."""
    disk = MemoryStore()
    files = MemoryFiles(disk)
    async with open_engine(files) as engine, engine.session(session_id="a") as session:
        await session.append([1, 2, 3])
        data = await session.export()
        await session.save("there")
    async with open_engine(files, session_store="anywhere") as engine:
        disk.manual = True
        with anyio.move_on_after(0.05):
            if way == "restore":
                await engine.restore("there")
            else:
                await engine.import_session(data)
        disk.work()
        disk.manual = False
        with anyio.fail_after(5):
            while engine.session_ids():
                disk.work()
                await anyio.sleep(0.01)
        await engine.import_session(data)


async def test_several_outputs_of_a_one_shot_leave_nothing_in_the_store() -> None:
    """Forks of a hidden session are hidden sessions."""
    files = MemoryFiles()
    async with open_engine(files, session_store="anywhere") as engine:
        await engine.complete([1, 2, 3], SamplingParams(n=3, max_tokens=3, ignore_eos=True))
        await engine.settle()
        assert engine.session_ids() == []
        assert not files.disk.jobs


def test_a_session_that_is_removed_is_not_woken_by_what_was_read_before() -> None:
    """Whoever asks after the removal gets the answer to their own question."""
    world = Durable.on()
    session = world.session("a")
    world.start(session, [1, 2, 3])
    world.rest()
    world.post(session, Hibernate())
    world.rest()
    stored = world.core.stored
    assert stored is not None
    before = stored.wake(SessionId("a"))
    world.run()
    stored.forget(SessionId("a"))
    after = stored.wake(SessionId("a"))
    world.run()
    world.rest()

    assert isinstance(settled(before), SessionNotFound)
    assert isinstance(settled(after), SessionNotFound)
    assert not world.core.sessions
    world.start(session := world.session("a"), [5])
    world.rest()
    assert world.disk.log_of("a") == list(session.state.log)


async def test_sessions_at_rest_leave_room_for_others() -> None:
    """The bound is on those in memory, and none of them has to be there."""
    async with open_engine(MemoryFiles(), session_store="anywhere", max_sessions=4) as engine:
        for number in range(8):
            async with engine.session(session_id=f"s{number}", detached=True) as session:
                await session.append([1, 2])
            await engine.settle()
        assert len(engine.session_ids()) == 8


def test_a_snapshot_on_its_way_to_the_disk_is_waited_for_before_its_session_is_left() -> None:
    """Else it is said for as long as the session is dormant that only its log is there."""
    world = Durable.on(num_slots=6, num_pages=64)
    session = world.session("a")
    world.start(session, [1, 2, 3, 4], GREEDY)
    world.rest()
    world.post(session, GiveUp(name_of(session)))
    world.run()
    while world.device.waiting_transfers:
        world.copy()
    assert world.disk.waiting
    world.post(session, Hibernate())
    world.run()
    left_at_once = session.is_closed
    world.rest()
    assert (left_at_once, session.is_closed) == (False, True)

    told = dormant_info(world.core, SessionId("a"))
    found = session_info(world.core, world.wake("a"))
    assert (told.place, told.position) == (found.place, found.position) == ("disk", 7)


def test_whoever_waits_is_refused_when_the_last_mail_of_those_that_stay_is_read() -> None:
    """A session with mail may have a turn before it; nobody else says when it had none."""
    world = Durable.on(num_slots=6, num_pages=64, max_sessions=2, max_resident_sessions=1)
    world.start(world.session("a"), [1, 2, 3])
    world.rest()
    busy = world.session("b")
    world.rest()
    assert SessionId("a") not in world.core.sessions
    world.session("c")
    turn = world.start(busy, [1, 2, 3], SamplingParams(max_tokens=60))
    stored = world.core.stored
    assert stored is not None
    waiting = stored.wake(SessionId("a"))
    world.run()
    assert not waiting.is_settled
    here = Address[SessionMessage](busy.name)
    for mail in (CancelTurn(turn.id, "abort"), InterruptTurn(turn.id, None, Reply())):
        world.core.dispatcher.post(here, mail, CALLER)
    world.rest()

    assert isinstance(settled(waiting), TooManySessions)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_snapshot_that_is_refused_while_another_is_on_its_way_is_answered(is_known: bool) -> None:
    """At once, and so out of order; a session that waited for that one would never leave."""
    there = Loopless.open(num_slots=6, num_pages=64)
    first = there.session("a")
    there.finish(there.start(first, [1, 2, 3, 4], GREEDY))
    reply: Reply[Exported] = Reply()
    there.post(first, ExportSession(reply))
    there.copy()
    found = settled(reply)
    assert isinstance(found, Exported)
    assert found.image is not None

    probe = Recorder()
    world = Durable.on(probe=probe, num_slots=6, num_pages=64)
    store = world.core.dispatcher.actor(STORE)
    assert isinstance(store, StoreActor)
    # One snapshot may be on its way, and a second is refused.
    rules = attrs.evolve(store._rules, max_image_bytes=1)  # pyright: ignore[reportPrivateUsage]
    store._rules = rules  # pyright: ignore[reportPrivateUsage]
    session = world.core.bring_back(found.record, image=found.image, session_id=SessionId("b"))
    assert session.archive is not None
    session.archive.keep_whole(found.image, Reply())
    world.run()
    while not any(isinstance(job, KeepState) for job, _ in world.disk.waiting):
        world.work(1)
    if is_known:
        world.post(session, Hibernate())
    else:
        session.archive.snapshots.offer(found.image)
    world.run()
    world.rest()

    assert session.is_closed == is_known
    assert not session.archive.has_business
    told = [one["reason"] for one in probe.named("session.state_lost")]
    assert told == ([] if is_known else ["refused"])
