"""Snapshots of states: small ones in the database, large ones in files of their own beside it.

A large one would be written twice through the database, once into its journal. Its file is whole
and durable before the row that names it is, and is removed only when no row names it any more;
what a crash leaves between the two is an orphan, and goes when the store is opened.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from adapters.session_store.disk import TEMPORARY, Disk, write_whole
from adapters.session_store.rows import are_of, encode_layout, image_checksum, image_of
from adapters.session_store.tables import JobRefused, Tables
from kernel.state_image import StateImage

__all__ = ["FILE_BYTES", "Snapshots"]

FILE_BYTES = 256 << 10
"""Images of more bytes are files of their own."""
_FILE_NAME = re.compile(rf"[1-9a-f][0-9a-f]*-[1-9a-f][0-9a-f]*(\.[0-9a-f]+{re.escape(TEMPORARY)})?")
"""What :meth:`Snapshots.keep` calls a file, and what it is called while it is written."""
MAX_TICKS = 4096
"""Most reads that are remembered until the next write; of more, the oldest are forgotten."""


@attrs.frozen
class FileChanges:
    """What becomes of files when the transaction ends."""

    written: tuple[str, ...] = ()
    """They go if it is rolled back."""
    unnamed: tuple[str, ...] = ()
    """They go when it is committed."""


@attrs.define(eq=False)
class Snapshots:
    """The table ``snapshots`` and the files that it names, inside the caller's transaction."""

    tables: Tables
    disk: Disk
    directory: Path
    max_bytes: int | None
    file_bytes: int
    sync: bool
    changes: FileChanges = attrs.field(factory=FileChanges)
    _ticks: dict[int, int] = attrs.field(factory=dict[int, int])
    """Snapshots that were read since; written with the next transaction that writes anyway."""

    def has_file(self, size: int) -> bool:
        """Whether an image of so many bytes is a file of its own."""
        return size > self.file_bytes

    def keep(self, session_id: str, number: int, image: StateImage) -> None:
        """Replace a session's snapshot, and make room for it.

        Raises:
            JobRefused: it is larger than the budget.
            OSError: its file can't be written.
        """
        size = image.nbytes
        if self.max_bytes is not None and size > self.max_bytes:
            raise JobRefused(
                f"a snapshot of {size} bytes is larger than the budget of {self.max_bytes} bytes"
                " that all of them share",
                "full",
            )
        self.drop(number)
        self._make_room(size)
        tick, layout = self.tables.tick(), encode_layout(image)
        chunks = [array.data for array in image.arrays.values()]
        crc = image_checksum(session_id, image.position, image.first_position, layout, chunks)
        file, data = None, None
        if self.has_file(size):
            file = f"{number:x}-{tick:x}"
            self.changes = attrs.evolve(self.changes, written=(*self.changes.written, file))
            write_whole(self.disk, self.directory / file, chunks, sync=self.sync)
        else:
            data = b"".join(chunks)
        self.tables.database.execute(
            "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, tick, image.position, image.first_position, size, crc, layout, file, data),
        )
        self.tables.count(snapshots=1, state_bytes=size)

    def drop(self, number: int) -> None:
        """Forget a session's snapshot, if there is one."""
        self.drop_beyond(number, -1)

    def drop_beyond(self, number: int, position: int) -> None:
        """Forget it if its position is beyond this one."""
        dropped = self.tables.database.execute(
            "SELECT bytes, file FROM snapshots WHERE session = ? AND position > ?",
            (number, position),
        )
        for size, file in dropped:
            self.tables.database.execute("DELETE FROM snapshots WHERE session = ?", (number,))
            self.tables.count(snapshots=-1, state_bytes=-size)
            if isinstance(file, str):
                unnamed = (*self.changes.unnamed, file)
                self.changes = attrs.evolve(self.changes, unnamed=unnamed)

    def facts(self, number: int) -> tuple[int | None, int]:
        """Position and bytes of a session's snapshot."""
        rows = self.tables.database.execute(
            "SELECT position, bytes FROM snapshots WHERE session = ?", (number,)
        )
        return (rows[0][0], rows[0][1]) if rows else (None, 0)

    def read(self, session_id: str, number: int) -> StateImage:
        """A session's snapshot, checked.

        Raises:
            JobRefused: there is none, or it is damaged.
        """
        rows = self.tables.database.execute(
            "SELECT position, first_position, crc, layout, file, data"
            " FROM snapshots WHERE session = ?",
            (number,),
        )
        if not rows:
            raise JobRefused(f"no snapshot of session {session_id!r} is kept", "missing")
        position, first_position, crc, layout, file, data = rows[0]
        if file is not None:
            data = self._content(session_id, file)
        if not are_of([position, first_position, layout, data], int, int, str, bytes):
            raise _damaged(session_id, "its row is of other types")
        if crc != image_checksum(session_id, position, first_position, layout, [data]):
            raise _damaged(session_id, "its checksum is wrong")
        self._note_use(number)
        return image_of(position, first_position, layout, data)

    @property
    def has_ticks(self) -> bool:
        """Whether snapshots were read since the last write."""
        return bool(self._ticks)

    def flush_ticks(self) -> None:
        """Write down which snapshots were read; lost with the transaction, which is no harm."""
        for number, tick in self._ticks.items():
            self.tables.database.execute(
                "UPDATE snapshots SET used = ? WHERE session = ? AND used < ?",
                (tick, number, tick),
            )
        self._ticks.clear()

    def committed(self) -> None:
        """Remove the files that no row names any more."""
        self._remove(self.changes.unnamed)
        self.changes = FileChanges()

    def rolled_back(self, to: FileChanges) -> None:
        """Remove the files that were written since."""
        self._remove(self.changes.written[len(to.written) :])
        self.changes = to

    def remove_orphans(self) -> None:
        """Remove what a crash has left: files of our names that no row names; no others."""
        ours = [name for name in self.disk.names(self.directory) if _FILE_NAME.fullmatch(name)]
        self._remove([name for name in ours if not self._is_named(name)])

    def _is_named(self, name: str) -> bool:
        rows = self.tables.database.execute("SELECT 1 FROM snapshots WHERE file = ?", (name,))
        return bool(rows)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            # What stays is an orphan until the store is opened the next time.
            with suppress(OSError, ValueError):
                self.disk.remove(self._path(name))

    def _path(self, name: str) -> Path:
        """Of a file that a row names: never outside of the directory, whoever wrote the row."""
        return self.directory / Path(name).name

    def _make_room(self, size: int) -> None:
        if self.max_bytes is None:
            return
        while self.tables.totals.state_bytes + size > self.max_bytes:
            [(oldest,)] = self.tables.database.execute(
                "SELECT session FROM snapshots ORDER BY used LIMIT 1"
            )
            self.drop(oldest)

    def _note_use(self, number: int) -> None:
        if self.max_bytes is None:
            return
        self._ticks.pop(number, None)
        self._ticks[number] = self.tables.tick()
        if len(self._ticks) > MAX_TICKS:
            del self._ticks[next(iter(self._ticks))]

    def _content(self, session_id: str, file: object) -> bytes:
        if not (isinstance(file, str) and _FILE_NAME.fullmatch(file)):
            raise _damaged(session_id, "its row names no file of a store")
        try:
            return self.disk.read(self._path(file))
        except FileNotFoundError as error:
            raise _damaged(session_id, f"its file {file!r} is missing") from error


def _damaged(session_id: str, why: str) -> JobRefused:
    return JobRefused(f"the snapshot of session {session_id!r} is damaged: {why}", "damaged")
