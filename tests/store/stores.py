"""An open store that answers at once, for tests that ask one thing after another."""

import threading
from array import array
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs

from adapters.session_store import Disk, SqliteStore, open_session_store
from adapters.session_store.snapshots import FILE_BYTES
from kernel.session_store import (
    FileHeader,
    StoredTurn,
    StoreJob,
    StoreReport,
    StoreUsage,
    SyncPolicy,
)
from kernel.state_image import ImageArray, StateImage

__all__ = ["HEADER", "OpenStore", "image_at", "opened", "turn_of"]

HEADER = FileHeader(model="tiny", fingerprint="f1", dtype="float32", state_dtype="float32")
PATIENCE_S = 15.0


@attrs.frozen(eq=False)
class OpenStore:
    """Submits jobs and waits for their reports."""

    worker: SqliteStore

    def all(self, jobs: Iterable[StoreJob]) -> list[StoreReport]:
        """Submit jobs together; their reports in their order."""
        jobs = list(jobs)
        reports = dict[int, StoreReport]()
        ended = threading.Event()

        def keep(number: int, report: StoreReport) -> None:
            assert number not in reports, "reported twice"
            reports[number] = report
            if len(reports) == len(jobs):
                ended.set()

        for number, job in enumerate(jobs):
            self.worker.submit(job, partial(keep, number))
        assert not jobs or ended.wait(PATIENCE_S)
        return [reports[number] for number in range(len(jobs))]

    def do(self, job: StoreJob) -> StoreReport:
        return self.all([job])[0]

    @property
    def usage(self) -> StoreUsage:
        return self.worker.usage()

    def close(self) -> None:
        self.worker.stop()
        assert self.worker.join(PATIENCE_S)


@contextmanager
def opened(
    directory: Path,
    *,
    header: FileHeader = HEADER,
    sync: SyncPolicy = "normal",
    max_state_bytes: int | None = None,
    disk: Disk | None = None,
    file_bytes: int = FILE_BYTES,
) -> Generator[OpenStore]:
    """Open a store, and close it whatever happens."""
    store = OpenStore(
        open_session_store(
            directory,
            header,
            sync=sync,
            max_state_bytes=max_state_bytes,
            file_bytes=file_bytes,
            disk=disk,
        )
    )
    try:
        yield store
    finally:
        store.close()


def turn_of(start: int, tokens: Sequence[int], **facts: object) -> StoredTurn:
    """A turn whose first token is its input."""
    return StoredTurn(
        start=start,
        input_len=min(1, len(tokens)),
        tokens=array("I", tokens),
        kind="generate",
        facts=facts,
    )


def image_at(position: int, *, size: int = 16, fill: int = 7) -> StateImage:
    """A state of two arrays, ``size`` bytes together."""
    half = size // 2
    return StateImage(
        position=position,
        arrays={
            "recurrent": ImageArray("F32", (half // 4,), bytes([fill]) * half),
            "keys": ImageArray("U8", (1, size - half), bytes([fill + 1]) * (size - half)),
        },
        first_position=position // 2,
    )
