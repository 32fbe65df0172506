"""Which sessions there are, answered without waiting for the disk, in a few bytes each.

The store's own database can't be asked on the event loop: its connection is held while a commit
waits for the disk. So the names alone are kept once more, in a database in memory, which takes a
third of the room of a set of strings and lists them in order.
"""

import threading
from collections.abc import Sequence

import attrs

from adapters.session_store.database import Database, SqliteDatabase
from kernel.session_store import KeepFacts, KeepTurn, Kept, RemoveSession, StoreJob, StoreReport

__all__ = ["Names", "is_name"]

_READ_AT_ONCE = 4000


def is_name(session_id: str) -> bool:
    """Whether a session can be kept under this name: text, and some of it."""
    try:
        return bool(session_id.encode())
    except UnicodeEncodeError:
        return False


def _table() -> SqliteDatabase:
    database = SqliteDatabase(":memory:")
    database.execute("CREATE TABLE names (name TEXT PRIMARY KEY) WITHOUT ROWID")
    return database


@attrs.define(eq=False)
class Names:
    """The names of the sessions that are kept, and what the queued jobs will make of them."""

    _database: SqliteDatabase | None = attrs.field(factory=_table, init=False)
    """``None`` once the store is closed; then no session is known."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _queued: dict[str, tuple[int, bool]] = attrs.field(
        factory=dict[str, tuple[int, bool]], init=False
    )
    """The last queued job that opens or removes a session: its number, and whether it opens."""

    def load(self, store: Database) -> None:
        """Read all names of a store, a few at a time."""
        last = ""
        while rows := store.execute(
            "SELECT name FROM sessions WHERE name > ? ORDER BY name LIMIT ?", (last, _READ_AT_ONCE)
        ):
            if self._database is not None:
                self._database.execute_many("INSERT INTO names VALUES (?)", rows)
            last = rows[-1][0]

    def queued(self, number: int, job: StoreJob) -> None:
        """A job was queued; it will be done, unless it fails."""
        opens = isinstance(job, KeepTurn | KeepFacts)
        if opens or isinstance(job, RemoveSession):
            with self._lock:
                self._queued[job.session_id] = number, opens

    def reported(self, number: int, job: StoreJob, report: StoreReport) -> None:
        """A queued job was done, or not."""
        opens = isinstance(job, KeepTurn | KeepFacts)
        if not opens and not isinstance(job, RemoveSession):
            return
        with self._lock:
            if isinstance(report, Kept):
                change = "INSERT OR IGNORE INTO names VALUES (?)"
                removal = "DELETE FROM names WHERE name = ?"
                self._execute(change if opens else removal, job.session_id)
            if self._queued[job.session_id][0] == number:
                del self._queued[job.session_id]

    def __contains__(self, session_id: str) -> bool:
        with self._lock:
            queued = self._queued.get(session_id)
            if queued is not None:
                return queued[1]
            if self._database is None or not is_name(session_id):
                return False
            return bool(self._execute("SELECT 1 FROM names WHERE name = ?", session_id))

    def listed(self) -> Sequence[str]:
        """All that are kept, in order; what queued jobs will change isn't seen yet."""
        with self._lock:
            return [row[0] for row in self._execute("SELECT name FROM names ORDER BY name")]

    def close(self) -> None:
        """Let go of the memory. Idempotent."""
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database = None

    def _execute(self, sql: str, *values: str) -> Sequence[Sequence[str]]:
        return [] if self._database is None else self._database.execute(sql, values)
