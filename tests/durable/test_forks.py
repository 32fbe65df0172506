"""A fork is a session like any other: what it began with is not lost before its first own turn."""

import anyio
import pytest

from kernel import Engine
from kernel.errors import SessionNotFound, StoreError
from kernel.messages import CloseSession
from kernel.sessions.session import SessionActor
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import Durable, open_engine


def forked(world: Durable, **options: float) -> SessionActor:
    """A fork of a session with one turn, as its caller has it who waits for nothing."""
    parent = world.session("a")
    world.start(parent, [1, 2])
    world.rest()
    return world.session("b", parent=parent, **options)


async def told(engine: Engine) -> None:
    async with engine.session(session_id="a", detached=True) as session:
        await session.append([1, 2, 3])


async def test_a_detached_fork_is_on_the_disk_when_its_block_begins() -> None:
    """As a session that was brought in: a process that is killed now has lost nothing."""
    disk = MemoryStore()
    async with open_engine(MemoryFiles(disk), session_store="anywhere") as engine:
        await told(engine)
        async with engine.attach("a").fork(session_id="b", detached=True) as fork:
            assert "b" in disk.sessions
            assert fork.info.num_tokens == 3


async def test_a_detached_fork_outlives_its_engine_and_its_parent() -> None:
    """All of its history is its own."""
    disk = MemoryStore()
    async with open_engine(MemoryFiles(disk), session_store="anywhere") as engine:
        await told(engine)
        async with engine.attach("a").fork(session_id="b", detached=True):
            pass
        await engine.forget("a")
    async with open_engine(MemoryFiles(disk), session_store="anywhere") as engine:
        assert engine.session_ids() == ["b"]
        async with engine.attach("b") as fork:
            assert fork.info.num_tokens == 3
            assert fork.info.detached


async def test_a_detached_fork_that_cannot_be_kept_is_not_opened() -> None:
    """Said at once, and not when somebody comes back for it."""
    disk = MemoryStore()
    async with open_engine(MemoryFiles(disk), session_store="anywhere") as engine:
        await told(engine)
        disk.fail_next.append("full")
        with pytest.raises(StoreError) as caught:
            async with engine.attach("a").fork(session_id="b", detached=True):
                pass

        assert caught.value.session_id == "b"
        assert engine.session_ids() == ["a"]


async def test_a_detached_fork_that_is_cancelled_while_it_is_kept_leaves_nothing() -> None:
    """Whoever was cancelled has no name for it."""
    disk = MemoryStore()
    async with open_engine(MemoryFiles(disk), session_store="anywhere") as engine:
        await told(engine)
        disk.manual = True
        with anyio.move_on_after(0.05):
            async with engine.attach("a").fork(session_id="b", detached=True):
                pass
        disk.manual = False
        disk.work()
        await engine.settle()
        await anyio.wait_all_tasks_blocked()

        assert engine.session_ids() == ["a"]
        with pytest.raises(SessionNotFound):
            engine.attach("b")


async def test_a_detached_fork_of_nothing_leaves_nothing() -> None:
    """There is no history that could be lost."""
    disk = MemoryStore()
    async with open_engine(MemoryFiles(disk), session_store="anywhere") as engine:
        async with (
            engine.session() as session,
            session.fork(session_id="b", detached=True) as fork,
        ):
            assert "b" not in disk.sessions
            await fork.append([1, 2])
    assert "b" in disk.sessions


def test_a_fork_is_kept_when_its_engine_closes() -> None:
    """Also one that its block would have closed: its engine went first, as with any session."""
    world = Durable.on()
    fork = forked(world)
    log = list(fork.state.log)
    world.post(fork, CloseSession(stays_kept=True))
    world.rest()

    woken = Durable.on(world.crash()).wake("b")

    assert list(woken.state.log) == log


def test_a_fork_whose_patience_ends_goes_dormant_with_all_that_it_has() -> None:
    """It is kept, and goes the next time, instead of being closed with its history."""
    world = Durable.on()
    fork = forked(world, idle_timeout_s=5.0)
    log = list(fork.state.log)
    for _ in range(2):
        world.advance(6.0)
        world.rest()

    assert fork.is_closed
    assert list(world.wake("b").state.log) == log


def test_a_fork_that_could_not_be_kept_stays_and_is_kept_later() -> None:
    """The store's trouble is no reason to forget it, and ends."""
    world = Durable.on()
    fork = forked(world, idle_timeout_s=5.0)
    world.disk.is_full = True
    world.advance(6.0)
    world.rest()

    assert not fork.is_closed
    assert "b" not in world.disk.sessions

    world.disk.is_full = False
    world.advance(6.0)
    world.rest()

    assert "b" in world.disk.sessions


def test_a_fork_that_is_closed_leaves_nothing_in_the_store() -> None:
    """Its block has ended, and it was never asked to stay."""
    world = Durable.on()
    fork = forked(world)
    world.close(fork)
    world.rest()

    assert "b" not in world.disk.sessions
