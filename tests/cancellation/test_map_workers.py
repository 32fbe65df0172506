"""``Engine.map`` and tasks that are cancelled one by one, as a host's shutdown does."""

import asyncio

import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine, RequestAborted
from tests.cancellation.stage import CONFIG, GREEDY


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_map_whose_own_worker_was_cancelled_is_not_a_shorter_list(
    anyio_backend: str,
) -> None:
    """Its task group takes the cancellation of a child for a normal end; the caller must not."""
    async with Engine.open(CONFIG, device=FakeDevice(eos_token_ids=(), delay=0.001)) as engine:
        before = asyncio.all_tasks()
        mapping = asyncio.ensure_future(engine.map([[1], [2], [3]], GREEDY, concurrency=2))
        for _ in range(3):
            await asyncio.sleep(0)
        workers = asyncio.all_tasks() - before - {mapping}
        assert len(workers) == 2
        workers.pop().cancel()

        with pytest.raises(RequestAborted):
            await mapping
