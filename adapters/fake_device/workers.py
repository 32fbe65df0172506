"""Ways to complete the fake device's steps: at once, after a delay, by hand, or in a thread.

A step is computed when it completes, not when it is submitted, and always in the order of
submission: memory that is given back too early would be seen. Only reports may come out of order
(by hand), as they may from a device that runs several steps deep. What is said of steps here holds
for transfers as well: a worker has one of these for each.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import attrs

from adapters.polite_thread import tell_fault
from kernel.step import StepFault, WorkerContext

__all__ = [
    "FakeWorker",
    "Job",
    "ManualWorker",
    "QueueWorker",
    "ThreadWorker",
    "TimerWorker",
]

S = TypeVar("S")
"""A step."""
D = TypeVar("D")
"""What a step comes to that has not failed."""


@attrs.define(eq=False)
class Job(Generic[S, D]):
    """A submitted step that has not been reported."""

    step: S
    done: Callable[[D | StepFault], None]
    delay_s: float = 0.0
    fault: StepFault | None = None
    """What the step fails with, instead of being computed."""
    hangs: threading.Event | None = None
    """Set when the step may go on; ``None``: it does not hang."""
    report: D | StepFault | None = None
    """Result of a step that was computed and is not to be reported yet."""

    @property
    def is_hanging(self) -> bool:
        return self.hangs is not None and not self.hangs.is_set()

    def compute(self, run: "Callable[[Job[S, D]], D | StepFault]") -> D | StepFault:
        """Compute once."""
        if self.report is None:
            self.report = run(self)
        return self.report


class FakeWorker(Protocol[S, D]):
    """What the fake device asks of each of its kinds of workers."""

    def enqueue(self, job: Job[S, D]) -> None: ...

    def wake(self) -> None:
        """Go on after a hanging job was released."""
        ...

    def stop(self) -> None: ...

    def join(self, timeout_s: float, /) -> bool: ...


_STOPPED = StepFault("the worker was stopped before the step began")


@attrs.define(eq=False)
class QueueWorker(Generic[S, D]):
    """Completes each step inside ``submit``, unless one hangs: then all wait behind it."""

    run: Callable[[Job[S, D]], D | StepFault]
    """Computes a step, or makes it fail; never raises."""
    jobs: list[Job[S, D]] = attrs.field(factory=list[Job[S, D]])
    """In order of submission; the first one runs."""
    _is_stopped: bool = attrs.field(default=False, init=False)

    def enqueue(self, job: Job[S, D]) -> None:
        if self._is_stopped:
            job.done(_STOPPED)
            return
        self.jobs.append(job)
        if len(self.jobs) == 1:
            self.wake()

    def wake(self) -> None:
        while self.jobs and not self.jobs[0].is_hanging:
            self.finish(self.jobs[0])

    def finish(self, job: Job[S, D]) -> None:
        """Report a job, after all that were submitted before it have been computed."""
        place = self.jobs.index(job)
        for earlier in self.jobs[:place]:
            earlier.compute(self.run)
        report = job.compute(self.run)
        del self.jobs[place]
        job.done(report)

    def stop(self) -> None:
        self._is_stopped = True
        queued = self.jobs[1:]
        del self.jobs[1:]
        for job in queued:
            job.done(job.report or _STOPPED)

    def join(self, timeout_s: float, /) -> bool:
        """False while a step hangs or waits for the test."""
        del timeout_s  # steps end on the thread that would block here
        return not self.jobs


@attrs.define(eq=False)
class TimerWorker(QueueWorker[S, D]):
    """Completes each step after its delay, by a timer on the engine's clock."""

    context: WorkerContext = attrs.field(kw_only=True)

    def wake(self) -> None:
        if not self.jobs or self.jobs[0].is_hanging:
            return
        job = self.jobs[0]
        self.context.call_later(job.delay_s, lambda: self._on_timer(job))

    def _on_timer(self, job: Job[S, D]) -> None:
        if job in self.jobs:
            self.finish(job)
            self.wake()

    def join(self, timeout_s: float, /) -> bool:
        """Let the running step end now."""
        del timeout_s  # timers fire on the thread that would block here
        if self.jobs and not self.jobs[0].is_hanging:
            self.finish(self.jobs[0])
        return not self.jobs


@attrs.define(eq=False)
class ManualWorker(QueueWorker[S, D]):
    """Holds each step until the test completes it or makes it fail."""

    def wake(self) -> None:
        """Nothing happens by itself."""


@attrs.define(eq=False)
class ThreadWorker(Generic[S, D]):
    """Runs the steps one after another in a thread of its own; delays are real seconds."""

    run: Callable[[Job[S, D]], D | StepFault]
    """Computes a step, or makes it fail; never raises."""
    jobs: list[Job[S, D]] = attrs.field(factory=list[Job[S, D]])
    """In order of submission; the first one runs. Guarded by the condition."""
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _is_stopped: bool = attrs.field(default=False, init=False)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # A daemon, and no polite one: where a test leaves a step hanging, the end of the
        # interpreter would wait for it.
        self._thread = threading.Thread(target=self._work, name="fake-device", daemon=True)
        self._thread.start()

    def enqueue(self, job: Job[S, D]) -> None:
        with self._changed:
            if not self._is_stopped:
                self.jobs.append(job)
                self._changed.notify()
                return
        job.done(_STOPPED)

    def wake(self) -> None:
        """The thread waits on the job's own event."""

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            queued = self.jobs[1:]
            del self.jobs[1:]
            self._changed.notify()
        for job in queued:
            job.done(_STOPPED)

    def join(self, timeout_s: float, /) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if job.hangs is not None:
                job.hangs.wait()
            if job.delay_s:
                time.sleep(job.delay_s)
            report = job.compute(self.run)
            with self._changed:
                del self.jobs[0]
            try:
                job.done(report)
            except BaseException:
                tell_fault()  # the caller's; the steps that follow get their reports

    def _next(self) -> Job[S, D] | None:
        with self._changed:
            self._changed.wait_for(lambda: self.jobs or self._is_stopped)
            return self.jobs[0] if self.jobs else None
