"""The fake device's two lanes: steps that compute, and transfers beside them.

A lane knows what is to become of its next steps, and which of them wait for the test.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

import attrs

from adapters.fake_device.workers import (
    FakeWorker,
    Job,
    ManualWorker,
    QueueWorker,
    ThreadWorker,
    TimerWorker,
)
from kernel.step import (
    DeviceStep,
    StepDone,
    StepFault,
    StepReport,
    TransferDone,
    TransferReport,
    TransferStep,
    WorkerContext,
)

__all__ = ["BoundWorker", "Lane", "Mode"]

Mode = Literal["inline", "manual", "thread"]

S = TypeVar("S")
D = TypeVar("D")


@attrs.define(eq=False)
class Lane(Generic[S, D]):
    """Steps of one kind, of all workers of a device."""

    run: Callable[[Job[S, D]], D | StepFault]
    mode: Mode
    delay: float | Callable[[S], float] | None
    workers: list[FakeWorker[S, D]] = attrs.field(factory=list[FakeWorker[S, D]], init=False)
    _planned: deque[StepFault | threading.Event] = attrs.field(
        factory=deque[StepFault | threading.Event], init=False
    )
    _hanging: list[Job[S, D]] = attrs.field(factory=list[Job[S, D]], init=False)

    def start_worker(self, context: WorkerContext) -> FakeWorker[S, D]:
        """A worker for this lane, of the device's mode."""
        worker = self._new_worker(context)
        self.workers.append(worker)
        return worker

    def job(self, step: S, done: Callable[[D | StepFault], None]) -> Job[S, D]:
        """Make a job of a submitted step, with the next planned fault or hang."""
        delay = self.delay
        job: Job[S, D] = Job(step, done, (delay(step) if callable(delay) else delay) or 0.0)
        if self._planned:
            plan = self._planned.popleft()
            if isinstance(plan, StepFault):
                job.fault = plan
            else:
                job.hangs = plan
                self._hanging.append(job)
        return job

    def fail_next(self, fault: StepFault) -> None:
        """Make the next step that has no plan yet fail when it completes."""
        self._planned.append(fault)

    def hang_next(self) -> None:
        """Make the next step that has no plan yet wait for :meth:`unhang`."""
        self._planned.append(threading.Event())

    def unhang(self) -> None:
        """Let all hanging steps complete, however late."""
        hanging, self._hanging = self._hanging, []
        for job in hanging:
            if job.hangs is not None:
                job.hangs.set()
        for worker in self.workers:
            worker.wake()

    @property
    def waiting(self) -> tuple[S, ...]:
        """Mode ``"manual"``: the steps that wait for the test, oldest first."""
        return tuple(job.step for _, job in self._waiting())

    def complete(self, n: int, fault: StepFault | None = None) -> None:
        """Complete the n-th waiting step, or make it fail; raises IndexError when fewer wait."""
        worker, job = self._waiting()[n]
        job.fault = fault or job.fault
        worker.finish(job)

    def _waiting(self) -> list[tuple[ManualWorker[S, D], Job[S, D]]]:
        return [
            (worker, job)
            for worker in self.workers
            if isinstance(worker, ManualWorker)
            for job in worker.jobs
            if not job.is_hanging
        ]

    def _new_worker(self, context: WorkerContext) -> FakeWorker[S, D]:
        if self.mode == "thread":
            return ThreadWorker(self.run)
        if self.mode == "manual":
            return ManualWorker(self.run)
        if self.delay is None:
            return QueueWorker(self.run)
        return TimerWorker(self.run, context=context)


@attrs.define(eq=False)
class BoundWorker:
    """The fake device's :class:`kernel.step.DeviceWorker`: one of each lane."""

    _context: WorkerContext
    _step_lane: Lane[DeviceStep, StepDone]
    _transfer_lane: Lane[TransferStep, TransferDone]
    _steps: FakeWorker[DeviceStep, StepDone] = attrs.field(init=False)
    _transfers: FakeWorker[TransferStep, TransferDone] | None = attrs.field(
        default=None, init=False
    )
    """Made at the first transfer."""
    _is_stopped: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._steps = self._step_lane.start_worker(self._context)

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self._steps.enqueue(self._step_lane.job(step, done))

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        if self._transfers is None:
            self._transfers = self._transfer_lane.start_worker(self._context)
            if self._is_stopped:
                self._transfers.stop()
        self._transfers.enqueue(self._transfer_lane.job(step, done))

    def stop(self) -> None:
        self._is_stopped = True
        self._steps.stop()
        if self._transfers is not None:
            self._transfers.stop()

    def join(self, timeout_s: float, /) -> bool:
        begun = time.monotonic()
        has_ended = self._steps.join(timeout_s)
        if self._transfers is None:
            return has_ended
        left_s = max(0.0, timeout_s - (time.monotonic() - begun))
        return self._transfers.join(left_s) and has_ended
