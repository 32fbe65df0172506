"""A store whose every job waits until the explorer lets it end: done on its disk, or refused.

What it holds, and how it answers, is the simulation's model of a store.
"""

from collections.abc import Callable, Sequence

import attrs

from kernel.session_store import (
    KeepFacts,
    KeepTurn,
    RemoveSession,
    StoreFault,
    StoreJob,
    StoreReport,
    StoreUsage,
)
from kernel.testing.simulation.disk import Disk

__all__ = ["HeldJob", "HeldStore"]


@attrs.define(eq=False)
class HeldJob:
    """A job that the store has and that has not ended."""

    job: StoreJob
    done: Callable[[StoreReport], None]


@attrs.define(eq=False)
class HeldStore:
    """The store of an explored engine; see :class:`kernel.session_store.StoreWorker`.

    It outlives its actor, and does its jobs in order. The disk outlives the engine.
    """

    disk: Disk = attrs.field(factory=Disk)
    jobs: list[HeldJob] = attrs.field(factory=list[HeldJob])
    is_stopped: bool = False

    def submit(self, job: StoreJob, done: Callable[[StoreReport], None], /) -> None:
        if self.is_stopped:
            done(StoreFault("the store is closed", "stopped"))
        else:
            self.jobs.append(HeldJob(job, done))

    def end(self, is_done: bool) -> tuple[StoreJob, StoreReport]:
        """Do the next job, or say that it can't be done; its report is posted before this ends."""
        held = self.jobs.pop(0)
        report = self.disk.do(held.job) if is_done else StoreFault("no space is left", "full")
        held.done(report)
        return held.job, report

    def holds(self, session_id: str, /) -> bool:
        is_kept = session_id in self.disk.sessions
        for held in self.jobs:
            if held.job.session_id == session_id:
                is_kept |= isinstance(held.job, KeepTurn | KeepFacts)
                is_kept &= not isinstance(held.job, RemoveSession)
        return is_kept

    def session_ids(self) -> Sequence[str]:
        return sorted(self.disk.sessions)

    def usage(self) -> StoreUsage:
        return self.disk.usage()

    def stop(self) -> None:
        self.is_stopped = True

    def join(self, timeout_s: float, /) -> bool:
        """It ends after the jobs that are queued."""
        del timeout_s
        while self.jobs:
            self.end(is_done=True)
        return True
