"""Every touch of a store's directory goes through here, so that a test can record each of them.

The order of the operations is what durability consists of: a file is written under a temporary
name, synced, renamed, and its directory synced, before anything that is durable names it.
"""

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from adapters.session_store.database import Database, SqliteDatabase

__all__ = ["TEMPORARY", "Disk", "LocalDisk", "write_whole"]

TEMPORARY = ".partial"
"""Ends the names of files that are being written; nothing reads one."""

_UNKNOWN_TO_DRIVE = {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}
"""A network's drive, often, for which fsync is all that there is; SQLite does the same."""

if sys.platform == "darwin":
    from fcntl import F_FULLFSYNC, fcntl

    def _sync(descriptor: int) -> None:
        try:
            fcntl(descriptor, F_FULLFSYNC)  # fsync alone leaves the data in the drive's cache
        except OSError as error:
            if error.errno not in _UNKNOWN_TO_DRIVE:
                raise
            os.fsync(descriptor)
else:
    _sync = os.fsync


class Disk(Protocol):
    """The operations that a store makes its promises of. All may block and raise OSError."""

    def make_directory(self, path: Path, /) -> None:
        """Make it, and those above it that are missing; their names are durable."""
        ...

    def open_database(self, path: Path, /) -> Database:
        """Open or make a database file.

        Raises:
            DatabaseFault: it can't be opened.
        """
        ...

    def write(self, path: Path, chunks: Sequence[bytes], /, *, sync: bool) -> None:
        """Make a file or overwrite one; its content is durable if synced, its name is not yet."""
        ...

    def rename(self, source: Path, target: Path, /) -> None:
        """Put a file in the place of another at once; durable when the directory is synced."""
        ...

    def sync_directory(self, path: Path, /) -> None:
        """Make the names in it durable."""
        ...

    def free_bytes(self, path: Path, /) -> int:
        """What this user may still write on the disk where a directory is."""
        ...

    def read(self, path: Path, /) -> bytes: ...

    def remove(self, path: Path, /) -> None: ...

    def names(self, path: Path, /) -> Sequence[str]: ...


class LocalDisk:
    """The file system of this machine."""

    def make_directory(self, path: Path, /) -> None:
        if path.is_dir():
            return
        self.make_directory(path.parent)
        path.mkdir(exist_ok=True)
        self.sync_directory(path.parent)

    def open_database(self, path: Path, /) -> Database:
        return SqliteDatabase(path)

    def write(self, path: Path, chunks: Sequence[bytes], /, *, sync: bool) -> None:
        with path.open("wb") as file:
            file.writelines(chunks)
            file.flush()
            if sync:
                _sync(file.fileno())

    def rename(self, source: Path, target: Path, /) -> None:
        source.replace(target)

    def sync_directory(self, path: Path, /) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: Path, /) -> int:
        return shutil.disk_usage(path).free

    def read(self, path: Path, /) -> bytes:
        return path.read_bytes()

    def remove(self, path: Path, /) -> None:
        path.unlink()

    def names(self, path: Path, /) -> Sequence[str]:
        return os.listdir(path)


def write_whole(disk: Disk, path: Path, chunks: Sequence[bytes], *, sync: bool = True) -> None:
    """Write a file that is whole or not there, also after a loss of power if synced.

    Raises:
        OSError: it can't be written, and what had that name before is as it was; or all but the
            sync of the directory is done.
        ValueError: no file can have that name.
    """
    # Cut, since a name that is as long as one may be is a good one.
    partial = path.with_name(f"{path.name[:40]}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        disk.write(partial, chunks, sync=sync)
        disk.rename(partial, path)
    except BaseException:
        with suppress(OSError):
            disk.remove(partial)
        raise
    if sync:
        disk.sync_directory(path.parent)
