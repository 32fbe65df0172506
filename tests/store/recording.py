"""The store's files through a layer that writes down every operation, SQLite's own included.

SQLite runs on a recording file system of its own kind (a VFS, by apsw); the files of snapshots go
through the same tape. A fault can be planted in any operation.
"""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path, PurePosixPath

import apsw
import attrs

from adapters.session_store import Database, LocalDisk
from adapters.session_store.database import Row, SqlValue, fault_of_code
from tests.store.operations import (
    Create,
    Delete,
    MakeDirectory,
    Operation,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Write,
)

__all__ = ["RecordingDisk", "Tape"]

_NUMBERS = count()
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL


@attrs.define(eq=False)
class Tape:
    """Operations under a directory, in the order in which they took effect."""

    root: Path
    operations: list[Operation] = attrs.field(factory=list[Operation])
    fault: Callable[[Operation], None] = lambda _operation: None
    """Called before each operation takes effect; what it raises is what the operation raises."""

    def under(self, path: str | Path) -> PurePosixPath:
        return PurePosixPath(Path(path).relative_to(self.root))

    def check(self, operation: Operation) -> Operation:
        self.fault(operation)
        return operation

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)


@attrs.define(eq=False)
class RecordingDisk(LocalDisk):
    """A local disk whose every change is on the tape."""

    tape: Tape
    checkpoint_pages: int | None = None
    """Length of the journal at which it goes into the database; ``None``: as the store says."""

    def make_directory(self, path: Path, /) -> None:
        if path.is_dir():
            return
        self.make_directory(path.parent)
        path.mkdir()
        self.tape.add(MakeDirectory(self.tape.under(path)))
        self.sync_directory(path.parent)

    def open_database(self, path: Path, /) -> Database:
        return _ApswDatabase(path, self.tape, self.checkpoint_pages)

    def write(self, path: Path, chunks: Sequence[bytes], /, *, sync: bool) -> None:
        name = self.tape.under(path)
        operations: list[Operation] = [Create(name)]
        offset = 0
        for chunk in chunks:
            operations.append(Write(name, offset, chunk))
            offset += len(chunk)
        if sync:
            operations.append(Sync(name))
        for operation in operations:
            self.tape.check(operation)
            self.tape.add(operation)
        super().write(path, chunks, sync=False)

    def rename(self, source: Path, target: Path, /) -> None:
        operation = Rename(self.tape.under(source), self.tape.under(target))
        self.tape.check(operation)
        super().rename(source, target)
        self.tape.add(operation)

    def sync_directory(self, path: Path, /) -> None:
        self.tape.add(self.tape.check(SyncDirectory(self.tape.under(path))))

    def remove(self, path: Path, /) -> None:
        super().remove(path)
        self.tape.add(Delete(self.tape.under(path)))


class _ApswDatabase:
    """A :class:`adapters.session_store.Database` on a recording VFS."""

    def __init__(self, path: Path, tape: Tape, checkpoint_pages: int | None) -> None:
        self._checkpoint_pages = checkpoint_pages
        self._vfs = _RecordingVfs(tape)
        self._connection = apsw.Connection(str(path), vfs=self._vfs.name)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, values: Sequence[SqlValue] = (), /) -> list[Row]:
        if self._checkpoint_pages is not None and "wal_autocheckpoint" in sql:
            sql = f"PRAGMA wal_autocheckpoint = {self._checkpoint_pages}"
        try:
            # Bindings may be buffers, as above.
            cursor = self._connection.execute(sql, tuple(values))  # pyright: ignore[reportUnknownMemberType]
            return list(cursor)
        except apsw.Error as error:
            raise fault_of_code(_code_of(error), str(error)) from error

    def close(self) -> None:
        self._connection.close()


def _code_of(error: apsw.Error) -> int:
    # One that a planted fault raised has its type alone.
    planted = apsw.SQLITE_FULL if isinstance(error, apsw.FullError) else apsw.SQLITE_ERROR
    return getattr(error, "result", planted)


class _RecordingVfs(apsw.VFS):
    def __init__(self, tape: Tape) -> None:
        self.name = f"recording-{next(_NUMBERS)}"
        self.tape = tape
        super().__init__(self.name, "")

    def xOpen(  # noqa: N802 - as SQLite names it
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _RecordingFile(name, flags, self.tape)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - as SQLite names it
        super().xDelete(filename, syncdir)
        self.tape.add(Delete(self.tape.under(filename)))
        if syncdir:
            self.tape.add(SyncDirectory(self.tape.under(Path(filename).parent)))


class _RecordingFile(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], tape: Tape) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._path = tape.under(path)
        self._tape = tape
        is_new = not Path(path).exists()
        # SQLite syncs the directory with a journal's first sync (unixSync, UNIXFILE_DIRSYNC).
        self._names_are_unsynced = is_new and bool(flags[0] & _JOURNALS)
        super().__init__("", name, flags)
        if is_new:
            tape.add(Create(self._path))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - as SQLite names it
        operation = self._tape.check(Write(self._path, offset, bytes(data)))
        # Its type is a buffer, for which this Python has no name yet.
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]
        self._tape.add(operation)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - as SQLite names it
        super().xTruncate(newsize)
        self._tape.add(Truncate(self._path, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 - as SQLite names it
        self._tape.add(self._tape.check(Sync(self._path)))
        if self._names_are_unsynced:
            self._names_are_unsynced = False
            self._tape.add(SyncDirectory(self._path.parent))
