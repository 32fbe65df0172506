"""What the kernel asks of a store of sessions: their logs first, and snapshots of their states.

The log is the truth. A store keeps it turn by turn; a snapshot is a cache of the log up to its
position, may be missing, and is dropped when the log is cut below it. The kernel never sees a
file; the store never sees a handle.

Jobs go to a :class:`StoreWorker`, which runs them off the event loop, in order, and reports each
exactly once. What is reported as kept is on the disk, as far as the store's policy of syncing says.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import attrs

from kernel.state_image import StateImage

__all__ = [
    "CutLog",
    "DropState",
    "FileHeader",
    "KeepFacts",
    "KeepState",
    "KeepTurn",
    "Kept",
    "ReadSession",
    "ReadState",
    "RemoveSession",
    "SessionFiles",
    "SessionRecord",
    "StoreFault",
    "StoreJob",
    "StoreReport",
    "StoreUsage",
    "StoreWorker",
    "StoredTurn",
    "SyncPolicy",
]

SyncPolicy = Literal["full", "normal", "off"]
"""``"full"``: reported after an fsync, survives the loss of power. ``"normal"``: survives the end
of the process; a loss of power may cost the last jobs that were reported, in their order, and never
half of one, and snapshots that these replaced or dropped. ``"off"``: as ``"normal"``, with the
fewest fsyncs: it may cost more of them."""


@attrs.frozen
class FileHeader:
    """Whose states these are; compared before one is loaded."""

    model: str
    fingerprint: str
    """Of configuration, weights and number types."""
    dtype: str
    state_dtype: str


@attrs.frozen
class StoredTurn:
    """One turn of a session's log."""

    start: int
    """Length of the log before it."""
    input_len: int
    tokens: "array[int]"
    """Its input, then what was kept of its output; typecode ``I``."""
    kind: Literal["generate", "append"]
    facts: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """What the kernel wants to know again: its messages, say. JSON values."""


@attrs.frozen
class SessionRecord:
    """All that is kept of a session, but for its state."""

    session_id: str
    turns: Sequence[StoredTurn]
    """They join: each starts where the one before ends."""
    facts: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """Of the session as a whole: its marks, its limits. JSON values."""
    state_position: int | None = None
    """Position of the snapshot; ``None``: there is none."""
    state_bytes: int = 0

    @property
    def log_len(self) -> int:
        """Tokens of the log."""
        return self.turns[-1].start + len(self.turns[-1].tokens) if self.turns else 0


# Jobs


@attrs.frozen
class KeepTurn:
    """Cut the log to ``turn.start`` and append the turn; opens the session if it is new.

    Refused if the log is shorter than that. A turn without tokens gives way to the next one.
    """

    session_id: str
    turn: StoredTurn


@attrs.frozen
class CutLog:
    """Shorten the log: whole turns go, the one that is cut through keeps its first tokens.

    A snapshot beyond ``length - 1`` is dropped with it.
    """

    session_id: str
    length: int


@attrs.frozen
class KeepFacts:
    """Replace the facts of a session; opens it if it is new."""

    session_id: str
    facts: Mapping[str, object]


@attrs.frozen
class KeepState:
    """Replace the snapshot; refused (``StoreFault``) if the log is not longer than its position.

    Snapshots over the byte budget go, the least recently used first; never a log.
    """

    session_id: str
    image: StateImage


@attrs.frozen
class DropState:
    """Forget the snapshot; the log stays. Done, too, if there is none."""

    session_id: str


@attrs.frozen
class ReadSession:
    """Report a :class:`SessionRecord`."""

    session_id: str


@attrs.frozen
class ReadState:
    """Report the :class:`StateImage` of the snapshot, checked against its checksum."""

    session_id: str


@attrs.frozen
class RemoveSession:
    """Forget a session, log and all. Done, too, if there is none."""

    session_id: str


StoreJob = (
    KeepTurn | CutLog | KeepFacts | KeepState | DropState | ReadSession | ReadState | RemoveSession
)

# Reports


@attrs.frozen
class Kept:
    """The job is done, and durable as far as the policy says."""


@attrs.frozen
class StoreFault:
    """The job was not done; what was kept before is as it was."""

    why: str
    reason: Literal["full", "damaged", "missing", "refused", "stopped", "failed"]
    """``"damaged"``: a checksum is wrong or a file is cut. ``"missing"``: there is no such session,
    or no snapshot."""
    error: BaseException | None = attrs.field(default=None, eq=False)


StoreReport = Kept | SessionRecord | StateImage | StoreFault


@attrs.frozen
class StoreUsage:
    """How much a store holds."""

    sessions: int
    snapshots: int
    log_bytes: int
    state_bytes: int


class StoreWorker(Protocol):
    """An open store, locked against other engines. Jobs run in order, off the event loop."""

    def submit(self, job: StoreJob, done: Callable[[StoreReport], None], /) -> None:
        """Queue a job and return at once; ``done`` is called exactly once, from any thread.

        Jobs that are queued together may share one commit and one fsync (group commit).
        """
        ...

    def holds(self, session_id: str, /) -> bool:
        """Whether a session of this id is kept, or will be once the queued jobs are done.

        Fast; called on the event loop.
        """
        ...

    def session_ids(self) -> Sequence[str]:
        """All sessions that are kept, in order of their names: a new list, of all of them."""
        ...

    def usage(self) -> StoreUsage:
        """Counts of what has been reported; fast, called on the event loop."""
        ...

    def stop(self) -> None:
        """End after the jobs that are queued; later ones are reported as stopped. Idempotent."""
        ...

    def join(self, timeout_s: float, /) -> bool:
        """Block until the worker has ended and the store is closed; False at the deadline."""
        ...


class SessionFiles(Protocol):
    """What an entry point of the group ``tenure.session_files`` names: an object, not a factory."""

    def open_store(
        self,
        directory: Path,
        header: FileHeader,
        *,
        sync: SyncPolicy,
        max_state_bytes: int | None,
    ) -> StoreWorker:
        """Open or make a store. May block.

        Raises:
            SessionStoreError: it is another model's, of a version that isn't known, damaged, in
                use by another engine, or can't be made; says which, and the way out.
        """
        ...

    def pack(self, record: SessionRecord, image: StateImage | None, header: FileHeader) -> bytes:
        """One session as the bytes of one file (safetensors with a versioned header)."""
        ...

    def unpack(
        self, data: bytes, header: FileHeader, *, source: str
    ) -> tuple[SessionRecord, StateImage | None]:
        """The session that :meth:`pack` wrote.

        Args:
            data: the whole file.
            header: of the engine that is to go on with it.
            source: names the file in errors.

        Raises:
            SessionFileError: another model, dtype or version, or damaged; says which.
        """
        ...

    def write(self, path: Path, data: bytes) -> None:
        """Write a file so that it is whole or not there: temporary file, fsync, rename, fsync.

        Raises:
            SessionFileError: it can't be written.
        """
        ...

    def read(self, path: Path) -> bytes:
        """Read a whole file.

        Raises:
            SessionFileError: it can't be read.
        """
        ...
