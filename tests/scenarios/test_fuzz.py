"""DF-15: random operations under the partition oracle and a sequential model of every history."""

import random

import pytest

from tests.scenarios.fuzz_model import draw_config
from tests.scenarios.fuzz_world import FuzzWorld
from tests.scenarios.stage import open_stage

SEEDS = 20
OPERATIONS = 300
"""A seed and backend; more than 10,000 in all."""


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_random_operations_keep_every_slot_and_every_history(seed: int) -> None:
    """The seed is the whole input: it gives the pools, the operations and their order."""
    await run_fuzz(seed)


async def run_fuzz(seed: int) -> FuzzWorld:
    rng = random.Random(f"fuzz {seed}")
    async with open_stage(**draw_config(rng)) as stage:
        world = FuzzWorld(stage, rng)
        try:
            for _ in range(OPERATIONS):
                await world.act()
            await world.finish()
        except BaseException as error:
            error.add_note(f"seed {seed}, after {len(world.tape)}: {' '.join(world.tape[-30:])}")
            raise
    return world


async def test_the_random_operations_do_reach_what_they_are_for() -> None:
    """An oracle that has seen nothing proves nothing."""
    seen: dict[str, int] = {}
    for seed in range(4):
        world = await run_fuzz(seed)
        stats = world.stage.engine.stats()
        facts = {
            "preemptions": stats.preemptions,
            "forced parks": stats.forced_parks,
            "rollbacks": stats.rollbacks,
            **world.seen,
        }
        for name, count in facts.items():
            seen[name] = seen.get(name, 0) + count
    expected = {
        "preemptions",
        "forced parks",
        "rollbacks",
        "ended: length",
        "ended: interrupt",
        "late interrupts",
        "forks",
        "SessionBusy",
        "PromptTooLong",
        "QueueTimeout",
        "TurnTimeout",
        "RequestAborted",
        "SessionClosed",
        "StepError",
    }
    assert {name for name in expected if seen.get(name, 0)} == expected, seen
