"""The kernel's own scenario, seed by seed: the kernel is right in all of them."""

import pytest

from kernel.testing.simulation import Backend, Settings, StrategyName, run_seed, run_twice, simulate
from kernel.testing.simulation.strategies import STRATEGIES

pytestmark = pytest.mark.timeout(300)  # Seconds alone, minutes beside a busy machine's work.

SEEDS = 150
"""On each strategy, half of them on each event loop. `make simulate` runs thousands."""


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_whatever_goes_wrong_nothing_is_broken(strategy: StrategyName, backend: Backend) -> None:
    """Conserved, told, right to the token, and at rest at the end; see docs/simulation.md."""
    first = 1 if backend == "asyncio" else 1001
    seeds = range(first, first + SEEDS // 2)
    simulate(seeds=seeds, settings=Settings(strategy=strategy, backend=backend)).check()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_seed_gives_the_same_log_twice(backend: Backend) -> None:
    """Every step of every task, every event of the kernel; a run that differs can't be mended."""
    for seed in range(5001, 5013):
        outcome = run_twice(seed, "random", backend=backend)

        assert outcome.failure is None
        assert outcome.log


def test_a_log_does_not_change_what_happens() -> None:
    """A failure that is replayed with its log is the failure that was seen without one."""
    for seed in range(6001, 6006):
        assert run_seed(seed).tape == run_seed(seed, keeps_log=True).tape


def test_a_small_batch_has_seen_most_of_what_a_large_one_must() -> None:
    """A simulation that visits nothing would pass everything."""
    batch = simulate(seeds=range(1, 81), settings=Settings(twice_in=0))

    assert len(batch.unseen) <= 12, batch.unseen
