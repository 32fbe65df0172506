"""Room that new turns and states leave on the disk, so that a store that is full can still forget.

What is removed is written into the journal first, and the journal into the database before it
begins anew. On a disk without any room neither can be done: nothing could be removed any more.
"""

from contextlib import suppress
from pathlib import Path

import attrs

from adapters.session_store.database import Database
from adapters.session_store.disk import Disk
from adapters.session_store.tables import JobRefused
from kernel.memory.byte_sizes import format_bytes

__all__ = ["Room"]


@attrs.define(eq=False)
class Room:
    """Of one store, on the disk where its directory is."""

    disk: Disk
    directory: Path
    database: Database
    reserve_bytes: int
    """What the journal and the database may grow by while nothing is added."""
    _left: int | None = attrs.field(default=None, init=False)
    """Bytes of the disk, less what this commit has added; ``None``: it can't say."""

    def look(self) -> None:
        """See what the disk has left; once for each commit."""
        self._left = None
        with suppress(OSError):  # then a write will fail, or it won't
            self._left = self.disk.free_bytes(self.directory)

    def take_rows(self, size: int) -> None:
        """Take room for rows of so many bytes, on the disk or in pages that were freed.

        Raises:
            JobRefused: there is none.
        """
        if not self._has(size) and self._freed() < max(1, size):
            raise self._refused()
        self._take(size)

    def take_file(self, size: int) -> None:
        """Take room for a file of so many bytes.

        Raises:
            JobRefused: there is none.
        """
        if not self._has(size):
            raise self._refused()
        self._take(size)

    def _has(self, size: int) -> bool:
        return self._left is None or self._left - size >= self.reserve_bytes

    def _take(self, size: int) -> None:
        if self._left is not None:
            self._left -= size

    def _freed(self) -> int:
        [(pages,)] = self.database.execute("PRAGMA freelist_count")
        [(page_bytes,)] = self.database.execute("PRAGMA page_size")
        return int(pages) * int(page_bytes)

    def _refused(self) -> JobRefused:
        left, kept = format_bytes(max(0, self._left or 0)), format_bytes(self.reserve_bytes)
        return JobRefused(
            f"the disk has {left} left, and {kept} are kept so that sessions can still be"
            " removed; make room, or forget some",
            "full",
        )
