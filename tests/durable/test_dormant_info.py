"""What is to be known of a session that is only in the store, without reading the disk."""

import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from kernel import Engine, Session
from kernel.engine.inspection import session_info
from kernel.errors import SessionNotFound
from kernel.ids import SessionId
from tests.durable.memory_store import MemoryFiles
from tests.durable.worlds import Durable, open_engine
from tests.known import known
from tests.scenarios.inputs import greedy


async def say(session: Session, *tokens: int) -> None:
    async with session.turn(tokens, greedy(2)) as turn:
        await turn.wait()


async def until_dormant(engine: Engine, name: str) -> None:
    with anyio.fail_after(5):
        while name in engine.core.sessions:
            await engine.settle()


@asynccontextmanager
async def a_dormant_one(
    files: MemoryFiles, *, marks: int = 1, detached: bool = True, budget: int | None = None
) -> AsyncGenerator[tuple[Engine, Session]]:
    """A session of two turns that has gone dormant, and whoever opened it."""
    async with open_engine(
        files, session_store="x", max_resident_sessions=1, session_store_bytes=budget
    ) as engine:
        async with engine.session(session_id="a", detached=detached) as session:
            await say(session, 1, 2, 3)
            for number in range(marks):
                await session.checkpoint(f"m{number}")
            await say(session, 4)
            async with engine.session(), engine.session():
                await until_dormant(engine, "a")
            files.disk.jobs.clear()
            yield engine, session


async def test_what_was_known_when_it_went_dormant_still_is() -> None:
    """Its log, its turns, its snapshot and its marks are the same since; no disk is read for it."""
    files = MemoryFiles()
    async with a_dormant_one(files) as (engine, session):
        info = session.info
        (listed,) = engine.list_sessions()
        jobs = list(files.disk.jobs)
        dormant = [info.session_id for info in engine.list_sessions() if info.state == "dormant"]

    assert listed == info
    assert (dormant, jobs) == (["a"], [])
    assert (info.num_tokens, info.turns) == (8, 2)
    assert (info.place, info.position, info.pending_tokens) == ("disk", 7, 1)
    assert [(mark.name, mark.turns, mark.num_tokens) for mark in known(info.checkpoints)] == [
        ("m0", 1, 5)
    ]
    assert info.last_used_s is not None
    assert (info.detached, info.attached, info.bytes) == (True, True, 0)


async def test_of_a_session_of_a_former_life_nothing_is_known_but_its_name() -> None:
    """And that is said, in place of a nought; once it was woken, all is known."""
    files = MemoryFiles()
    async with a_dormant_one(files):
        pass
    async with open_engine(files, session_store="x", max_resident_sessions=1) as engine:
        (info,) = engine.list_sessions()
        async with engine.attach("a") as session:
            woken = session.info
            async with engine.session(), engine.session():
                await until_dormant(engine, "a")
            again = session.info

    facts = (info.num_tokens, info.turns, info.position, info.pending_tokens, info.first_position)
    assert facts == (None,) * 5
    assert (info.place, info.detached, info.checkpoints, info.last_used_s) == (None,) * 4
    assert (info.state, info.attached) == ("dormant", False)
    assert (woken.place, woken.position, woken.num_tokens, woken.pending_tokens) == (
        "disk",
        7,
        8,
        1,
    )
    assert (again.place, again.position, again.num_tokens, again.turns) == ("disk", 7, 8, 2)


async def test_a_session_that_its_block_will_close_is_not_called_detached() -> None:
    """However long it rests in the store meanwhile."""
    async with a_dormant_one(MemoryFiles(), detached=False) as (_, session):
        assert session.info.state == "dormant"
        assert session.info.detached is False


async def test_whether_a_caller_has_an_object_of_it_is_known_in_memory_and_dormant() -> None:
    """Each object counts, by whatever way it was made, as long as it is there."""
    files = MemoryFiles()
    async with a_dormant_one(files):
        pass
    async with open_engine(files, session_store="x", max_resident_sessions=1) as engine:

        def is_attached() -> bool:
            gc.collect()
            (info,) = [info for info in engine.list_sessions() if info.session_id == "a"]
            return info.attached

        seen = [is_attached()]
        one, other = engine.attach("a"), engine.attach("a")
        seen.append(is_attached())
        del one
        seen.append(is_attached())
        async with other:
            seen.append(is_attached())
        seen.append(is_attached())
        async with engine.session(), engine.session():
            await until_dormant(engine, "a")
        seen.append(is_attached())
        del other
        seen.append(is_attached())

    assert seen == [False, True, True, True, True, True, False]


async def test_an_object_of_a_session_in_memory_is_seen_to_go() -> None:
    """The actor alone is nobody's object."""
    async with open_engine(MemoryFiles()) as engine:
        session = engine.session(session_id="a", detached=True)
        async with session:
            before = session.info.attached
        del session
        gc.collect()
        (info,) = engine.list_sessions()

    assert (before, info.attached) == (True, False)


async def test_an_object_of_a_dormant_session_is_no_namesakes() -> None:
    """Also where nobody has read it yet, and so nobody knows when it was born."""
    files = MemoryFiles()
    async with a_dormant_one(files):
        pass
    async with open_engine(files, session_store="x") as engine:
        old = engine.attach("a")
        await engine.forget("a")
        async with engine.session(session_id="a", detached=True) as session:
            await say(session, 1)
        with pytest.raises(SessionNotFound):
            await say(old, 2)
        assert session.info.turns == 1


async def test_a_snapshot_that_the_store_may_have_dropped_is_not_claimed() -> None:
    """It drops those of others to stay within its budget; the log it never drops."""
    async with a_dormant_one(MemoryFiles(), budget=1 << 20) as (_, session):
        info = session.info

    assert (info.position, info.place, info.pending_tokens) == (None, None, None)
    assert (info.num_tokens, info.turns) == (8, 2)


@pytest.mark.parametrize(("marks", "remembered"), [(0, 0), (8, 8), (9, None)])
async def test_marks_are_remembered_as_long_as_they_are_few(
    marks: int, remembered: int | None
) -> None:
    """An entry stays an entry; what it leaves away it says."""
    async with a_dormant_one(MemoryFiles(), marks=marks) as (_, session):
        found = session.info.checkpoints
        assert (None if found is None else len(found)) == remembered


async def test_what_is_woken_or_removed_leaves_no_entry_behind() -> None:
    """Else an engine would grow by all sessions that it ever had."""
    name = SessionId("a")
    async with a_dormant_one(MemoryFiles()) as (engine, session):
        dormant = known(engine.core.stored).dormant
        before = dormant.entry(name)
        await session.drop_checkpoint("m0")
        woken = dormant.entry(name)
        async with engine.session(), engine.session():
            await until_dormant(engine, name)
        await engine.forget(name)
        removed = dormant.entry(name)

    assert before is not None
    assert (woken, removed) == (None, None)


def test_a_state_in_memory_that_is_only_on_disk_has_its_position() -> None:
    """Given up by the pools, the snapshot is where the next turn starts."""
    world = Durable.on(num_slots=1, host_memory_bytes=0)
    actor, other = world.session("a"), world.session("b")
    for each in (actor, other):
        world.start(each, [1, 2, 3])
        world.rest()
    info = session_info(world.core, actor)

    assert (info.place, info.first_position) == ("disk", None)
    assert info.position == known(info.num_tokens) - 1
    assert info.pending_tokens == 1
