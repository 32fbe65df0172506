"""Many jobs, one commit: each in a savepoint of its own, so that one that fails fails alone.

A full disk shows itself when the whole is committed. Then every job is tried again in a
transaction of its own: the small ones may fit, and none pays for its neighbour.
"""

from collections.abc import Sequence
from contextlib import suppress

import attrs

from adapters.session_store.database import DatabaseFault
from adapters.session_store.logs import Logs
from adapters.session_store.names import is_name
from adapters.session_store.refusals import is_full
from adapters.session_store.room import Room
from adapters.session_store.rows import TOKEN_BYTES
from adapters.session_store.snapshots import FileChanges, Snapshots
from adapters.session_store.tables import JobRefused, Tables, Totals
from kernel.session_store import (
    CutLog,
    DropState,
    KeepFacts,
    KeepState,
    KeepTurn,
    Kept,
    ReadSession,
    ReadState,
    RemoveSession,
    StoreFault,
    StoreJob,
    StoreReport,
)

__all__ = ["Committer", "is_read"]


def is_read(job: StoreJob) -> bool:
    """Whether a job changes nothing, and so needs no commit."""
    return isinstance(job, ReadSession | ReadState)


class _TransactionLost(Exception):
    """The transaction that the jobs share was rolled back."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(str(cause))


@attrs.define(eq=False)
class Committer:
    """Does jobs on the tables; after each call nothing is open or half done."""

    tables: Tables
    logs: Logs
    snapshots: Snapshots
    room: Room

    def run(self, jobs: Sequence[StoreJob]) -> list[StoreReport]:
        """Do the jobs in order, and make all that succeed durable at once."""
        if all(is_read(job) for job in jobs):
            return [self._attempt(job) for job in jobs]
        try:
            return self._together(jobs)
        except _TransactionLost as lost:
            if len(jobs) == 1:
                return [_fault_of(lost.cause)]
        return [report for job in jobs for report in self.run([job])]

    def close(self) -> None:
        """Close the database, after what is still to be written.

        Raises:
            DatabaseFault: it can't be closed in good order; what was reported is in its journal.
        """
        try:
            if self.snapshots.has_ticks:
                self._together([])
        except _TransactionLost as lost:
            raise lost.cause from lost
        finally:
            self.tables.database.close()

    def _together(self, jobs: Sequence[StoreJob]) -> list[StoreReport]:
        before = self.tables.totals
        try:
            self.tables.database.execute("BEGIN IMMEDIATE")
            self.room.look()
            self.snapshots.flush_ticks()
            reports = [self._in_savepoint(job) for job in jobs]
            self.tables.save_totals()
            self.tables.database.execute("COMMIT")
        except BaseException as error:
            self._roll_back(before)
            if isinstance(error, DatabaseFault):
                raise _TransactionLost(error) from error
            raise
        self.tables.committed()
        self.snapshots.committed()
        return reports

    def _roll_back(self, totals: Totals) -> None:
        # SQLite itself rolls back when the disk is full or fails, but not always.
        if self.tables.database.in_transaction:
            with suppress(DatabaseFault):
                self.tables.database.execute("ROLLBACK")
        self.tables.totals = totals
        self.snapshots.rolled_back(FileChanges())

    def _in_savepoint(self, job: StoreJob) -> StoreReport:
        database, totals, changes = self.tables.database, self.tables.totals, self.snapshots.changes
        database.execute("SAVEPOINT job")
        report = self._attempt(job)
        if isinstance(report, StoreFault):
            if not database.in_transaction and isinstance(report.error, Exception):
                raise _TransactionLost(report.error)
            database.execute("ROLLBACK TO job")
            self.tables.totals = totals
            self.snapshots.rolled_back(changes)
        database.execute("RELEASE job")
        return report

    def _attempt(self, job: StoreJob) -> StoreReport:
        try:
            return self._do(job)
        except Exception as error:
            return _fault_of(error)

    def _do(self, job: StoreJob) -> StoreReport:
        if not is_name(job.session_id):
            raise JobRefused(f"{job.session_id!r} is no name that can be kept", "refused")
        match job:
            case KeepTurn():
                self.room.take_rows(TOKEN_BYTES * len(job.turn.tokens))
                self.logs.keep_turn(job)
            case CutLog():
                self.logs.cut(job)
            case KeepFacts():
                self.room.take_rows(0)
                self.logs.keep_facts(job)
            case KeepState():
                self._keep_state(job)
            case DropState():
                number = self.tables.find(job.session_id)
                if number is not None:
                    self.snapshots.drop(number)
            case RemoveSession():
                self.logs.remove(job)
            case ReadSession():
                return self.logs.read(job)
            case ReadState():
                number = self.tables.number_of(job.session_id)
                return self.snapshots.read(job.session_id, number)
        return Kept()

    def _keep_state(self, job: KeepState) -> None:
        number = self.tables.number_of(job.session_id)
        length = self.logs.length(number)
        if not 1 <= job.image.position < length:
            raise JobRefused(
                f"a snapshot at position {job.image.position} needs a longer log: session"
                f" {job.session_id!r} has {length} tokens",
                "refused",
            )
        size, room = job.image.nbytes, self.room
        take = room.take_file if self.snapshots.has_file(size) else room.take_rows
        take(size)
        self.snapshots.keep(job.session_id, number, job.image)


def _fault_of(error: Exception) -> StoreFault:
    match error:
        case JobRefused():
            return StoreFault(error.why, error.reason, error)
        case DatabaseFault():
            reason = "failed" if error.reason == "in_use" else error.reason
            return StoreFault(f"the store's database says: {error.why}", reason, error)
        case OSError() if is_full(error):
            return StoreFault(f"the store's disk is full: {error}", "full", error)
        case OSError():
            return StoreFault(f"a file of the store failed: {error}", "failed", error)
        case _:
            return StoreFault(f"{type(error).__name__}: {error}", "failed", error)
