"""What a store holds, read without an engine: for whoever looks after one."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs

from adapters.session_store.database import Database, DatabaseFault, SqliteDatabase
from adapters.session_store.opening import DATABASE, header_of
from adapters.session_store.refusals import refusal_of, refused
from adapters.session_store.rows import TOKEN_BYTES
from adapters.session_store.schema import KEY_SHIFT
from kernel.session_store import FileHeader

__all__ = ["KeptSession", "KeptSessions", "list_sessions"]

_READ_AT_ONCE = 4000
# A blob's length is in its row's header: no token is read.
_PAGE = f"""
SELECT name,
    (SELECT count(*) FROM turns WHERE key BETWEEN number << {KEY_SHIFT}
        AND ((number + 1) << {KEY_SHIFT}) - 1 AND kind = 'generate'),
    (SELECT total(length(tokens)) FROM turns WHERE key BETWEEN number << {KEY_SHIFT}
        AND ((number + 1) << {KEY_SHIFT}) - 1),
    position, bytes
FROM sessions LEFT JOIN snapshots ON session = number
WHERE name > ? ORDER BY name LIMIT ?
"""


@attrs.frozen
class KeptSession:
    """One session of a store."""

    session_id: str
    turns: int
    """That generated."""
    tokens: int
    """Of its log."""
    state_position: int | None
    """Tokens that its snapshot has absorbed; ``None``: there is none, only the log."""
    state_bytes: int


@attrs.frozen
class KeptSessions:
    """All sessions of a store."""

    header: FileHeader
    """Whose they are."""
    sessions: tuple[KeptSession, ...]
    """In order of their names."""


def list_sessions(directory: Path) -> KeptSessions:
    """Look into a store that no engine has open; reads neither tokens nor states. Blocks.

    Raises:
        SessionStoreError: there is none, an engine has it open, or it is none that this release
            can read; it is left as it was.
    """
    path = directory.absolute() / DATABASE
    try:
        if not path.is_file():
            why = f"there is no {DATABASE} in it; give a directory that was a session_store"
            raise refused(directory, "foreign", why)
        with closing(_opened(path)) as database:
            # As an engine does: whoever has it open keeps us out, and is kept out by us.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            return KeptSessions(header_of(database, directory), tuple(_listed(database)))
    except (OSError, ValueError) as error:  # ValueError: no path at all
        why = f"it can't be read ({error}); give a directory that was a session_store"
        raise refused(directory, "failed", why) from error
    except DatabaseFault as error:
        raise refusal_of(directory, error) from error


def _opened(path: Path) -> SqliteDatabase:
    # A copy on a disk that can't be written, of a store that was closed: SQLite would make a
    # journal beside it. An engine that had it open would have one.
    journal = path.with_name(f"{path.name}-wal")
    if not os.access(path.parent, os.W_OK) and not journal.exists():
        return SqliteDatabase(f"{path.as_uri()}?immutable=1", uri=True)
    return SqliteDatabase(path)


def _listed(database: Database) -> Iterator[KeptSession]:
    last = ""
    while rows := database.execute(_PAGE, (last, _READ_AT_ONCE)):
        for name, turns, token_bytes, position, nbytes in rows:
            yield KeptSession(name, turns, round(token_bytes) // TOKEN_BYTES, position, nbytes or 0)
        last = rows[-1][0]
