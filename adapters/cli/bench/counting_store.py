"""A store that counts the jobs that it is given, by kind, and passes them on."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from kernel.session_store import (
    FileHeader,
    SessionFiles,
    SessionRecord,
    StoreJob,
    StoreReport,
    StoreUsage,
    StoreWorker,
    SyncPolicy,
)
from kernel.state_image import StateImage

__all__ = ["CountingFiles"]


@attrs.define(eq=False)
class CountingFiles:
    """Passes everything on to what keeps sessions; all its stores count together."""

    _files: SessionFiles
    jobs: Counter[str] = attrs.field(factory=Counter[str])
    """Jobs since the count began, by the names of their classes."""

    def open_store(
        self,
        directory: Path,
        header: FileHeader,
        *,
        sync: SyncPolicy,
        max_state_bytes: int | None,
    ) -> StoreWorker:
        store = self._files.open_store(
            directory, header, sync=sync, max_state_bytes=max_state_bytes
        )
        return _CountingStore(self.jobs, store)

    def pack(self, record: SessionRecord, image: StateImage | None, header: FileHeader) -> bytes:
        return self._files.pack(record, image, header)

    def unpack(
        self, data: bytes, header: FileHeader, *, source: str
    ) -> tuple[SessionRecord, StateImage | None]:
        return self._files.unpack(data, header, source=source)

    def write(self, path: Path, data: bytes) -> None:
        self._files.write(path, data)

    def read(self, path: Path) -> bytes:
        return self._files.read(path)


@attrs.define(eq=False)
class _CountingStore:
    _jobs: Counter[str]
    _store: StoreWorker

    def submit(self, job: StoreJob, done: Callable[[StoreReport], None], /) -> None:
        self._jobs[type(job).__name__] += 1
        self._store.submit(job, done)

    def holds(self, session_id: str, /) -> bool:
        return self._store.holds(session_id)

    def session_ids(self) -> Sequence[str]:
        return self._store.session_ids()

    def usage(self) -> StoreUsage:
        return self._store.usage()

    def stop(self) -> None:
        self._store.stop()

    def join(self, timeout_s: float, /) -> bool:
        return self._store.join(timeout_s)
