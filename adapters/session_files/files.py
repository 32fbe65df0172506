"""Sessions on this machine's file system: stores, and files of one session each."""

import os
from pathlib import Path

import attrs

from adapters.session_files import format as session_format
from adapters.session_store.disk import Disk, LocalDisk, write_whole
from adapters.session_store.opening import open_session_store
from adapters.session_store.refusals import is_full
from kernel.errors import SessionFileError
from kernel.session_store import FileHeader, SessionRecord, StoreWorker, SyncPolicy
from kernel.state_image import StateImage

__all__ = ["LocalSessionFiles"]


@attrs.frozen(eq=False)
class LocalSessionFiles:
    """A :class:`kernel.session_store.SessionFiles`; may be used by several threads at once."""

    disk: Disk = attrs.field(factory=LocalDisk)
    """All that touches files; a test may record it."""

    def open_store(
        self,
        directory: Path,
        header: FileHeader,
        *,
        sync: SyncPolicy = "full",
        max_state_bytes: int | None = None,
    ) -> StoreWorker:
        """Open or make a store on SQLite.

        Raises:
            SessionStoreError: see :func:`adapters.session_store.open_session_store`.
        """
        return open_session_store(
            directory, header, sync=sync, max_state_bytes=max_state_bytes, disk=self.disk
        )

    def pack(self, record: SessionRecord, image: StateImage | None, header: FileHeader) -> bytes:
        """One session as the bytes of one file.

        Raises:
            SessionFileError: its facts are no JSON.
        """
        return session_format.pack(record, image, header)

    def unpack(
        self, data: bytes, header: FileHeader, *, source: str
    ) -> tuple[SessionRecord, StateImage | None]:
        """The session that :meth:`pack` wrote.

        Raises:
            SessionFileError: another kind of file, model, dtype or version, or damaged.
        """
        return session_format.unpack(data, header, source=source)

    def write(self, path: Path, data: bytes) -> None:
        """Write a file so that it is whole or not there; a loss of power leaves old or new.

        Raises:
            SessionFileError: it can't be written; what had its name before is as it was. Only when
                the sync of its directory failed is it there, and may be lost with power.
        """
        try:
            write_whole(self.disk, path, [data])
        except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
            out_of_room = is_full(error)
            # A path's own is_dir raises for names that no file can have.
            what = "it is a directory" if os.path.isdir(path) else str(error)
            way_out = "make room, or give another path" if out_of_room else "give another path"
            raise SessionFileError(
                source=str(path),
                reason="full" if out_of_room else "failed",
                why=f"it can't be written ({what}); {way_out}",
            ) from error

    def read(self, path: Path) -> bytes:
        """Read a whole file.

        Raises:
            SessionFileError: it can't be read.
        """
        try:
            return self.disk.read(path)
        except (OSError, ValueError) as error:
            why = f"it can't be read ({error}); give the path of a file that session.save wrote"
            raise SessionFileError(source=str(path), reason="failed", why=why) from error
