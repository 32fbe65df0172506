"""The worker's second thread: transfers beside the steps, each reported once, whatever happens."""

import gc
import queue
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from adapters.torch_device.worker import RunStep, RunTransfer, ThreadWorker
from kernel.state_image import StateImage
from kernel.step import DeviceStep, StepDone, StepFault, TransferDone, TransferStep

WAIT_S = 5.0
Reports = queue.SimpleQueue[object]


def transfer(number: int) -> TransferStep:
    return TransferStep(step=number, rows=())


def nothing(step: DeviceStep) -> tuple[None, ...]:
    return ()


def no_images(step: TransferStep) -> tuple[None, ...]:
    return ()


Start = Callable[[RunStep, Callable[[], RunTransfer]], ThreadWorker]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start workers that are stopped at the end, whatever the test does."""
    workers: list[ThreadWorker] = []

    def begin(run: RunStep, prepare: Callable[[], RunTransfer]) -> ThreadWorker:
        worker = ThreadWorker(lambda: run, prepare_transfers=prepare, name="tenure-test")
        workers.append(worker)
        return worker

    yield begin
    for worker in workers:
        worker.stop()
        assert worker.join(WAIT_S)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("tenure-test")]


def test_the_second_thread_starts_with_the_first_transfer(start: Start) -> None:
    """Most engines never need it."""
    reports: Reports = queue.SimpleQueue()
    worker = start(nothing, lambda: no_images)
    assert threads() == ["tenure-test"]

    worker.transfer(transfer(1), reports.put)

    report = reports.get(timeout=WAIT_S)
    assert isinstance(report, TransferDone)
    assert 0 < report.copy_s < WAIT_S
    assert sorted(threads()) == ["tenure-test", "tenure-test-transfers"]


def test_neither_a_step_nor_a_transfer_waits_for_the_other(start: Start) -> None:
    """A step that hangs holds no copy up, and the other way round."""
    go: dict[str, threading.Event] = {"step": threading.Event(), "copy": threading.Event()}
    steps: Reports = queue.SimpleQueue()
    copies: Reports = queue.SimpleQueue()

    def run(step: DeviceStep) -> tuple[None, ...]:
        assert go["step"].wait(WAIT_S) or step.step
        return ()

    def copy(step: TransferStep) -> tuple[None, ...]:
        assert go["copy"].wait(WAIT_S) or step.step
        return ()

    worker = start(run, lambda: copy)
    worker.submit(DeviceStep(0, ()), steps.put)
    go["copy"].set()
    worker.transfer(transfer(0), copies.put)
    assert isinstance(copies.get(timeout=WAIT_S), TransferDone)
    assert steps.empty()

    go["copy"].clear()
    worker.transfer(transfer(0), copies.put)
    go["step"].set()
    assert isinstance(steps.get(timeout=WAIT_S), StepDone)
    assert copies.empty()
    go["copy"].set()
    assert isinstance(copies.get(timeout=WAIT_S), TransferDone)


def test_transfers_run_in_order_and_an_error_costs_its_own_alone(start: Start) -> None:
    """As with steps."""
    reports: Reports = queue.SimpleQueue()
    ran: list[int] = []

    def copy(step: TransferStep) -> tuple[StateImage | None, ...]:
        ran.append(step.step)
        if step.step == 1:
            raise MemoryError("no room for the image")
        return (StateImage(step.step, {}),)

    worker = start(nothing, lambda: copy)
    for number in (1, 2, 3):
        worker.transfer(transfer(number), reports.put)
    fault, second, third = (reports.get(timeout=WAIT_S) for _ in range(3))

    assert ran == [1, 2, 3]
    assert isinstance(fault, StepFault)
    assert fault.why == "MemoryError: no room for the image"
    positions = [
        image.position
        for done in (second, third)
        if isinstance(done, TransferDone)
        for image in done.images
        if image is not None
    ]
    assert positions == [2, 3]


def test_a_thread_that_cannot_prepare_fails_every_transfer_and_no_step(start: Start) -> None:
    """Else the first one would wait for ever."""

    def prepare() -> RunTransfer:
        raise OSError("no pinned memory")

    reports: Reports = queue.SimpleQueue()
    worker = start(nothing, prepare)
    worker.transfer(transfer(1), reports.put)
    fault = reports.get(timeout=WAIT_S)
    worker.submit(DeviceStep(2, ()), reports.put)

    assert isinstance(fault, StepFault)
    assert "no pinned memory" in fault.why
    assert isinstance(reports.get(timeout=WAIT_S), StepDone)


def test_stop_ends_both_threads_and_answers_what_is_queued(start: Start) -> None:
    """A transfer that runs ends first; join waits for it."""
    entered, go = threading.Event(), threading.Event()
    reports: Reports = queue.SimpleQueue()

    def copy(step: TransferStep) -> tuple[None, ...]:
        entered.set()
        assert go.wait(WAIT_S)
        return ()

    worker = start(nothing, lambda: copy)
    worker.transfer(transfer(1), reports.put)
    worker.transfer(transfer(2), reports.put)
    assert entered.wait(WAIT_S)
    worker.stop()
    worker.stop()
    assert not worker.join(0.01)
    go.set()

    kinds = [type(reports.get(timeout=WAIT_S)) for _ in range(2)]
    assert kinds == [TransferDone, StepFault]
    assert worker.join(WAIT_S)
    assert threads() == []


@pytest.mark.parametrize("before", [False, True], ids=["never one", "one before"])
def test_a_transfer_after_stop_is_answered_and_leaves_no_thread(start: Start, before: bool) -> None:
    """Also the first one of all."""
    reports: Reports = queue.SimpleQueue()
    worker = start(nothing, lambda: no_images)
    if before:
        worker.transfer(transfer(0), reports.put)
        reports.get(timeout=WAIT_S)
    worker.stop()

    worker.transfer(transfer(7), reports.put)

    fault = reports.get(timeout=WAIT_S)
    assert isinstance(fault, StepFault)
    assert "stopping before it began" in fault.why
    assert worker.join(WAIT_S)
    assert threads() == []


def test_a_worker_made_without_transfers_says_so() -> None:
    """For devices that are stepped by hand."""
    reports: Reports = queue.SimpleQueue()
    worker = ThreadWorker(lambda: nothing)
    worker.transfer(transfer(1), reports.put)
    fault = reports.get(timeout=WAIT_S)
    worker.stop()

    assert isinstance(fault, StepFault)
    assert "without transfers" in fault.why
    assert worker.join(WAIT_S)


def test_an_image_does_not_outlive_its_report_in_the_thread(start: Start) -> None:
    """It may be gigabytes; the thread waits long for the next transfer."""
    images: list[weakref.ref[StateImage]] = []
    told = threading.Event()

    def copy(step: TransferStep) -> tuple[StateImage | None, ...]:
        image = StateImage(1, {})
        images.append(weakref.ref(image))
        return (image,)

    worker = start(nothing, lambda: copy)
    worker.transfer(transfer(1), lambda _report: told.set())
    assert told.wait(WAIT_S)
    again = threading.Event()
    worker.submit(DeviceStep(1, ()), lambda _report: again.set())
    assert again.wait(WAIT_S)
    for _ in range(100):
        gc.collect()
        if images[0]() is None:
            break
        again.wait(0.01)
        again.clear()

    assert images[0]() is None
