"""A store of sessions on SQLite: token logs with checksums, and snapshots of states.

Why SQLite, what the tables are and what survives what is in docs/session-store.md.
"""

from adapters.session_store.database import Database, DatabaseFault
from adapters.session_store.disk import Disk, LocalDisk
from adapters.session_store.opening import open_session_store
from adapters.session_store.worker import SqliteStore

__all__ = [
    "Database",
    "DatabaseFault",
    "Disk",
    "LocalDisk",
    "SqliteStore",
    "open_session_store",
]
