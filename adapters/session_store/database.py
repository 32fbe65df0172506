"""The few calls that the store makes to SQLite, and what can go wrong with each.

Behind a protocol, so that a test can run the same store over a recording file system.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

__all__ = ["Database", "DatabaseFault", "Row", "SqlValue", "SqliteDatabase", "fault_of_code"]

SqlValue = str | bytes | int | None
Row = tuple[Any, ...]
FaultReason = Literal["full", "damaged", "in_use", "failed"]

_REASONS: dict[int, FaultReason] = {
    sqlite3.SQLITE_BUSY: "in_use",
    sqlite3.SQLITE_LOCKED: "in_use",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_FULL: "full",
}


class DatabaseFault(Exception):
    """A statement failed; the transaction may be gone with it."""

    def __init__(self, why: str, reason: FaultReason) -> None:
        self.why = why
        self.reason: FaultReason = reason
        super().__init__(why)


def fault_of_code(code: int, why: str) -> DatabaseFault:
    """The fault that a result code of SQLite stands for, extended or not."""
    return DatabaseFault(why, _REASONS.get(code & 0xFF, "failed"))


class Database(Protocol):
    """One connection, used by one thread at a time, without transactions of its own making."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Sequence[SqlValue] = (), /) -> list[Row]:
        """Run one statement to its end.

        Raises:
            DatabaseFault: it failed.
        """
        ...

    def close(self) -> None:
        """Close it; a transaction that is open is rolled back. Idempotent."""
        ...


class SqliteDatabase:
    """The standard library's SQLite.

    Args:
        path: of the file, or what SQLite calls a database in memory.
        uri: the path is a URI, which may carry options.
    """

    def __init__(self, path: Path | str, *, uri: bool = False) -> None:
        try:
            # The thread that opens the store isn't the one that works on it.
            self._connection = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False, uri=uri
            )
        except sqlite3.Error as error:
            raise _fault(error) from error

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, values: Sequence[SqlValue] = (), /) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise _fault(error) from error
        except UnicodeDecodeError as error:  # what SQLite says of a damaged schema names it
            raise DatabaseFault(str(error), "damaged") from error

    def execute_many(self, sql: str, rows: Sequence[Row], /) -> None:
        """Run one statement for each row, in a transaction of their own.

        Raises:
            DatabaseFault: one failed; the transaction is open.
        """
        self.execute("BEGIN")
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.Error as error:
            raise _fault(error) from error
        self.execute("COMMIT")

    def close(self) -> None:
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise _fault(error) from error


def _fault(error: sqlite3.Error) -> DatabaseFault:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None and "decode to UTF-8" in str(error):  # Python says so, not SQLite
        code = sqlite3.SQLITE_CORRUPT
    return fault_of_code(code or 0, str(error))
