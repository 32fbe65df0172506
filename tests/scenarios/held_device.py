"""A device whose steps wait until the test lets them go, whatever computes them."""

import threading
from collections import deque
from collections.abc import Callable

import attrs

from adapters.passing_device import PassingDevice, PassingWorker
from kernel.step import DeviceStep, DeviceWorker, StepFault, StepReport, WorkerContext

__all__ = ["HeldDevice"]

Done = Callable[[StepReport], None]


@attrs.define(eq=False)
class _Job:
    worker: DeviceWorker
    step: DeviceStep
    done: Done


@attrs.define(eq=False)
class HeldDevice(PassingDevice):
    """Wraps a device; keeps a record of every step that the kernel has submitted to it."""

    holds: bool = True
    """False: steps pass through."""
    steps: list[DeviceStep] = attrs.field(factory=list[DeviceStep])
    on_submit: Callable[[], None] = lambda: None
    idle: threading.Event = attrs.field(factory=threading.Event)
    """Set when the step that was let go last has been reported; one for each step."""
    _waiting: deque[_Job] = attrs.field(factory=deque[_Job])

    @property
    def waiting(self) -> int:
        """Steps that wait for the test."""
        return len(self._waiting)

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:
        return _HeldWorker(super().start_worker(context), self)

    def release(self) -> None:
        """Let the oldest step be computed."""
        job = self._waiting.popleft()
        self._compute(job.worker, job.step, job.done)

    def fail(self, why: str) -> None:
        """Report the oldest step as failed; its rows were never computed."""
        self._waiting.popleft().done(StepFault(why))

    def open(self) -> None:
        """Let go of all that waits, and hold nothing any more."""
        self.holds = False
        while self._waiting:
            self.release()

    def submit(self, worker: DeviceWorker, step: DeviceStep, done: Done) -> None:
        # A row's page table is lent for the length of the step: the record needs its own.
        rows = [attrs.evolve(row, pages=tuple(row.pages)) for row in step.rows]
        self.steps.append(attrs.evolve(step, rows=rows))
        self.on_submit()
        if self.holds:
            self._waiting.append(_Job(worker, step, done))
        else:
            self._compute(worker, step, done)

    def _compute(self, worker: DeviceWorker, step: DeviceStep, done: Done) -> None:
        self.idle = reported = threading.Event()

        def report(result: StepReport) -> None:
            done(result)
            reported.set()

        worker.submit(step, report)


@attrs.define(eq=False)
class _HeldWorker(PassingWorker):
    _device: HeldDevice

    def submit(self, step: DeviceStep, done: Done, /) -> None:
        self._device.submit(self.worker, step, done)

    def stop(self) -> None:
        self._device.open()
        super().stop()
