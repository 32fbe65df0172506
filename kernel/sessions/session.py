"""One session: it decides what becomes of its turns, in the order of its mailbox.

The first of *finished*, *cancel*, *interrupt* and *close* that the session handles is a turn's
outcome, and the caller is told after that. A cancelled turn is forgotten at once: the committed
state was never touched, so the session takes its next turn, and whatever still arrives under the
old turn's id is rolled back. An interrupted turn ends when its claim lands; what arrives in
between waits for it.

Where there is a store, an outcome counts when it is kept: the session decides, holds the finished
claim, and tells its caller after the store's answer; whatever else is about the log waits for that.

A one-shot request is a session of one turn that closes itself.
"""

from typing import Literal, assert_never, final

from kernel.actors.actor import Actor, Address
from kernel.actors.reply import Reply
from kernel.errors import (
    SessionClosed,
    SessionLost,
)
from kernel.ids import SCHEDULER, STORE, SessionId, session_custodian
from kernel.messages import (
    CancelTurn,
    CloseSession,
    Composed,
    Down,
    ExportSession,
    ForgetIdle,
    GaveUp,
    GiveUp,
    Hibernate,
    HistoryMessage,
    InterruptTurn,
    Parked,
    PhaseAbsorbed,
    Rested,
    SchedulerMessage,
    SessionMessage,
    StartTurn,
    StateRead,
    StopFound,
    TurnAlarm,
    TurnEnded,
    TurnFailed,
    TurnFinished,
)
from kernel.messages.store import LogStored, StateFetched, StateStored
from kernel.sessions.active_turn import ActiveTurn
from kernel.sessions.archive import Deferred, SessionArchive
from kernel.sessions.deadlines import Deadlines
from kernel.sessions.dormant_sessions import entry_of
from kernel.sessions.home import SessionHome
from kernel.sessions.identity import SessionIdentity
from kernel.sessions.log_changes import LogChanges
from kernel.sessions.rest import SessionRest
from kernel.sessions.seat import Seat
from kernel.sessions.state import SessionState
from kernel.sessions.tiers import SessionTiers
from kernel.sessions.turn_ends import NOBODY, TurnEnds, TurnPlace
from kernel.sessions.turn_queue import TurnQueue
from kernel.sessions.turn_starts import TurnStarts
from ownership import Consume, CustodianId

__all__ = ["SessionActor"]

_SCHEDULER: Address[SchedulerMessage] = Address(SCHEDULER)


