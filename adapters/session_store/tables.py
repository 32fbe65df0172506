"""What every table needs: the database, the numbers of sessions, and the counts of it all.

The counts are a value beside the transaction. Whoever rolls one back puts the old value back.
"""

from typing import Literal

import attrs

from adapters.session_store.database import Database, DatabaseFault
from kernel.session_store import StoreUsage

__all__ = ["JobRefused", "Tables", "Totals"]


RefusalReason = Literal["damaged", "missing", "refused", "full"]


class JobRefused(Exception):
    """A job can't be done; nothing of it may stay."""

    def __init__(self, why: str, reason: RefusalReason) -> None:
        self.why = why
        self.reason: RefusalReason = reason
        super().__init__(why)


@attrs.frozen
class Totals:
    """The one row of ``totals``."""

    sessions: int = 0
    log_bytes: int = 0
    """Tokens and facts of all turns and sessions."""
    snapshots: int = 0
    state_bytes: int = 0
    last_session: int = 0
    """Highest number that was given to a session; none is given twice."""
    clock: int = 0
    """Ticks when a snapshot is written or read: the least recently used has the lowest tick."""


@attrs.define(eq=False)
class Tables:
    """An open database and its counts."""

    database: Database
    totals: Totals
    _written: Totals = attrs.field(init=False)
    """The counts as the last transaction left them."""

    def __attrs_post_init__(self) -> None:
        self._written = self.totals

    @classmethod
    def load(cls, database: Database) -> "Tables":
        """Read the counts of a store that has its tables.

        Raises:
            DatabaseFault: they are not there.
        """
        rows = database.execute(
            "SELECT sessions, log_bytes, snapshots, state_bytes, last_session, clock FROM totals"
        )
        if len(rows) != 1:
            raise DatabaseFault(f"totals has {len(rows)} rows", "damaged")
        return cls(database, Totals(*rows[0]))

    def save_totals(self) -> None:
        """Write the counts into the transaction that is open, if they have changed."""
        if self.totals == self._written:
            return
        self.database.execute(
            "UPDATE totals SET sessions = ?, log_bytes = ?, snapshots = ?, state_bytes = ?,"
            " last_session = ?, clock = ?",
            attrs.astuple(self.totals),
        )

    def committed(self) -> None:
        """The counts that were saved are on the disk."""
        self._written = self.totals

    def count(
        self, *, sessions: int = 0, log_bytes: int = 0, snapshots: int = 0, state_bytes: int = 0
    ) -> None:
        """Add to the counts."""
        now = self.totals
        self.totals = attrs.evolve(
            now,
            sessions=now.sessions + sessions,
            log_bytes=now.log_bytes + log_bytes,
            snapshots=now.snapshots + snapshots,
            state_bytes=now.state_bytes + state_bytes,
        )

    def tick(self) -> int:
        """A tick later than all before."""
        self.totals = attrs.evolve(self.totals, clock=self.totals.clock + 1)
        return self.totals.clock

    def find(self, session_id: str) -> int | None:
        """The number of a session."""
        rows = self.database.execute("SELECT number FROM sessions WHERE name = ?", (session_id,))
        return rows[0][0] if rows else None

    def number_of(self, session_id: str) -> int:
        """The number of a session that must be there.

        Raises:
            JobRefused: it isn't.
        """
        number = self.find(session_id)
        if number is None:
            raise JobRefused(f"no session {session_id!r} is kept", "missing")
        return number

    def next_number(self) -> int:
        """A number that no session had before."""
        number = self.totals.last_session + 1
        self.totals = attrs.evolve(self.totals, last_session=number)
        return number

    @property
    def usage(self) -> StoreUsage:
        """The counts, as the kernel asks for them."""
        totals = self.totals
        return StoreUsage(
            sessions=totals.sessions,
            snapshots=totals.snapshots,
            log_bytes=totals.log_bytes,
            state_bytes=totals.state_bytes,
        )
