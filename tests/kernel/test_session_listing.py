"""``engine.iter_sessions()``: what ``list_sessions`` says, without keeping the loop to itself."""

import itertools

import anyio
import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import open_engine

CONFIG = EngineConfig(model="fake", num_slots=2, num_pages=16, page_size=4, max_sessions=1000)


async def opened(engine: Engine, count: int) -> None:
    for number in range(count):
        async with engine.session(session_id=f"s{number:03}", detached=True):
            pass


async def test_it_says_of_all_sessions_what_the_list_says() -> None:
    """Resident or dormant, in the same order."""
    config = {"session_store": "anywhere", "max_resident_sessions": 2}
    async with open_engine(MemoryFiles(MemoryStore()), **config) as engine:
        for number in range(5):
            async with engine.session(session_id=f"s{number}", detached=True) as session:
                await session.append([1, 2, number])
        await engine.settle()
        found = [info async for info in engine.iter_sessions()]

        assert found == engine.list_sessions()
        assert {info.state for info in found} == {"idle", "dormant"}


async def test_others_go_on_while_thousands_are_listed() -> None:
    """However many there are, no turn waits for more than a few of them."""
    async with Engine.open(CONFIG, device=FakeDevice()) as engine:
        await opened(engine, 300)
        described = 0
        turns_of_others: list[int] = []

        async def another() -> None:
            while described < 300:
                turns_of_others.append(described)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(another)
            async for _info in engine.iter_sessions():
                described += 1

        assert described == 300
        assert max(b - a for a, b in itertools.pairwise(turns_of_others)) <= 100


async def test_a_session_that_goes_before_its_turn_is_left_out() -> None:
    """And one that comes meanwhile is for the next listing."""
    async with Engine.open(CONFIG, device=FakeDevice()) as engine:
        await opened(engine, 3)
        listing = engine.iter_sessions()
        first = await anext(listing)
        await engine.forget("s001")
        async with engine.session(session_id="late", detached=True):
            pass
        rest = [info async for info in listing]

        assert [info.session_id for info in (first, *rest)] == ["s000", "s002"]


async def test_a_listing_that_was_cancelled_goes_on_with_the_next_session() -> None:
    """None is lost between two calls."""
    async with Engine.open(CONFIG, device=FakeDevice()) as engine:
        await opened(engine, 2)
        listing = engine.iter_sessions()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anext(listing)

        assert scope.cancelled_caught
        assert [info.session_id async for info in listing] == ["s000", "s001"]
        with pytest.raises(StopAsyncIteration):
            await anext(listing)
