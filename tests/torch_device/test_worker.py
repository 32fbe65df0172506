"""The worker's thread: each step is reported once, whatever goes wrong."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from adapters.torch_device.worker import ThreadWorker
from kernel.step import DeviceStep, RowOutcome, StepDone, StepFault, StepReport

Tokens = tuple[RowOutcome, ...]
RunStep = Callable[[DeviceStep], Tokens]
IsLost = Callable[[BaseException], bool]
WAIT_S = 5.0


def step(number: int) -> DeviceStep:
    return DeviceStep(step=number, rows=[])


def nothing(step: DeviceStep) -> Tokens:
    return ()


def tokens_of(report: StepReport) -> Tokens:
    assert isinstance(report, StepDone)
    return report.tokens


class Reports:
    """Collects what workers report."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[tuple[int, StepReport]] = queue.SimpleQueue()

    def done(self, number: int) -> Callable[[StepReport], None]:
        return lambda report: self.queue.put((number, report))

    def next(self) -> tuple[int, StepReport]:
        return self.queue.get(timeout=WAIT_S)


@pytest.fixture
def reports() -> Reports:
    return Reports()


def never_lost(error: BaseException) -> bool:
    return False


class Start(Protocol):
    def __call__(self, run: RunStep, is_lost: IsLost = ...) -> ThreadWorker: ...


@pytest.fixture
def start() -> Iterator[Start]:
    """Start workers that are stopped at the end, whatever the test does."""
    workers: list[ThreadWorker] = []

    def begin(run: RunStep, is_lost: IsLost = never_lost) -> ThreadWorker:
        worker = ThreadWorker(lambda: run, is_lost=is_lost)
        workers.append(worker)
        return worker

    yield begin
    for worker in workers:
        worker.stop()
        assert worker.join(WAIT_S)


def test_steps_run_in_order_off_the_callers_thread(start: Start, reports: Reports) -> None:
    threads: list[threading.Thread] = []

    def run(step: DeviceStep) -> Tokens:
        threads.append(threading.current_thread())
        return (step.step,)

    worker = start(run)
    for number in range(20):
        worker.submit(step(number), reports.done(number))
    found = [reports.next() for _ in range(20)]

    assert [number for number, _ in found] == list(range(20))
    assert [r.tokens for _, r in found if isinstance(r, StepDone)] == [(n,) for n in range(20)]
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


def test_an_error_is_reported_and_the_next_step_runs(start: Start, reports: Reports) -> None:
    def run(step: DeviceStep) -> Tokens:
        if step.step == 0:
            raise SystemExit("not even this ends the thread")
        return (None,)

    worker = start(run)
    worker.submit(step(0), reports.done(0))
    worker.submit(step(1), reports.done(1))
    _, fault = reports.next()

    assert isinstance(fault, StepFault)
    assert fault.why == "SystemExit: not even this ends the thread"
    assert isinstance(fault.error, SystemExit)
    assert not fault.device_lost
    assert tokens_of(reports.next()[1]) == (None,)


def test_a_lost_device_is_said_so(start: Start, reports: Reports) -> None:
    def run(step: DeviceStep) -> Tokens:
        raise OSError("gone")

    def is_lost(error: BaseException) -> bool:
        return isinstance(error, OSError)

    worker = start(run, is_lost)
    worker.submit(step(0), reports.done(0))

    _, fault = reports.next()
    assert isinstance(fault, StepFault)
    assert fault.device_lost


def test_a_worker_that_cannot_prepare_fails_every_step(reports: Reports) -> None:
    """Else the first step would wait for ever."""

    def prepare() -> RunStep:
        raise ValueError("no such thread count")

    worker = ThreadWorker(prepare)
    worker.submit(step(0), reports.done(0))
    worker.submit(step(1), reports.done(1))

    for _, report in (reports.next(), reports.next()):
        assert isinstance(report, StepFault)
        assert "no such thread count" in report.why
    worker.stop()
    assert worker.join(WAIT_S)


def test_stop_lets_the_running_step_finish_and_fails_the_queued_ones(
    start: Start, reports: Reports
) -> None:
    entered, go = threading.Event(), threading.Event()

    def run(step: DeviceStep) -> Tokens:
        entered.set()
        assert go.wait(WAIT_S)
        return ()

    worker = start(run)
    for number in range(3):
        worker.submit(step(number), reports.done(number))
    assert entered.wait(WAIT_S)
    worker.stop()
    worker.stop()
    still_runs = not worker.join(0.01)
    go.set()
    found = dict(reports.next() for _ in range(3))

    assert still_runs
    assert worker.join(WAIT_S)
    assert isinstance(found[0], StepDone)
    assert isinstance(found[1], StepFault)
    assert isinstance(found[2], StepFault)
    assert reports.queue.empty()


def test_a_step_submitted_after_stop_is_reported_as_failed(start: Start, reports: Reports) -> None:
    worker = start(nothing)
    worker.stop()
    assert worker.join(WAIT_S)

    worker.submit(step(7), reports.done(7))

    number, report = reports.next()
    assert number == 7
    assert isinstance(report, StepFault)
    assert "stopping" in report.why


def test_submits_racing_with_stop_are_each_reported_once(start: Start, reports: Reports) -> None:
    """A step that slipped behind the end mark would never be answered."""
    worker = start(nothing)
    total, per_thread = 400, 100

    def submit(first: int) -> None:
        for number in range(first, first + per_thread):
            worker.submit(step(number), reports.done(number))

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(0, total, per_thread)]
    for thread in threads:
        thread.start()
    worker.stop()
    for thread in threads:
        thread.join()
    assert worker.join(WAIT_S)

    assert sorted(reports.next()[0] for _ in range(total)) == list(range(total))
    assert reports.queue.empty()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_raises_does_not_cost_the_next_report(
    start: Start, reports: Reports
) -> None:
    """Nor is its error lost: it goes where a thread's unhandled errors go."""

    def broken(report: StepReport) -> None:
        raise KeyError("the caller's mistake")

    worker = start(nothing)
    worker.submit(step(0), broken)
    worker.submit(step(1), reports.done(1))

    number, report = reports.next()
    assert (number, tokens_of(report)) == (1, ())
