"""How the benches measure: medians of repeats, with the garbage collector's pauses left in."""

import time
from collections.abc import Callable
from statistics import median

__all__ = ["median_of", "seconds"]


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median_of(repeats: int, measure: Callable[[], float]) -> float:
    """The median of so many measurements, after one that warms up and doesn't count."""
    measure()
    return median(measure() for _ in range(repeats))
