"""What a store must hold after given jobs, in a few dictionaries: what all tests compare with."""

from collections.abc import Mapping

import attrs

from adapters.session_store.rows import encode_facts
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

__all__ = ["ModelSession", "ModelStore", "plain"]


@attrs.frozen(eq=False)
class ModelSession:
    turns: tuple[StoredTurn, ...] = ()
    facts: Mapping[str, object] = attrs.field(factory=dict[str, object])
    image: StateImage | None = None
    used: int = 0

    @property
    def length(self) -> int:
        return self.turns[-1].start + len(self.turns[-1].tokens) if self.turns else 0

    @property
    def log_bytes(self) -> int:
        facts = [self.facts, *(turn.facts for turn in self.turns)]
        tokens = sum(len(turn.tokens) for turn in self.turns)
        return 4 * tokens + sum(len(encode_facts(each)) for each in facts)

    def cut(self, length: int) -> "ModelSession":
        if length >= self.length:
            return self
        turns = list[StoredTurn]()
        for turn in self.turns:
            kept = min(len(turn.tokens), length - turn.start)
            if turn.start < length:
                tokens, input_len = turn.tokens[:kept], min(turn.input_len, kept)
                turns.append(attrs.evolve(turn, tokens=tokens, input_len=input_len))
        image = self.image
        if image is not None and image.position > length - 1:
            image = None
        return attrs.evolve(self, turns=tuple(turns), image=image)

    def extended(self, turn: StoredTurn) -> "ModelSession":
        cut = self.cut(turn.start)
        turns = [earlier for earlier in cut.turns if earlier.start < turn.start]
        return attrs.evolve(cut, turns=(*turns, turn))

    def record(self, name: str) -> SessionRecord:
        image = self.image
        return SessionRecord(
            session_id=name,
            turns=list(self.turns),
            facts=self.facts,
            state_position=None if image is None else image.position,
            state_bytes=0 if image is None else image.nbytes,
        )


@attrs.define(eq=False)
class ModelStore:
    """Applies jobs one after another; a fault is told by its reason alone."""

    max_state_bytes: int | None = None
    sessions: dict[str, ModelSession] = attrs.field(factory=dict[str, ModelSession])
    clock: int = 0

    def copy(self) -> "ModelStore":
        return attrs.evolve(self, sessions=dict(self.sessions))

    def do(self, job: StoreJob) -> StoreReport:
        name = job.session_id
        session = self.sessions.get(name)
        match job:
            case KeepTurn(turn=turn):
                return self._append(name, session or ModelSession(), turn)
            case KeepFacts(facts=facts):
                self.sessions[name] = attrs.evolve(session or ModelSession(), facts=facts)
            case RemoveSession():
                self.sessions.pop(name, None)
            case DropState():
                if session is not None:
                    self.sessions[name] = attrs.evolve(session, image=None)
            case _ if session is None:
                return _fault("missing")
            case CutLog(length=length):
                self.sessions[name] = session.cut(length)
            case KeepState(image=image):
                return self._keep(name, session, image)
            case ReadSession():
                return session.record(name)
            case ReadState():
                return self._read(name, session)
        return Kept()

    def _append(self, name: str, session: ModelSession, turn: StoredTurn) -> StoreReport:
        if not 0 <= turn.start <= session.length:
            return _fault("refused")
        self.sessions[name] = session.extended(turn)
        return Kept()

    def _read(self, name: str, session: ModelSession) -> StoreReport:
        if session.image is None:
            return _fault("missing")
        self.clock += 1
        self.sessions[name] = attrs.evolve(session, used=self.clock)
        return session.image

    def _keep(self, name: str, session: ModelSession, image: StateImage) -> StoreReport:
        if not 1 <= image.position < session.length:
            return _fault("refused")
        if self.max_state_bytes is not None and image.nbytes > self.max_state_bytes:
            return _fault("full")
        self.clock += 1
        self.sessions[name] = attrs.evolve(session, image=None)
        while (
            self.max_state_bytes is not None
            and self.usage().state_bytes + image.nbytes > self.max_state_bytes
        ):
            holders = [name for name, kept in self.sessions.items() if kept.image is not None]
            oldest = min(holders, key=lambda holder: self.sessions[holder].used)
            self.sessions[oldest] = attrs.evolve(self.sessions[oldest], image=None)
        self.sessions[name] = attrs.evolve(session, image=image, used=self.clock)
        return Kept()

    def usage(self) -> StoreUsage:
        """Counts."""
        images = [kept.image for kept in self.sessions.values() if kept.image is not None]
        return StoreUsage(
            sessions=len(self.sessions),
            snapshots=len(images),
            log_bytes=sum(kept.log_bytes for kept in self.sessions.values()),
            state_bytes=sum(image.nbytes for image in images),
        )


def plain(report: StoreReport) -> object:
    """What two reports are compared by: images by content, faults by reason."""
    match report:
        case StateImage():
            return report.position, report.first_position, dict(report.arrays)
        case StoreFault():
            return report.reason
        case SessionRecord():
            return attrs.evolve(report, turns=list(report.turns))
        case Kept():
            return report


def _fault(reason: str) -> StoreFault:
    return StoreFault("", reason)  # type: ignore[arg-type]
