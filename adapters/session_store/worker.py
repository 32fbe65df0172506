"""One thread that does the jobs of a store, as many in one commit as have gathered.

While a commit waits for the disk, the next jobs queue up; they share the next commit. So a lone
turn waits for one sync of the disk, and a thousand at once don't wait for a thousand of them.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

import attrs

from adapters.polite_thread import PoliteThread, tell_fault
from adapters.session_store.database import DatabaseFault
from adapters.session_store.names import Names
from adapters.session_store.transaction import Committer, is_read
from kernel.session_store import KeepState, StoreFault, StoreJob, StoreReport, StoreUsage

__all__ = ["SqliteStore"]

MAX_JOBS = 1024
"""Most jobs of one commit."""
MAX_IMAGE_BYTES = 64 << 20
"""Images of one commit end with the one that reaches this: turns behind it don't wait for more."""

Done = Callable[[StoreReport], None]


@attrs.frozen(eq=False)
class _Queued:
    number: int
    job: StoreJob
    done: Done


class SqliteStore:
    """A :class:`kernel.session_store.StoreWorker` over one open database.

    Args:
        committer: does the jobs; from now on, in this store's thread only.
        names: of the sessions that the store has.
    """

    def __init__(self, committer: Committer, names: Names) -> None:
        self._committer = committer
        self._names = names
        self._usage = committer.tables.usage
        self._changed = threading.Condition()
        self._queue: deque[_Queued] = deque()
        self._number = 0
        self._is_stopping = False
        self._thread = PoliteThread(self._work, name="tenure-store", stop=self.stop)

    def submit(self, job: StoreJob, done: Done, /) -> None:
        """Queue a job; ``done`` is called once, from the store's thread, or here if it stops."""
        with self._changed:
            if not self._is_stopping:
                self._number += 1
                self._names.queued(self._number, job)
                self._queue.append(_Queued(self._number, job, done))
                self._changed.notify()
                return
        done(StoreFault("the store is stopped; the job was not done", "stopped"))

    def holds(self, session_id: str, /) -> bool:
        """Whether a session is kept, or will be when the jobs that are queued are done."""
        return session_id in self._names

    def session_ids(self) -> Sequence[str]:
        """All sessions that are kept, in order of their names; a list of all, made anew."""
        return self._names.listed()

    def usage(self) -> StoreUsage:
        """Counts as of the last commit."""
        return self._usage

    def stop(self) -> None:
        """End after the jobs that are queued. Idempotent."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def join(self, timeout_s: float, /) -> bool:
        """Wait until the store is closed; False if it is not at the deadline."""
        return self._thread.join(timeout_s)

    def _work(self) -> None:
        try:
            while batch := self._next():
                self._run(batch)
                del batch  # else its images live on while the thread waits
        finally:
            self._names.close()
            try:
                self._committer.close()
            except DatabaseFault:
                tell_fault()

    def _next(self) -> list[_Queued]:
        """The jobs of the next commit; reads that are first in line need none and go alone."""
        batch = list[_Queued]()
        image_bytes = 0
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_stopping)
            while self._queue and len(batch) < MAX_JOBS and image_bytes < MAX_IMAGE_BYTES:
                job = self._queue[0].job
                if batch and is_read(batch[0].job):
                    break
                if isinstance(job, KeepState):
                    image_bytes += job.image.nbytes
                batch.append(self._queue.popleft())
        return batch

    def _run(self, batch: Sequence[_Queued]) -> None:
        try:
            reports = self._committer.run([queued.job for queued in batch])
        except BaseException as error:  # a bug; it must not cost anyone the report
            fault = StoreFault(f"{type(error).__name__}: {error}", "failed", error)
            reports = [fault for _ in batch]
        self._usage = self._committer.tables.usage
        for queued, report in zip(batch, reports, strict=True):
            self._report(queued, report)

    def _report(self, queued: _Queued, report: StoreReport) -> None:
        try:
            self._names.reported(queued.number, queued.job, report)
        except BaseException:
            tell_fault()  # memory ran out; what is noted of the queue says the same
        try:
            queued.done(report)
        except BaseException:
            tell_fault()  # the caller's; the others get their reports
