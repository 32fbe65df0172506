"""The tables, and how a database becomes a store or is recognised as one.

``turns`` is clustered by session: its key is the session's number and the start of the turn, so
that a log is one stretch of the table and a cut is one range. Nothing here grows a read with the
number of sessions.
"""

import attrs

from adapters.session_store.database import Database
from kernel.session_store import FileHeader, SyncPolicy

__all__ = [
    "APPLICATION_ID",
    "FORMAT_VERSION",
    "KEY_SHIFT",
    "create_tables",
    "is_empty",
    "missing_tables",
    "read_header",
    "reserve_bytes",
    "set_policies",
]

APPLICATION_ID = 0x54454E55
"""``TENU``, in SQLite's own header: tells a store from another program's database."""
FORMAT_VERSION = 1
KEY_SHIFT = 32
"""``turns.key`` is the session's number shifted by this, plus the start of the turn."""

# Opening reads the row of ``totals`` and the names in ``sessions``, which has nothing else in it.
_TABLES = """
CREATE TABLE header (
    name TEXT PRIMARY KEY, value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE totals (
    sessions INTEGER NOT NULL, log_bytes INTEGER NOT NULL, snapshots INTEGER NOT NULL,
    state_bytes INTEGER NOT NULL, last_session INTEGER NOT NULL, clock INTEGER NOT NULL
);
CREATE TABLE sessions (
    name TEXT PRIMARY KEY, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE facts (
    session INTEGER PRIMARY KEY, crc INTEGER NOT NULL, facts BLOB NOT NULL
);
CREATE TABLE turns (
    key INTEGER PRIMARY KEY, input_len INTEGER NOT NULL, kind TEXT NOT NULL,
    crc INTEGER NOT NULL, tokens BLOB NOT NULL, facts BLOB NOT NULL
);
CREATE TABLE snapshots (
    session INTEGER PRIMARY KEY, used INTEGER NOT NULL, position INTEGER NOT NULL,
    first_position INTEGER NOT NULL, bytes INTEGER NOT NULL, crc INTEGER NOT NULL,
    layout TEXT NOT NULL, file TEXT, data BLOB
);
CREATE INDEX snapshots_by_use ON snapshots (used);
CREATE INDEX snapshots_by_file ON snapshots (file) WHERE file IS NOT NULL
"""

# SQLite's own OFF may leave a database that is damaged when power is lost. Without a sync for each
# commit, what is left to save are those of the journal's end, which a longer journal makes rare.
_SYNCHRONOUS: dict[SyncPolicy, str] = {"full": "FULL", "normal": "NORMAL", "off": "NORMAL"}
_JOURNAL_PAGES: dict[SyncPolicy, int] = {"full": 1000, "normal": 1000, "off": 10_000}
_PAGE_BYTES = 4096


def reserve_bytes(sync: SyncPolicy) -> int:
    """Room for a journal that has grown to its length, and once more for it in the database."""
    return 2 * _JOURNAL_PAGES[sync] * _PAGE_BYTES


def is_empty(database: Database) -> bool:
    """Whether nothing was ever made in it; a crash while it was made leaves it so."""
    return database.execute("SELECT count(*) FROM sqlite_master") == [(0,)]


def set_policies(database: Database, sync: SyncPolicy) -> None:
    """Set what SQLite doesn't keep in the file."""
    database.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[sync]}")
    database.execute(f"PRAGMA wal_autocheckpoint = {_JOURNAL_PAGES[sync]}")
    # Elsewhere than on Linux, where fsync is enough, a drive has to be asked for more.
    database.execute(f"PRAGMA fullfsync = {int(sync == 'full')}")
    database.execute("PRAGMA checkpoint_fullfsync = 1")
    database.execute("PRAGMA cache_size = -8192")
    database.execute("PRAGMA temp_store = MEMORY")  # savepoints need no files
    database.execute("PRAGMA journal_size_limit = 67108864")
    # What is removed is overwritten where that costs no further writes.
    database.execute("PRAGMA secure_delete = FAST")


def create_tables(database: Database, header: FileHeader) -> None:
    """Make the tables and the header in one transaction."""
    database.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.split(";"):
        database.execute(statement)
    database.execute("INSERT INTO totals VALUES (0, 0, 0, 0, 0, 0)")
    for name, value in attrs.asdict(header).items():
        database.execute("INSERT INTO header VALUES (?, ?)", (name, value))
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    database.execute("COMMIT")


def missing_tables(database: Database) -> list[str]:
    """What a store should have and this one hasn't: it was damaged, or edited by hand."""
    kept = {_words(sql) for (sql,) in database.execute("SELECT sql FROM sqlite_master")}
    wanted = [_words(statement) for statement in _TABLES.split(";")]
    return [statement.split()[2] for statement in wanted if statement not in kept]


def _words(sql: object) -> str:
    return " ".join(str(sql).split())


def read_header(database: Database) -> FileHeader | None:
    """Whose states the store has; ``None`` if the header isn't whole."""
    kept: dict[str, str] = dict(database.execute("SELECT name, value FROM header"))
    names = [field.name for field in attrs.fields(FileHeader)]
    if not all(name in kept for name in names):
        return None
    return FileHeader(**{name: kept[name] for name in names})
