"""A store of sessions in memory, which outlives engines and fails in every way that it is told to.

It is the simulation's disk with faults to order: the real store and that one must be the same to
the kernel, which `tests/store` compares with a model of its own.
"""

import base64
import json
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from kernel.errors import SessionFileError, SessionStoreError
from kernel.session_store import (
    FileHeader,
    KeepFacts,
    KeepState,
    KeepTurn,
    ReadSession,
    ReadState,
    SessionRecord,
    StoredTurn,
    StoreFault,
    StoreJob,
    StoreReport,
    StoreUsage,
    SyncPolicy,
)
from kernel.state_image import ImageArray, StateImage
from kernel.testing.simulation.disk import Disk

__all__ = ["MemoryFiles", "MemoryStore"]

Fault = Literal["full", "damaged", "missing", "refused", "stopped", "failed"]
Done = Callable[[StoreReport], None]


class MemoryStore(Disk):
    """The disk: what is kept, and what goes wrong next.

    Attributes:
        manual: jobs wait for :meth:`work`.
        fail_next: reasons with which the next jobs that write are refused, before they are done.
        lose_next: reasons with which the next jobs are reported, after they were done.
    """

    def __init__(self, *, manual: bool = False) -> None:
        super().__init__()
        self.manual = manual
        self.header: FileHeader | None = None
        self.files: dict[str, bytes] = {}
        self.fail_next: deque[Fault] = deque()
        self.lose_next: deque[Fault] = deque()
        self.is_full = False
        self.damaged_logs: set[str] = set()
        self.jobs: list[StoreJob] = []
        """All that were done, or refused."""
        self.waiting: deque[tuple[StoreJob, Done]] = deque()
        self.opened = 0

    @staticmethod
    def array(*tokens: int) -> "array[int]":
        return array("I", tokens)

    # Faults

    def work(self, count: int = 1_000_000) -> None:
        """Do jobs that wait, oldest first."""
        while self.waiting and count:
            count -= 1
            job, done = self.waiting.popleft()
            done(self.do(job))

    # The store

    def do(self, job: StoreJob) -> StoreReport:
        self.jobs.append(job)
        writes = not isinstance(job, ReadSession | ReadState)
        if writes and self.fail_next:
            return StoreFault("planted", self.fail_next.popleft())
        if self.is_full and isinstance(job, KeepTurn | KeepFacts | KeepState):
            return StoreFault("no space is left", "full")
        if isinstance(job, ReadSession) and job.session_id in self.damaged_logs:
            return StoreFault("its checksum is wrong", "damaged")
        report = super().do(job)
        if writes and self.lose_next:
            return StoreFault("planted", self.lose_next.popleft())
        return report


@attrs.define(eq=False)
class _Worker:
    """An open store; see :class:`kernel.session_store.StoreWorker`."""

    disk: MemoryStore
    is_stopped: bool = False

    def submit(self, job: StoreJob, done: Done, /) -> None:
        if self.is_stopped:
            done(StoreFault("the store is closed", "stopped"))
        elif self.disk.manual:
            self.disk.waiting.append((job, done))
        else:
            done(self.disk.do(job))

    def holds(self, session_id: str, /) -> bool:
        return session_id in self.disk.sessions

    def session_ids(self) -> Sequence[str]:
        return sorted(self.disk.sessions)

    def usage(self) -> StoreUsage:
        return self.disk.usage()

    def stop(self) -> None:
        self.is_stopped = True
        self.disk.work()

    def join(self, timeout_s: float, /) -> bool:
        if self.is_stopped:
            self.disk.opened = 0
        return self.is_stopped


@attrs.define(eq=False)
class MemoryFiles:
    """See :class:`kernel.session_store.SessionFiles`."""

    disk: MemoryStore = attrs.field(factory=MemoryStore)

    def open_store(
        self,
        directory: Path,
        header: FileHeader,
        *,
        sync: SyncPolicy,
        max_state_bytes: int | None,
    ) -> _Worker:
        if self.disk.opened:
            raise SessionStoreError(path=str(directory), reason="in_use", why="it is open")
        if self.disk.header not in (None, header):
            raise SessionStoreError(path=str(directory), reason="model", why="another model's")
        self.disk.header = header
        self.disk.opened = 1
        return _Worker(self.disk)

    def pack(self, record: SessionRecord, image: StateImage | None, header: FileHeader) -> bytes:
        facts: dict[str, Any] = {
            "header": attrs.asdict(header),
            "id": record.session_id,
            "facts": dict(record.facts),
            "turns": [
                [turn.start, turn.input_len, list(turn.tokens), turn.kind, dict(turn.facts)]
                for turn in record.turns
            ],
            "image": None if image is None else _pack_image(image),
        }
        return json.dumps(facts).encode()

    def unpack(
        self, data: bytes, header: FileHeader, *, source: str
    ) -> tuple[SessionRecord, StateImage | None]:
        try:
            found = json.loads(data)
        except ValueError as error:
            raise SessionFileError(source=source, reason="damaged", why=str(error)) from error
        if found["header"] != attrs.asdict(header):
            raise SessionFileError(source=source, reason="model", why="another model's")
        turns = [
            StoredTurn(start, input_len, array("I", tokens), kind, facts)
            for start, input_len, tokens, kind, facts in found["turns"]
        ]
        image = None if found["image"] is None else _unpack_image(found["image"])
        position = None if image is None else image.position
        record = SessionRecord(found["id"], turns, found["facts"], position)
        return record, image

    def write(self, path: Path, data: bytes) -> None:
        self.disk.files[str(path)] = data

    def read(self, path: Path) -> bytes:
        try:
            return self.disk.files[str(path)]
        except KeyError:
            raise SessionFileError(source=str(path), reason="failed", why="no file") from None


def _pack_image(image: StateImage) -> dict[str, Any]:
    arrays = {
        name: [array.dtype, list(array.shape), base64.b64encode(array.data).decode()]
        for name, array in image.arrays.items()
    }
    return {"position": image.position, "first": image.first_position, "arrays": arrays}


def _unpack_image(found: Mapping[str, Any]) -> StateImage:
    arrays = {
        name: ImageArray(dtype, tuple(shape), base64.b64decode(data))
        for name, (dtype, shape, data) in found["arrays"].items()
    }
    return StateImage(found["position"], arrays, found["first"])
