"""Opens a directory as a store, or says by name why it can't be one."""

from contextlib import suppress
from pathlib import Path

from adapters.session_store.database import Database, DatabaseFault
from adapters.session_store.disk import Disk, LocalDisk
from adapters.session_store.logs import Logs
from adapters.session_store.names import Names
from adapters.session_store.refusals import difference_of, refusal_of, refused
from adapters.session_store.room import Room
from adapters.session_store.schema import (
    APPLICATION_ID,
    FORMAT_VERSION,
    create_tables,
    is_empty,
    missing_tables,
    read_header,
    reserve_bytes,
    set_policies,
)
from adapters.session_store.snapshots import FILE_BYTES, Snapshots
from adapters.session_store.tables import Tables
from adapters.session_store.transaction import Committer
from adapters.session_store.worker import SqliteStore
from kernel.session_store import FileHeader, SyncPolicy

__all__ = ["DATABASE", "SNAPSHOTS", "header_of", "open_session_store"]

DATABASE = "sessions.sqlite3"
SNAPSHOTS = "snapshots"


def open_session_store(
    directory: Path,
    header: FileHeader,
    *,
    sync: SyncPolicy = "full",
    max_state_bytes: int | None = None,
    file_bytes: int = FILE_BYTES,
    disk: Disk | None = None,
) -> SqliteStore:
    """Open or make a store; reads none of its sessions but their names. Blocks.

    Args:
        directory: of this store alone; made if it isn't there.
        header: of the engine; a store that is made gets it, another one must have it.
        sync: when a job is reported as done: see :data:`kernel.session_store.SyncPolicy`.
        max_state_bytes: budget of all snapshots; ``None``: as many as fit on the disk.
        file_bytes: snapshots of more bytes are files of their own.
        disk: all that touches files; ``None``: the file system.

    Raises:
        SessionStoreError: it is another model's, of a newer version, no store, damaged, in use by
            another engine, or can't be made. It is left as it was.
    """
    disk = disk or LocalDisk()
    try:
        directory = directory.absolute()  # the process may move; and SQLite reads "file:" as a URI
        disk.make_directory(directory)
        database = disk.open_database(directory / DATABASE)
    except (OSError, ValueError, DatabaseFault) as error:  # ValueError: no path at all
        raise refusal_of(directory, error) from error
    try:
        _make_or_check(database, directory, header, sync)
        disk.make_directory(directory / SNAPSHOTS)
        # The database's own name; and that the journal which it was made with is gone, which would
        # undo its making if it came back. SQLite does so itself, unless it was built not to.
        disk.sync_directory(directory)
        tables = Tables.load(database)
        snapshots = Snapshots(
            tables,
            disk,
            directory / SNAPSHOTS,
            max_bytes=max_state_bytes,
            file_bytes=file_bytes,
            sync=sync != "off",
        )
        room = Room(disk, directory, database, reserve_bytes(sync))
        return _start(Committer(tables, Logs(tables, snapshots), snapshots, room))
    except BaseException as error:
        with suppress(DatabaseFault):
            database.close()
        if isinstance(error, OSError | DatabaseFault):
            raise refusal_of(directory, error) from error
        raise


def _make_or_check(
    database: Database, directory: Path, header: FileHeader, sync: SyncPolicy
) -> None:
    # Before anything is read: from then on nobody else gets in, and no memory is shared.
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    set_policies(database, sync)
    if is_empty(database):
        database.execute("PRAGMA journal_mode = WAL")
        create_tables(database, header)
        return
    difference = difference_of(header_of(database, directory), header)
    if difference is not None:
        reason, what = difference
        why = f"{what}; open it with the engine that it belongs to, or give another directory"
        raise refused(directory, reason, why)


def header_of(database: Database, directory: Path) -> FileHeader:
    """Whose sessions are in a database that should be a store's.

    Raises:
        SessionStoreError: it is another program's, or of a newer version.
        DatabaseFault: it is damaged.
    """
    [(application,)] = database.execute("PRAGMA application_id")
    [(version,)] = database.execute("PRAGMA user_version")
    if application != APPLICATION_ID:
        why = f"{DATABASE} there is another program's; give a directory of its own"
        raise refused(directory, "foreign", why)
    if version > FORMAT_VERSION:
        why = (
            f"its format is version {version} and this release knows version {FORMAT_VERSION};"
            " open it with the release that wrote it, or a later one"
        )
        raise refused(directory, "version", why)
    missing = missing_tables(database)
    if missing:
        raise DatabaseFault(f"it has no {', '.join(missing)}", "damaged")
    kept = read_header(database)
    if kept is None:
        raise DatabaseFault("its header is not whole", "damaged")
    return kept


def _start(committer: Committer) -> SqliteStore:
    committer.snapshots.remove_orphans()
    names = Names()
    try:
        names.load(committer.tables.database)
        return SqliteStore(committer, names)
    except BaseException:
        names.close()
        raise
