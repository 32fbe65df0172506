"""Seeded random runs of whole engines on virtual time, on a tape that can be replayed and shrunk.

The engine is opened as users open it, shell and all. The event loop, its clock and its order, the
device's steps and every fault are functions of a seed; each decision lies on the run's tape.

    async def scenario(world: World) -> None:
        async with world.open() as engine:
            await engine.complete([1, 2, 3])

    simulate(scenario, range(1, 201)).check()
"""

from kernel.testing.simulation.batch import Batch, FailedSeed, Settings, simulate
from kernel.testing.simulation.faults import FaultKind
from kernel.testing.simulation.runner import Outcome, Scenario, replay, run_seed, run_twice
from kernel.testing.simulation.scenario import kernel_scenario
from kernel.testing.simulation.shrink import shrink
from kernel.testing.simulation.strategies import StrategyName
from kernel.testing.simulation.tape import Backend, Failure, Tape
from kernel.testing.simulation.world import World

__all__ = [
    "Backend",
    "Batch",
    "FailedSeed",
    "Failure",
    "FaultKind",
    "Outcome",
    "Scenario",
    "Settings",
    "StrategyName",
    "Tape",
    "World",
    "kernel_scenario",
    "replay",
    "run_seed",
    "run_twice",
    "shrink",
    "simulate",
]
