"""How benches measure: the best of repeats, since whatever disturbs one only adds; and wait."""

import time
from collections.abc import Callable

import anyio

__all__ = ["best_of", "seconds", "until"]

_PATIENCE_S = 60.0


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def best_of(repeats: int, measure: Callable[[], float]) -> float:
    """The lowest of so many measurements, as ``timeit`` advises."""
    return min(measure() for _ in range(repeats))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what nobody announces.

    Raises:
        TimeoutError: a minute was not enough.
    """
    with anyio.fail_after(_PATIENCE_S):
        while True:
            if condition():
                return
            await anyio.sleep(0.001)
