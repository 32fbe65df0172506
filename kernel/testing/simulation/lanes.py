"""What a simulated worker runs one after another, each in its own virtual time."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

from kernel.step import StepFault
from kernel.testing.simulation.timeline import Timeline

__all__ = ["Job", "Lane"]

S = TypeVar("S")
"""A step, or a transfer."""
D = TypeVar("D")
"""What it comes to, unless it fails."""


@attrs.define(eq=False)
class Job(Generic[S, D]):
    """One that was submitted, and what becomes of it."""

    step: S
    done: Callable[[D | StepFault], None]
    fate: str
    delay_s: float
    due_at: float = 0.0


@attrs.define(eq=False)
class Lane(Generic[S, D]):
    """Steps or transfers of one worker; they never wait for those of another lane."""

    timeline: Timeline
    compute: Callable[[Job[S, D]], None]
    """Called when a job is due."""
    jobs: deque[Job[S, D]] = attrs.field(factory=deque[Job[S, D]])
    """The first one runs."""
    _is_stopped: bool = attrs.field(default=False, init=False)

    def submit(self, plan: Callable[[], Job[S, D]], done: Callable[[StepFault], None]) -> None:
        """Queue a job; its fate is drawn here, unless the lane has stopped."""
        if self._is_stopped:
            done(StepFault("the worker was stopped before the step began"))
            return
        self.jobs.append(plan())
        if len(self.jobs) == 1:
            self._begin()

    def stop(self) -> None:
        """End after the job that runs."""
        self._is_stopped = True
        while len(self.jobs) > 1:
            self.jobs.pop().done(StepFault("the worker was stopped before the step began"))

    def join(self, timeout_s: float) -> bool:
        """Wait, which is to let time pass."""
        while self.jobs:
            left_s = max(0.0, self.jobs[0].due_at - self.timeline.now())
            if left_s > timeout_s:
                self.timeline.advance(timeout_s)
                return False
            self.timeline.advance(left_s)
            timeout_s -= left_s
            self._finish(self.jobs[0])
        return True

    def hurry(self) -> None:
        """Finish what runs now, and let what is queued take no time."""
        for job in self.jobs:
            job.delay_s = 0.0
        if self.jobs:
            self._finish(self.jobs[0])

    def _begin(self) -> None:
        job = self.jobs[0]
        job.due_at = self.timeline.now() + job.delay_s
        if job.delay_s:
            self.timeline.later(job.delay_s, lambda: self._finish(job))
        else:
            self._finish(job)

    def _finish(self, job: Job[S, D]) -> None:
        if not self.jobs or self.jobs[0] is not job:
            return
        self.compute(job)
        self.jobs.popleft()
        if self.jobs:
            self._begin()
