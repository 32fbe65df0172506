"""How many torch threads a worker uses, and how to set that for its own thread alone.

``torch.set_num_threads`` does two things: it sets the number for the calling thread, and a
process-wide default that every thread which has not used torch yet takes over at its first
parallel operation. Only the first is wanted here. So the worker first makes its own thread take
the default over (a later take-over would undo the setting), then sets its number, and a short-lived
thread puts the default back.

Denormals are flushed by a bit of the processor that each thread has; threads that torch starts for
this one's parallel operations inherit it, if it is set before the first of them.
"""

import hashlib
import os
import statistics
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from kernel.errors import ValidationError

__all__ = [
    "THREADS_VARIABLE",
    "flush_denormals_in_this_thread",
    "measured_thread_count",
    "set_threads_of_this_thread",
    "threads_from_environment",
    "usable_processors",
]

THREADS_VARIABLE = "TENURE_TORCH_THREADS"
_RUNS = 7
_WORTH_IT = 0.8
"""More threads are taken when they need at most this share of the time."""

T = TypeVar("T")


def _in_new_thread(work: Callable[[], T]) -> T:
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()), name="tenure-torch-default")
    thread.start()
    thread.join()
    return results[0]


def set_threads_of_this_thread(count: int) -> None:
    """Make torch use ``count`` threads for what this thread computes; others are unaffected."""
    if torch.get_num_threads() == count:
        return
    default = _in_new_thread(torch.get_num_threads)
    torch.set_num_threads(count)
    _in_new_thread(lambda: torch.set_num_threads(default))


def flush_denormals_in_this_thread() -> None:
    """Treat numbers below 1e-38 as zero: a state that decays into them takes 17 times as long."""
    torch.set_flush_denormal(True)


def threads_from_environment() -> int | None:
    """The number that ``TENURE_TORCH_THREADS`` asks for; ``None`` when it isn't set.

    Raises:
        ValidationError: it is no whole number above 0.
    """
    text = os.environ.get(THREADS_VARIABLE, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ValidationError(
            parameter=THREADS_VARIABLE, value=text, why="use a whole number from 1, or unset it"
        )
    return int(text)


def usable_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def measured_thread_count(work: Callable[[], object], most: int) -> int:
    """The number of threads at which ``work`` is fast beside a busy thread: 1, 2, 4, ... ``most``.

    The event loop runs beside the device's thread, and torch's threads wait for each other by
    spinning: one that lost its processor to the event loop holds all of them up. So the
    measurement keeps one more thread busy. Leaves this thread at the number that it returns.
    """
    best, best_s = 1, _timed_beside_a_busy_thread(work, 1) if most > 1 else 0.0
    count = 2
    while count <= most:
        needed_s = _timed_beside_a_busy_thread(work, count)
        if needed_s > best_s * _WORTH_IT:
            break
        best, best_s = count, needed_s
        count *= 2
    set_threads_of_this_thread(best)
    return best


def _timed_beside_a_busy_thread(work: Callable[[], object], threads: int) -> float:
    set_threads_of_this_thread(threads)
    stop = threading.Event()
    block = bytes(1 << 20)

    def keep_busy() -> None:
        while not stop.is_set():
            hashlib.blake2b(block)  # lets go of the interpreter lock

    busy = threading.Thread(target=keep_busy, name="tenure-torch-busy", daemon=True)
    busy.start()
    try:
        work()
        times: list[float] = []
        for _ in range(_RUNS):
            begun = time.perf_counter()
            work()
            times.append(time.perf_counter() - begun)
    finally:
        stop.set()
        busy.join()
    return statistics.median(times)
