"""How the small benches measure: the best of repeats, since whatever disturbs one only adds."""

import time
from collections.abc import Callable

__all__ = ["best_of", "seconds"]


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def best_of(repeats: int, measure: Callable[[], float]) -> float:
    """The lowest of so many measurements, as ``timeit`` advises."""
    return min(measure() for _ in range(repeats))
