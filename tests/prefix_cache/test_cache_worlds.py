"""Random worlds with a prefix cache: every answer is a cold run's, and everybody is served."""

from collections import Counter

import anyio
import attrs
import pytest

from adapters.fake_device import FakeDevice
from tests.oracle.world import Plan, cold_runs, run_world


@pytest.mark.timeout(60)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_worlds_with_a_cache_equal_cold_runs() -> None:
    """Cancels, preemptions, give-ups, forks and evictions beside it, on pools of every size."""
    events = Counter[str]()
    for seed in range(16):
        plan = attrs.evolve(Plan.draw(seed, vocab=1000), cache_block=(4, 8, 16)[seed % 3])
        device = FakeDevice(eos_token_ids=(), delay=None if seed % 2 else 0.0)
        with anyio.fail_after(20):
            world = await run_world(plan, device)
        events.update(world.events)
        assert not device.poison_reads, seed
        for turn, expected in await cold_runs(plan, world.finished):
            assert turn.tokens == expected, (seed, turn.context)
    for event in ("preemptions", "forced_parks", "cache_hits", "cache_evictions", "fork"):
        assert events[event] > 0, event
