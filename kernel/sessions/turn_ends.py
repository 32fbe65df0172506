"""How turns of a session end: the first outcome stands, is kept, is done to the log, and is told.

What arrives for a turn that was forgotten is rolled back. Where there is a store, an outcome counts
when its tokens are kept; the claim is held until then.
"""

from functools import partial
from typing import Final, Protocol, final

import attrs

from kernel.actors.actor import Address
from kernel.errors import EngineFault, SessionClosed, StoreError
from kernel.ids import SCHEDULER, SessionId, TurnId
from kernel.messages import (
    Cancel,
    CancelTurn,
    Continue,
    Down,
    Interrupt,
    PhaseAbsorbed,
    Rested,
    SchedulerMessage,
    SessionMessage,
    StopFound,
    TurnEnded,
    TurnFinished,
)
from kernel.requests.output_buffer import TurnEnd
from kernel.sessions.active_turn import ActiveTurn, cancelled_end
from kernel.sessions.archive import SessionArchive
from kernel.sessions.deadlines import Deadlines
from kernel.sessions.home import SessionHome
from kernel.sessions.state import SessionState
from kernel.sessions.tiers import SessionTiers
from kernel.sessions.turn_records import TurnRecords
from kernel.turn import TurnRequest
from ownership import BatchOwned, Consume

__all__ = ["NOBODY", "TurnEnds", "TurnHost", "TurnPlace"]

_SCHEDULER: Final = Address[SchedulerMessage](SCHEDULER)


class TurnHost(Protocol):
    """A session, as far as its turns are concerned."""

    def close(self, error: BaseException) -> None:
        """It was a session of one turn, and that is over."""
        ...

    def start_next(self) -> None:
        """No turn runs any more."""
        ...

    def tell_rest(self) -> None:
        """It is used, or has come to rest."""
        ...


class _Nobody:
    def close(self, error: BaseException) -> None: ...

    def start_next(self) -> None: ...

    def tell_rest(self) -> None: ...


NOBODY: Final = _Nobody()
"""Stands for a session that is gone, so that it is freed when nobody else names it."""


@attrs.frozen(eq=False)
class TurnPlace:
    """What the turns of one session begin and end with."""

    session_id: SessionId
    here: Address[SessionMessage]
    home: SessionHome
    state: SessionState
    archive: SessionArchive | None
    """``None``: there is no store."""
    tiers: SessionTiers
    deadlines: Deadlines
    is_one_shot: bool