@final
class SessionActor(Actor[SessionMessage]):
    """A session's mailbox, its state, and the turn that it runs."""

    def __init__(
        self,
        session_id: SessionId,
        home: SessionHome,
        *,
        is_one_shot: bool,
        idle_timeout_s: float | None,
        birth: str = "",
    ) -> None:
        name = session_custodian(session_id)
        system, ledger, limits = home.system, home.ledger, home.limits
        super().__init__(name, system, mail_bound=limits.mail_bound)
        self.session_id = session_id
        port = ledger.session_port(name)
        self.state = SessionState(name, port, ledger.view, limits.costs, home.shelf)
        self.is_one_shot = is_one_shot
        self.is_closed = False
        self.is_close_posted = False
        """A latch: one message is enough, however often it is closed."""
        self.seat = Seat(self, birth)
        self.removed: Reply[None] | None = None
        """Who closes it puts one in, to be answered when the session is off the disk."""
        self._here: Address[SessionMessage] = Address(self.name)
        self._home = home
        self._deadlines = deadlines = Deadlines(system, self._here, name, idle_timeout_s)
        deadlines.rest()
        self.identity = SessionIdentity(session_id, birth, self.state, idle_timeout_s)
        self.archive: SessionArchive | None = None
        if home.residents is not None and not is_one_shot:
            self.archive = SessionArchive(
                session_id, name, system, home.probe, self.state, self.identity.facts, home.numbers
            )
        self._tiers = SessionTiers(name, system, self.state, self.archive)
        place = TurnPlace(
            session_id,
            self._here,
            home,
            self.state,
            self.archive,
            self._tiers,
            deadlines,
            is_one_shot,
        )
        self._ends = TurnEnds(self, place)
        self._starts = TurnStarts(self, place, self._ends)
        self._rest: SessionRest | None = None
        if self.archive is not None and home.residents is not None:
            self._rest = SessionRest(self, home.residents, self.archive, self._tiers)

    def inherit(self, parent: "SessionActor") -> None:
        """Begin as a fork: the parent's log and turns, its committed state as base."""
        self.state.inherit(parent.state)
        if self.archive is not None and parent.archive is not None:
            self.archive.snapshots.inherit(parent.archive.snapshots)

    @property
    def active(self) -> ActiveTurn | None:
        """The turn between its start and its outcome."""
        return self._ends.active

    @property
    def waiting(self) -> TurnQueue:
        """Turns that have arrived and not started."""
        return self._starts.waiting

    @property
    def last_used_at(self) -> float:
        """When a turn last began or ended."""
        return self._ends.last_used_at

    @property
    def turns(self) -> int:
        """Turns that the session's history consists of."""
        return self.state.turns

    @property
    def _changes(self) -> LogChanges:
        """Made for one message: rare ones, and most sessions get none of them."""
        return LogChanges(self.session_id, self.system, self.state, self.archive, self.identity)

    @property
    def phase(self) -> Literal["idle", "queued", "running", "closed"]:
        """What the session does, in a caller's words."""
        if self.is_closed:
            return "closed"
        active = self.active
        if active is None:
            return "queued" if self.waiting else "idle"
        return "queued" if active.request.output.admitted_at is None else "running"

    @property
    def num_mail(self) -> int:
        """Messages that wait to be handled or answered, wherever they wait.

        For a change of the log that is being kept, a state that is read out, the end of a turn:
        none of these comes while the disk or the device hangs, so callers are counted by this.
        """
        kept_back = 0 if self.archive is None else len(self.archive.deferred)
        interrupts = self.waiting.num_interrupts
        if self.active is not None:
            interrupts += len(self.active.interrupts)
        return len(self.mailbox) + kept_back + self._tiers.num_exports + interrupts

    def handle(self, message: Consume[SessionMessage], /) -> None:
        """Take one message."""
        self._take(message)
        if self._rest is not None:
            self._rest.handled()

    def _take(self, message: Consume[SessionMessage]) -> None:  # noqa: C901  one case a message
        if isinstance(message, Deferred) and self._defers(message):
            return
        if isinstance(message, HistoryMessage):
            first = self.active or self.waiting.first
            self._changes.change_history(message, None if first is None else first.id)
            return
        match message:
            case StartTurn():
                self._starts.arrive(message.request)
            case Composed():
                self._starts.start_composed(message)
            case TurnFinished():
                self._ends.finished(message)
            case CancelTurn():
                self._cancel(message)
            case GiveUp():
                self._tiers.give_up(message.base)
            case Parked():
                moved = self.state.move(message.base, message.claim)
                self._tell_scheduler(GaveUp(message.base, moved))
            case InterruptTurn():
                self._changes.interrupt(message, self.active, self.waiting)
            case StopFound():
                self._ends.stop(message)
            case TurnEnded():
                self._ends.ended_without_claim(message)
            case TurnFailed():
                self._ends.fail(message.turn, message.error)
            case PhaseAbsorbed():
                self._ends.commit_phase(message)
            case TurnAlarm():
                self._alarm(message)
            case ForgetIdle():
                self._forget_idle(message)
            case CloseSession():
                error = message.error or SessionClosed(session_id=self.session_id)
                self.close(error, stays_kept=message.stays_kept)
            case StateRead() | Hibernate() | ExportSession():
                self._move(message)
            case LogStored() | StateStored() | StateFetched():
                self._heard_from_store(message)
            case Down():
                self._down(message)
            case _:
                assert_never(message)

    def refuse(self, message: SessionMessage, error: BaseException, /) -> None:
        """Answer mail that a closed or dead session can't read any more."""
        if not isinstance(error, SessionClosed):
            error = SessionLost(session_id=self.session_id, why=str(error))
        if isinstance(message, StartTurn):
            self.waiting.turn_away(message.request, error)
        elif isinstance(message, InterruptTurn | HistoryMessage | ExportSession):
            message.reply.fail(error)
        elif isinstance(message, GiveUp):
            self._tell_scheduler(GaveUp(message.base, moved=False))

    def decline(self, message: Consume[SessionMessage], _error: BaseException, /) -> None:
        """Closed: a claim that was under way is rolled back like any that comes too late."""
        if isinstance(message, TurnFinished | PhaseAbsorbed):
            self._ends.roll_back_late(message.claim)
        elif isinstance(message, Parked):
            self.state.roll_back(message.claim)
            self._tell_scheduler(GaveUp(message.base, moved=False))
        else:
            self.refuse(message, SessionClosed(session_id=self.session_id))

    def abandon(self, error: BaseException, /) -> None:
        """The session died: its callers are told that it is lost."""
        lost = SessionLost(session_id=self.session_id, why=str(error))
        self.is_closed = True
        self._deadlines.wake()
        self._ends.abandon(lost)
        self._starts.abandon(lost)
        self._tiers.abandon(lost)
        self.state.keep_image(None)
        if self.archive is not None:
            self.archive.turn_away_deferred(lost)
        if self.removed is not None:
            self.removed.answer(None)  # a log that is kept outlives its session
        self._home.on_end(self.session_id)

    def has_business_with(self, name: CustodianId, /) -> bool:
        """A turn is open at the scheduler, or one of the two owes an answer."""
        if name == STORE:
            return self.archive is not None and self.archive.has_business
        return name == SCHEDULER and (self.active is not None or self._tiers.is_reading)

    def _defers(self, message: Deferred) -> bool:
        """Keep a message back while a change is kept; not an interrupt of what runs."""
        active = self.active
        runs = active is not None and active.decided is None
        if self.archive is None or (runs and isinstance(message, InterruptTurn)):
            return False
        return self.archive.defers(message)

    def start_next(self) -> None:
        """No turn runs any more."""
        self._starts.start_next()

    def _cancel(self, message: CancelTurn) -> None:
        active = self.active
        if active is not None and active.id == message.turn:
            self._ends.cancel(message)
        else:
            self._starts.cancel(message)

    def close(self, error: BaseException, *, stays_kept: bool = False) -> None:
        """Close now: forget the turn, answer whoever waits, give back what is held."""
        self.is_closed = True
        self._ends.close(error)
        self.waiting.turn_all_away(error)
        if self.archive is not None:
            self.archive.turn_away_deferred(error)
            self.archive.end(self.removed or Reply(), stays_kept=stays_kept)
        self._leave()

    def _leave(self) -> None:
        """Give back what is held, and be gone."""
        self._tiers.end()
        self._deadlines.wake()
        self.state.close()
        # So that nothing here names the actor:
        self._rest = None
        self._ends.host = self._starts.host = NOBODY
        if self.is_one_shot:
            self.seat.actor = None
        self.system.retire(self)
        self._home.on_end(self.session_id)
        self._tell_scheduler(Rested())

    # The store

    def tell_woken(self) -> None:
        """It was made of what the store holds, and can be left to it again."""
        self._tell_event("session.woken")
        self.tell_rest()

    def _tell_event(self, event: str) -> None:
        if self._home.probe.enabled:
            facts = {"session": self.session_id, "num_tokens": len(self.state.log)}
            self._home.probe.record(event, facts)

    def _move(self, message: StateRead | Hibernate | ExportSession) -> None:
        if isinstance(message, StateRead):
            self._tiers.state_read(message)
        elif isinstance(message, ExportSession):
            self._tiers.export(self.identity.record(), message.reply, self._exported)
        elif self._rest is not None:
            self._rest.begin()

    def _heard_from_store(self, message: LogStored | StateStored | StateFetched) -> None:
        archive = self.archive
        if archive is None:
            return
        if isinstance(message, StateStored):
            archive.snapshots.stored(message)
        elif isinstance(message, StateFetched):
            archive.snapshots.fetched(message)
        else:
            self._starts.hold_back()  # what was deferred comes first
            archive.stored(message)
            self._go_on()

    def _exported(self) -> None:
        if self._rest is not None:
            self._rest.exported()

    def _go_on(self) -> None:
        """A change is over: see to what has waited for that, then to the turns that wait."""
        archive = self.archive
        self._ends.judge_decided()
        while archive is not None and archive.change is None and archive.deferred:
            self._take(archive.deferred[0])
            archive.deferred.pop(0)  # not before: who dies of it has a caller to tell
        if not self.is_closed:
            self._starts.start_waiting()

    def tell_rest(self) -> None:
        """It was used, or has come to rest."""
        if self._rest is not None:
            self._rest.tell()

    @property
    def is_free(self) -> bool:
        """Whether the session does nothing."""
        return self.active is None and not self.waiting and not self.is_closed

    @property
    def is_stuck(self) -> bool:
        """Whether it is at rest for good: nothing of it is kept that it could be left to."""
        return self._rest is not None and self._rest.is_stuck

    def _forget_idle(self, message: ForgetIdle) -> None:
        if not self._deadlines.is_this_rest(message.rest) or self.active is not None:
            return
        archive = self.archive
        if self._rest is None or archive is None or not (archive.is_opened or self.state.log):
            self.close(SessionClosed(session_id=self.session_id, why="idle timeout"))
            return
        # What is kept is not forgotten because the store has trouble, or somebody a question; nor
        # is a fork because it had no turn of its own: it is kept now, and goes the next time.
        self._deadlines.rest()
        archive.keep_rest()
        if self._rest.is_possible:
            self._rest.begin()

    def go_dormant(self) -> None:
        """All is on the disk, and nobody wants anything: be forgotten, but for an index entry."""
        if self._home.dormant is not None and self.archive is not None:
            entry = entry_of(
                self.state,
                state_position=self.archive.snapshots.position or 0,
                last_used_s=self.last_used_at,
                is_detached=self.identity.is_detached,
            )
            self._home.dormant.remember(self.session_id, entry)
        self.is_closed = True
        self.seat.actor = None
        self._tell_event("session.dormant")
        self._leave()

    def _down(self, message: Down) -> None:
        if message.name == STORE:
            self._store_down(message)
            return
        self._ends.scheduler_died(message)
        self._tiers.scheduler_died()
        self._tell_scheduler(Rested())

    def _store_down(self, message: Down) -> None:
        archive = self.archive
        if archive is None:
            return
        self._starts.hold_back()
        archive.went_down(message)
        archive.repair()  # also a doubt of long before
        self._go_on()

    def _alarm(self, alarm: TurnAlarm) -> None:
        active, request = self.active, self.waiting.find(alarm.turn)
        if active is not None and active.id == alarm.turn:
            request = active.request
        if request is not None and self._deadlines.has_passed(request, alarm.kind):
            self._cancel(CancelTurn(alarm.turn, alarm.kind))

    def _tell_scheduler(self, message: SchedulerMessage) -> bool:
        """Post; True when there is no scheduler (the engine has given up or is closing)."""
        return self.system.post(_SCHEDULER, message, self.name) is not None
