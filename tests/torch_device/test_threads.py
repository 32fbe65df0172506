"""A good guest: nothing that other threads see is changed."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch

from adapters.torch_device import device, threads
from kernel.errors import ValidationError
from kernel.step import DeviceStep, StepReport, WorkerContext
from tests.torch_device.support import Rig

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def outside() -> tuple[object, ...]:
    """What other code in the process can see of torch's settings."""
    tiny = torch.full((4,), 1e-39) * 0.5
    return (
        torch.get_num_threads(),
        in_thread(torch.get_num_threads),
        torch.get_num_interop_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        bytes(torch.random.get_rng_state().numpy()),
        bool(tiny.any()),
    )


def test_a_worker_changes_nothing_outside_its_thread() -> None:
    """Threads that start while the worker runs, and after it, included."""
    rig = Rig()
    before = outside()
    finished: list[StepReport] = []
    landed = threading.Event()

    def done(report: StepReport) -> None:
        finished.append(report)
        landed.set()

    worker = rig.device.start_worker(WorkerContext(call_later=lambda delay, call: None))
    rows = [rig.sequence(9, seed=1).row(9)]
    worker.submit(DeviceStep(step=0, rows=rows), done)
    assert landed.wait(10)
    during = outside()
    worker.stop()
    assert worker.join(5)

    assert before == during == outside()
    assert len(finished) == 1


def test_only_the_callers_thread_gets_the_number_and_keeps_it() -> None:
    """Torch applies the process's default at a thread's first parallel operation: here, none."""
    before = torch.get_num_threads(), in_thread(torch.get_num_threads)

    def worker() -> tuple[int, int, int]:
        threads.set_threads_of_this_thread(3)
        first = torch.get_num_threads()
        torch.ones(300, 300).matmul(torch.ones(300, 300))
        torch.ones(1 << 17).exp()
        return first, torch.get_num_threads(), in_thread(torch.get_num_threads)

    assert in_thread(worker) == (3, 3, before[1])
    assert (torch.get_num_threads(), in_thread(torch.get_num_threads)) == before


def test_denormals_are_flushed_in_parallel_operations_too() -> None:
    """Torch's helper threads inherit it, if it is set before the first of them starts."""

    def worker() -> tuple[int, int]:
        threads.flush_denormals_in_this_thread()
        threads.set_threads_of_this_thread(2)
        large = torch.full((1 << 18,), 1e-39)
        return int((large * 0.5).count_nonzero()), torch.get_num_threads()

    assert in_thread(worker) == (0, 2)


def test_a_worker_flushes_denormals_before_anything_parallel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its own thread; a decayed state takes 17 times as long otherwise."""
    calls: list[tuple[str, str]] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *_: calls.append((name, threading.current_thread().name))

    monkeypatch.setattr(device, "flush_denormals_in_this_thread", note("flush"))
    monkeypatch.setattr(device, "set_threads_of_this_thread", note("threads"))
    worker = Rig().device.start_worker(WorkerContext(call_later=lambda delay, call: None))
    worker.stop()
    assert worker.join(5)

    assert calls == [("flush", "tenure-torch"), ("threads", "tenure-torch")]


def test_the_measurement_takes_more_threads_only_where_they_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = {1: 0.010, 2: 0.005, 4: 0.0049}
    asked: list[int] = []

    def timed(work: Callable[[], object], count: int) -> float:
        asked.append(count)
        return speeds[count]

    monkeypatch.setattr(threads, "_timed_beside_a_busy_thread", timed)

    assert in_thread(lambda: threads.measured_thread_count(lambda: None, 16)) == 2
    assert asked == [1, 2, 4]


def test_the_measurement_runs_beside_a_busy_thread() -> None:
    """And it returns soon: an engine's start waits for it."""
    begun, running = time.perf_counter(), 0

    def work() -> None:
        nonlocal running
        running = max(running, threading.active_count())

    before = threading.active_count()
    chosen = in_thread(lambda: threads.measured_thread_count(work, 2))

    assert chosen in (1, 2)
    assert running >= before + 2  # the worker and the busy one
    assert time.perf_counter() - begun < 5
    assert threading.active_count() == before


def test_one_processor_needs_no_measurement() -> None:
    def never() -> None:
        raise AssertionError("measured")

    assert in_thread(lambda: threads.measured_thread_count(never, 1)) == 1


@pytest.mark.parametrize("text", ["two", "0", "-1", "1.5", "²"])
def test_a_thread_count_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Else every step fails for it, and its caller is told to try again."""
    monkeypatch.setenv(threads.THREADS_VARIABLE, text)

    with pytest.raises(ValidationError, match=threads.THREADS_VARIABLE):
        threads.threads_from_environment()


def test_the_environment_may_give_the_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container knows better than a measurement; an empty variable says nothing."""
    monkeypatch.setenv(threads.THREADS_VARIABLE, "3")
    given = threads.threads_from_environment()
    monkeypatch.setenv(threads.THREADS_VARIABLE, "")

    assert (given, threads.threads_from_environment()) == (3, None)