@final
class TurnEnds:
    """Brings the turn that runs to its outcome; called inside the session's handler.

    Attributes:
        host: the session.
        active: the turn between its start and its outcome.
        last_used_at: when a turn last began or ended.
    """

    __slots__ = (
        "_archive",
        "_deadlines",
        "_home",
        "_is_one_shot",
        "_name",
        "_session_id",
        "_system",
        "_tiers",
        "active",
        "host",
        "last_used_at",
        "state",
    )

    def __init__(self, host: TurnHost, place: TurnPlace) -> None:
        home = place.home
        self.host: TurnHost = host
        self.active: ActiveTurn | None = None
        self.last_used_at = home.system.now()
        self.state = place.state
        self._session_id = place.session_id
        self._name = place.here.name
        self._system = home.system
        self._home = home
        self._archive = place.archive
        self._tiers = place.tiers
        self._deadlines = place.deadlines
        self._is_one_shot = place.is_one_shot

    @property
    def records(self) -> TurnRecords:
        """Told of each beginning and end, of which a turn has one each."""
        home = self._home
        return TurnRecords(self._session_id, home.counters, self._deadlines, home.probe)

    def begin(self, active: ActiveTurn) -> None:
        """A turn runs from here on."""
        self.last_used_at = self._system.now()
        self.active = active

    def is_active(self, turn: TurnId) -> bool:
        """Whether a turn's outcome is still open."""
        active = self.active
        return active is not None and active.id == turn and active.decided is None

    def ends_with(self, request: TurnRequest) -> bool:
        """Whether this is the one answer of a one-shot; one that absorbs is for others to fork."""
        return self._is_one_shot and request.kind == "generate"

    def finished(self, message: Consume[TurnFinished]) -> None:
        """A claim has landed: the turn is over, or was forgotten."""
        active = self.active
        if active is None or not self.is_active(message.turn):
            self.roll_back_late(message.claim)
            return
        end = active.end_of(message.kept, message.reason, message.stop_token)
        self.state.hold(message.claim)
        self.decide(end)

    def ended_without_claim(self, message: TurnEnded) -> None:
        """A turn that was interrupted while it held nothing."""
        if self.active is not None and self.is_active(message.turn):
            end = self.active.end_of(message.kept, message.reason, message.stop_token)
            self.decide(end)

    def commit_phase(self, message: Consume[PhaseAbsorbed]) -> None:
        """What was pending is absorbed: commit it, and have the turn go on from there."""
        if not self.is_active(message.turn):
            self.roll_back_late(message.claim)
            return
        self.state.take(message.claim, keep_checkpoint=False)
        self._tell_scheduler(Continue(message.turn, self.state.base))

    def roll_back_late(self, claim: Consume[BatchOwned]) -> None:
        """Whatever arrives for a forgotten turn goes back."""
        self.state.roll_back(claim)
        self._tell_scheduler(Rested())

    # An outcome

    @property
    def _is_saving(self) -> bool:
        """Whether a change of the log is on its way to the store."""
        return self._archive is not None and self._archive.change is not None

    def decide(self, end: TurnEnd) -> None:
        """A turn has its outcome; where there is a store, it counts when its tokens are kept."""
        active, archive = self.active, self._archive
        if active is None:
            return
        active.decided = end
        if self._is_saving:
            return  # a mark, say; this comes next
        turn = None if archive is None else archive.turn_of(active.request, end.kept)
        if archive is None or turn is None:
            self._turn_kept(end)
        else:
            length = turn.start + len(turn.tokens)
            jobs = (archive.keep_turn(turn),)
            archive.propose(jobs, length, partial(self._turn_kept, end), self._turn_lost)

    def judge_decided(self) -> None:
        """A change of the log is over; an outcome may have waited for that."""
        active = self.active
        if active is not None and active.decided is not None and not self._is_saving:
            self.decide(active.decided)

    def _turn_kept(self, end: TurnEnd) -> None:
        """Extend the log, commit the claim, tell the caller."""
        active = self.active
        if active is None:
            return
        self.state.extend_by_turn(active.request, end.kept)
        if self.ends_with(active.request):
            self.state.drop_held()
        else:
            self.state.take_held(keep_checkpoint=active.request.kind == "generate")
        self.conclude(end)

    def _turn_lost(self, error: StoreError) -> None:
        """It can't be kept: the session is where it was before the turn."""
        self.state.drop_held()
        self.conclude(TurnEnd("error", 0, error=error))

    def conclude(self, end: TurnEnd) -> None:
        """Tell the caller, come to rest, and start what waits."""
        active, self.active = self.active, None
        if active is None:
            return
        self.records.ended(active, end)
        self._forget_fetch(active.id)
        self.last_used_at = self._system.now()
        if self.ends_with(active.request) or (self._is_one_shot and end.error is not None):
            self.host.close(SessionClosed(session_id=self._session_id))
            return
        self._tell_scheduler(Rested())
        if self._archive is not None:
            self._archive.keep_salt()
        self.host.start_next()

    # A turn is cut short

    def cancel(self, message: CancelTurn) -> None:
        """Forget the turn that runs; one whose outcome stands has ended."""
        active = self.active
        if active is not None and active.decided is None:
            self._tell_scheduler(Cancel(message.turn))
            self.conclude(cancelled_end(active.request, message.reason))

    def stop(self, message: StopFound) -> None:
        """A stop string was found in what the turn has generated, or looking for it failed."""
        active = self.active
        if active is None or not self.is_active(message.turn):
            return
        if message.error is not None:
            self._tell_scheduler(Cancel(message.turn))
            self.conclude(TurnEnd("error", 0, error=message.error))
            return
        hit = active.request.output.stop_hit
        if hit is not None:
            self._tell_scheduler(Interrupt(message.turn, hit.kept_tokens, "stop"))

    def fail(self, turn: TurnId, error: BaseException) -> None:
        """Something outside has gone wrong."""
        if self.is_active(turn):
            self.conclude(TurnEnd("error", 0, error=error))

    def _forget_fetch(self, turn: TurnId) -> None:
        """A turn is over that may still wait for its state, or have it."""
        if self._tiers.forget_fetch(turn):
            self._home.door.leave(turn)

    # The session ends, or its scheduler

    def close(self, error: BaseException) -> None:
        """Forget the turn that runs, and tell its caller."""
        active = self.active
        if active is not None:
            self._tell_scheduler(Cancel(active.id))
            self.records.ended(active, TurnEnd("abort", 0, error=error))
            self._forget_fetch(active.id)
            # Not before: a session that dies on the way here still has a caller to tell.
            self.active = None

    def abandon(self, lost: BaseException) -> None:
        """The session died: tell the caller of the turn that ran. Posts nothing."""
        active, self.active = self.active, None
        self.host = NOBODY
        if active is not None:
            self._deadlines.end(active.request)
            self._home.door.leave(active.id)
            active.settle(TurnEnd("error", 0, error=lost))

    def scheduler_died(self, message: Down) -> None:
        """A turn that it had has failed, unless its outcome stands."""
        active = self.active
        is_theirs = active is not None and active.scheduler_incarnation == message.incarnation
        if active is not None and is_theirs and active.decided is None:
            self._home.door.leave(active.id)
            fault = EngineFault(actor=message.name, why=message.why)
            self.conclude(TurnEnd("error", 0, error=fault))

    def _tell_scheduler(self, message: SchedulerMessage) -> bool:
        """Post; True when there is no scheduler (the engine has given up or is closing)."""
        return self._system.post(_SCHEDULER, message, self._name) is not None
