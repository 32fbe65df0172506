"""What a simulated store holds, and does: the protocol of a store as simply as it goes.

The disk outlives the engine and its store; what was reported as kept is on it.
"""

import json
from collections.abc import Mapping

import attrs

from kernel.session_store import (
    CutLog,
    DropState,
    KeepFacts,
    KeepState,
    KeepTurn,
    Kept,
    ReadSession,
    ReadState,
    RemoveSession,
    SessionRecord,
    StoredTurn,
    StoreFault,
    StoreJob,
    StoreReport,
    StoreUsage,
)
from kernel.state_image import StateImage

__all__ = ["Disk"]


@attrs.define(eq=False)
class _Session:
    turns: list[StoredTurn] = attrs.field(factory=list[StoredTurn])
    facts: dict[str, object] = attrs.field(factory=dict[str, object])
    image: StateImage | None = None
    is_damaged: bool = False
    """Its snapshot."""

    @property
    def length(self) -> int:
        return self.turns[-1].start + len(self.turns[-1].tokens) if self.turns else 0

    def extend(self, turn: StoredTurn) -> None:
        self.cut(turn.start)
        while self.turns and self.turns[-1].start == turn.start:
            self.turns.pop()  # one without tokens gives way
        self.turns.append(turn)

    def cut(self, length: int) -> None:
        if length >= self.length:
            return
        while self.turns and self.turns[-1].start >= length:
            self.turns.pop()
        if self.length > length:
            last = self.turns.pop()
            tokens = last.tokens[: length - last.start]
            input_len = min(last.input_len, len(tokens))
            self.turns.append(attrs.evolve(last, tokens=tokens, input_len=input_len))
        if self.image is not None and self.image.position > length - 1:
            self.image = None


@attrs.define(eq=False)
class Disk:
    """All sessions that are kept."""

    sessions: dict[str, _Session] = attrs.field(factory=dict[str, _Session])

    def do(self, job: StoreJob) -> StoreReport:
        """Do one job."""
        kept = self.sessions.get(job.session_id)
        if kept is None:
            if isinstance(job, DropState | RemoveSession):
                return Kept()
            if not isinstance(job, KeepTurn | KeepFacts):
                return StoreFault(f"no session {job.session_id!r}", "missing")
            kept = _Session()
        match job:
            case ReadSession():
                image = kept.image
                position = None if image is None else image.position
                size = 0 if image is None else image.nbytes
                return SessionRecord(
                    job.session_id, list(kept.turns), dict(kept.facts), position, size
                )
            case ReadState():
                return _image_of(kept)
            case _:
                return self._write(job, kept)

    def _write(self, job: StoreJob, kept: _Session) -> StoreReport:
        match job:
            case KeepTurn() if job.turn.start > kept.length:
                return StoreFault("the turn leaves a gap", "refused")
            case KeepTurn():
                kept.extend(attrs.evolve(job.turn, facts=_read_back(job.turn.facts)))
                self.sessions[job.session_id] = kept
            case CutLog():
                kept.cut(job.length)
            case KeepFacts():
                kept.facts = _read_back(job.facts)
                self.sessions[job.session_id] = kept
            case KeepState() if not 1 <= job.image.position < kept.length:
                return StoreFault("the log is shorter", "refused")
            case KeepState():
                kept.image, kept.is_damaged = job.image, False
            case DropState():
                kept.image = None
            case RemoveSession():
                del self.sessions[job.session_id]
            case _:
                return StoreFault(f"a {type(job).__name__} writes nothing", "failed")
        return Kept()

    def log_of(self, session_id: str) -> list[int]:
        """The tokens that are kept of a session."""
        return [token for turn in self.sessions[session_id].turns for token in turn.tokens]

    def damage_snapshot(self, session_id: str) -> None:
        """Let its bytes rot; it is seen when it is read."""
        self.sessions[session_id].is_damaged = True

    def lose_snapshot(self, session_id: str) -> None:
        """Let it be gone."""
        self.sessions[session_id].image = None

    def usage(self) -> StoreUsage:
        """Counts of all that is kept."""
        kept = list(self.sessions.values())
        images = [one.image for one in kept if one.image is not None]
        return StoreUsage(
            len(kept),
            len(images),
            sum(4 * one.length for one in kept),
            sum(image.nbytes for image in images),
        )


def _read_back(facts: Mapping[str, object]) -> dict[str, object]:
    """What comes back of JSON values that were written."""
    return dict(json.loads(json.dumps(facts)))


def _image_of(kept: _Session) -> StoreReport:
    if kept.image is None:
        return StoreFault("no snapshot", "missing")
    return StoreFault("its checksum is wrong", "damaged") if kept.is_damaged else kept.image
