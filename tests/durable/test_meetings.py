"""Sessions that go dormant just when somebody wants something else of them."""

import anyio
import pytest

from kernel import SamplingParams
from kernel.actors.reply import Reply
from kernel.errors import Overloaded, SessionLost, SessionNotFound, TenureError
from kernel.ids import SessionId
from kernel.messages import Exported, ExportSession, Hibernate, SetMark
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import Durable, open_engine, settled
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
