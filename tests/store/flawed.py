"""A disk whose database fails at the statements that a test picks."""

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from adapters.session_store import Database, DatabaseFault, LocalDisk
from adapters.session_store.database import Row, SqlValue

__all__ = ["FlawedDisk"]


@attrs.define(eq=False)
class _FlawedDatabase:
    database: Database
    fault: DatabaseFault
    picks: Callable[[str, Sequence[SqlValue]], bool]

    @property
    def in_transaction(self) -> bool:
        return self.database.in_transaction

    def execute(self, sql: str, values: Sequence[SqlValue] = (), /) -> list[Row]:
        if self.picks(sql, values):
            raise self.fault
        return self.database.execute(sql, values)

    def close(self) -> None:
        self.database.close()


@attrs.define(eq=False)
class FlawedDisk(LocalDisk):
    """A local disk; ``picks`` is asked of each statement and its values."""

    fault: DatabaseFault
    picks: Callable[[str, Sequence[SqlValue]], bool]

    def open_database(self, path: Path, /) -> Database:
        return _FlawedDatabase(super().open_database(path), self.fault, self.picks)
