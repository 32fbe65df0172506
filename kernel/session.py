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

from functools import partial
from typing import Literal, assert_never, final

from kernel.active_turn import ActiveTurn, cancelled_end, open_turn
from kernel.actor import Actor, Address
from kernel.deadlines import Deadlines
from kernel.errors import (
    EngineFault,
    SessionBusy,
    SessionClosed,
    SessionLost,
    StoreError,
    TenureError,
)
from kernel.ids import SCHEDULER, STORE, SessionId, TurnId, session_custodian
from kernel.log_changes import LogChanges
from kernel.messages import (
    Cancel,
    CancelTurn,
    CloseSession,
    Composed,
    Continue,
    Down,
    ExportSession,
    ForgetIdle,
    GaveUp,
    GiveUp,
    Hibernate,
    HistoryMessage,
    Interrupt,
    InterruptTurn,
    Parked,
    PhaseAbsorbed,
    Rested,
    SchedulerMessage,
    SessionMessage,
    StartTurn,
    StateRead,
    StopFound,
    Submit,
    TurnAlarm,
    TurnEnded,
    TurnFailed,
    TurnFinished,
)
from kernel.output_buffer import TurnEnd
from kernel.reply import Reply
from kernel.seat import Seat
from kernel.session_archive import Deferred, SessionArchive
from kernel.session_home import SessionHome
from kernel.session_identity import SessionIdentity
from kernel.session_rest import SessionRest
from kernel.session_state import SessionState
from kernel.session_tiers import SessionTiers
from kernel.store_messages import LogStored, StateFetched, StateStored
from kernel.turn import OpenTurn, TurnRequest
from kernel.turn_queue import TurnQueue
from kernel.turn_records import TurnRecords
from ownership import BatchOwned, Consume, CustodianId

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
        self.state = SessionState(name, ledger.session_port(name), ledger.view, limits.costs)
        self.active: ActiveTurn | None = None
        self.last_used_at = system.now()
        self.is_one_shot = is_one_shot
        self.is_closed = False
        self.is_close_posted = False
        """A latch: one message is enough, however often it is closed."""
        self.seat = Seat(self, birth)
        self.removed: Reply[None] | None = None
        """Who closes it puts one in, to be answered when the session is off the disk."""
        self._starts_waiting = False
        self._here: Address[SessionMessage] = Address(self.name)
        self._home = home
        self._deadlines = deadlines = Deadlines(system, self._here, name, idle_timeout_s)
        deadlines.rest()
        self._records = TurnRecords(session_id, home.counters, deadlines, home.probe)
        self.waiting = TurnQueue(session_id, self.state, home.door, deadlines, system, self._here)
        self.identity = SessionIdentity(session_id, birth, self.state, idle_timeout_s)
        self.archive: SessionArchive | None = None
        if home.residents is not None and not is_one_shot:
            self.archive = SessionArchive(
                session_id, name, system, home.probe, self.state, self.identity.facts
            )
        self._changes = LogChanges(session_id, system, self.state, self.archive, self.identity)
        self._tiers = SessionTiers(name, system, self.state, self.archive)
        self._rest: SessionRest | None = None
        if self.archive is not None and home.residents is not None:
            self._rest = SessionRest(self, home.residents, self.archive, self._tiers)

    def inherit(self, parent: "SessionActor") -> None:
        """Begin as a fork: the parent's log and turns, its committed state as base."""
        self.state.inherit(parent.state)

    @property
    def turns(self) -> int:
        """Turns that the session's history consists of."""
        return self.state.turns

    @property
    def phase(self) -> Literal["idle", "queued", "running", "closed"]:
        """What the session does, in a caller's words."""
        if self.is_closed:
            return "closed"
        if self.active is None:
            return "queued" if self.waiting else "idle"
        return "queued" if self.active.request.output.admitted_at is None else "running"

    def handle(self, message: Consume[SessionMessage], /) -> None:  # noqa: C901  one case a message
        """Take one message."""
        if isinstance(message, Deferred) and self._defers(message):
            return
        if isinstance(message, HistoryMessage):
            first = self.active or self.waiting.first
            self._changes.change_history(message, None if first is None else first.id)
            return
        match message:
            case StartTurn():
                self._arrive(message.request)
            case Composed():
                self._start_composed(message)
            case TurnFinished():
                self._finished(message)
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
                self._stop(message)
            case TurnEnded():
                self._ended_without_claim(message)
            case TurnFailed():
                if self._is_active(message.turn):
                    self._conclude(TurnEnd("error", 0, error=message.error))
            case PhaseAbsorbed():
                self._commit_phase(message)
            case TurnAlarm():
                self._alarm(message)
            case ForgetIdle():
                self._forget_idle(message)
            case CloseSession():
                error = message.error or SessionClosed(session_id=self.session_id)
                self._close(error, stays_kept=message.stays_kept)
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
            self._roll_back_late(message.claim)
        elif isinstance(message, Parked):
            self.state.roll_back(message.claim)
            self._tell_scheduler(GaveUp(message.base, moved=False))
        else:
            self.refuse(message, SessionClosed(session_id=self.session_id))

    def abandon(self, error: BaseException, /) -> None:
        """The session died: its callers are told that it is lost."""
        lost = SessionLost(session_id=self.session_id, why=str(error))
        self.is_closed = True
        active, self.active = self.active, None
        self._deadlines.wake()
        if active is not None:
            self._deadlines.end(active.id)
            self._home.door.leave(active.id)
            active.settle(TurnEnd("error", 0, error=lost))
        self.waiting.turn_all_away(lost)
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

    # A turn begins

    def _arrive(self, request: TurnRequest) -> None:
        active = self.active
        if active is None and self._is_saving:
            self.waiting.add(request)  # the log is being cut
            return
        if active is None and self.waiting.takes(request):
            return
        if active is None:
            self._start(request)
        elif request.wait or active.is_interrupted:
            self.waiting.add(request)
        else:
            busy = SessionBusy(session_id=self.session_id, turn_id=active.id)
            self.waiting.turn_away(request, busy)

    def _start_composed(self, message: Composed) -> None:
        first = self.waiting.first
        if first is None or first.id != message.turn or self.active is not None or self._is_saving:
            return
        if message.error is not None:
            self.waiting.turn_away(self.waiting.next(), message.error)
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start what waits, until a turn runs or its messages are composed."""
        self._starts_waiting = True
        while (
            (first := self.waiting.first) is not None
            and self.active is None
            and not self._is_saving
            and not self.waiting.compose_first()
        ):
            self._start(first)
        self._starts_waiting = False
        if self.active is None and not self.waiting:
            self._deadlines.rest()
            self._tell_rest()

    def _ends_with(self, request: TurnRequest) -> bool:
        """Whether this is the one answer of a one-shot; one that absorbs is for others to fork."""
        return self.is_one_shot and request.kind == "generate"

    def _start(self, request: TurnRequest) -> None:
        try:
            self._home.door.check_working()
            turn = open_turn(request, self.state, self._home.limits, session=self.name)
            turn.cache.keeps_end = self._ends_with(request)
        except TenureError as error:
            self.waiting.take_out(request)
            self.waiting.turn_away(request, error)
            if self.is_one_shot:
                self._close(error)
            return
        self._deadlines.wake()
        self._deadlines.end(request.id)
        self._deadlines.begin(request)
        self.state.last = None
        self.last_used_at = self.system.now()
        self.active = active = ActiveTurn(request)
        self.waiting.take_out(request)  # not before: a death in between must find it
        self._tell_rest()
        if self.state.drop_checkpoint():
            self._tell_scheduler(Rested())
        request.accepted.answer(None)
        self._records.started(active)
        end = active.end_without_steps(turn, self.state.position)
        if end is not None:
            self._home.door.leave(request.id)
            self._decide(end)
        else:
            self._tiers.fetch(turn, self._submit)

    def _submit(self, turn: OpenTurn) -> None:
        """All that the turn starts from is at hand."""
        active = self.active
        if active is None or active.id != turn.id:
            return
        if active.is_interrupted:
            self._home.door.leave(turn.id)
            self._decide(active.end_of(0, "interrupt", None))
            return
        active.scheduler_incarnation = self.system.incarnation_of(SCHEDULER)
        if self._tell_scheduler(Submit(turn)):
            self._home.door.leave(turn.id)
            gone = EngineFault(actor=SCHEDULER, why="it is not running")
            self._conclude(TurnEnd("error", 0, error=gone))

    # A turn ends

    def _defers(self, message: Deferred) -> bool:
        """Keep a message back while a change is kept; not an interrupt of what runs."""
        active = self.active
        runs = active is not None and active.decided is None
        if self.archive is None or (runs and isinstance(message, InterruptTurn)):
            return False
        return self.archive.defers(message)

    @property
    def _is_saving(self) -> bool:
        """Whether a change of the log is on its way to the store."""
        return self.archive is not None and self.archive.change is not None

    def _is_active(self, turn: TurnId) -> bool:
        """Whether a turn's outcome is still open."""
        active = self.active
        return active is not None and active.id == turn and active.decided is None

    def _finished(self, message: Consume[TurnFinished]) -> None:
        active = self.active
        if active is None or not self._is_active(message.turn):
            self._roll_back_late(message.claim)
            return
        end = active.end_of(message.kept, message.reason, message.stop_token)
        self.state.hold(message.claim)
        self._decide(end)

    def _roll_back_late(self, claim: Consume[BatchOwned]) -> None:
        """Whatever arrives for a forgotten turn goes back."""
        self.state.roll_back(claim)
        self._tell_scheduler(Rested())

    def _ended_without_claim(self, message: TurnEnded) -> None:
        if self.active is not None and self._is_active(message.turn):
            end = self.active.end_of(message.kept, message.reason, message.stop_token)
            self._decide(end)

    def _decide(self, end: TurnEnd) -> None:
        """A turn has its outcome; where there is a store, it counts when its tokens are kept."""
        active, archive = self.active, self.archive
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

    def _turn_kept(self, end: TurnEnd) -> None:
        """Extend the log, commit the claim, tell the caller."""
        active = self.active
        if active is None:
            return
        self.state.extend_by_turn(active.request, end.kept)
        if self._ends_with(active.request):
            self.state.drop_held()
        else:
            self.state.take_held(keep_checkpoint=active.request.kind == "generate")
        self._conclude(end)

    def _turn_lost(self, error: StoreError) -> None:
        """It can't be kept: the session is where it was before the turn."""
        self.state.drop_held()
        self._conclude(TurnEnd("error", 0, error=error))

    def _conclude(self, end: TurnEnd) -> None:
        """Tell the caller, come to rest, and start what waits."""
        active, self.active = self.active, None
        if active is None:
            return
        self._records.ended(active, end)
        self._forget_fetch(active.id)
        self.last_used_at = self.system.now()
        if self._ends_with(active.request) or (self.is_one_shot and end.error is not None):
            self._close(SessionClosed(session_id=self.session_id))
            return
        self._tell_scheduler(Rested())
        if self._starts_waiting:
            return  # The loop below goes on; a turn that ends at its start must not deepen it.
        self._start_waiting()

    def _commit_phase(self, message: Consume[PhaseAbsorbed]) -> None:
        if not self._is_active(message.turn):
            self._roll_back_late(message.claim)
            return
        self.state.take(message.claim, keep_checkpoint=False)
        self._tell_scheduler(Continue(message.turn, self.state.base))

    # A turn is cut short

    def _cancel(self, message: CancelTurn) -> None:
        active = self.active
        if active is not None and active.id == message.turn:
            if active.decided is None:
                self._tell_scheduler(Cancel(message.turn))
                self._conclude(cancelled_end(active.request, message.reason))
            return
        request, first = self.waiting.find(message.turn), self.waiting.first
        if request is not None:
            end = cancelled_end(request, message.reason)
            self.waiting.drop(request, end)
            self._records.dropped(end)
            if active is None and request is first:
                # It was being composed; the next in the queue takes its place.
                self._start_waiting()

    def _stop(self, message: StopFound) -> None:
        active = self.active
        if active is None or not self._is_active(message.turn):
            return
        if message.error is not None:
            self._tell_scheduler(Cancel(message.turn))
            self._conclude(TurnEnd("error", 0, error=message.error))
            return
        hit = active.request.output.stop_hit
        if hit is not None:
            self._tell_scheduler(Interrupt(message.turn, hit.kept_tokens, "stop"))

    def _close(self, error: BaseException, *, stays_kept: bool = False) -> None:
        """Close now: forget the turn, answer whoever waits, give back what is held."""
        active = self.active
        self.is_closed = True
        if active is not None:
            self._tell_scheduler(Cancel(active.id))
            self._records.ended(active, TurnEnd("abort", 0, error=error))
            self._forget_fetch(active.id)
            # Not before: a session that dies on the way here still has a caller to tell.
            self.active = None
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
        self._rest = None  # so that nothing here names the actor
        if self.is_one_shot:
            self.seat.actor = None
        self.system.retire(self)
        self._home.on_end(self.session_id)
        self._tell_scheduler(Rested())

    # The store

    def tell_woken(self) -> None:
        """It was made of what the store holds, and can be left to it again."""
        self._tell_event("session.woken")
        self._tell_rest()

    def _tell_event(self, event: str) -> None:
        if self._home.probe.enabled:
            facts = {"session": self.session_id, "num_tokens": len(self.state.log)}
            self._home.probe.record(event, facts)

    def _move(self, message: StateRead | Hibernate | ExportSession) -> None:
        if isinstance(message, StateRead):
            self._tiers.state_read(message)
        elif isinstance(message, ExportSession):
            self._tiers.export(self.identity.record(), message.reply)
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
            self._starts_waiting = True  # what was deferred comes first
            archive.stored(message)
            self._go_on()

    def _go_on(self) -> None:
        """A change is over: see to what has waited for that, then to the turns that wait."""
        archive, active = self.archive, self.active
        self._starts_waiting = True
        if active is not None and active.decided is not None and not self._is_saving:
            self._decide(active.decided)
        while archive is not None and archive.change is None and archive.deferred:
            self.handle(archive.deferred.popleft())
        if not self.is_closed:
            self._start_waiting()

    def _forget_fetch(self, turn: TurnId) -> None:
        """A turn is over that may still wait for its state, or have it."""
        if self._tiers.forget_fetch(turn):
            self._home.door.leave(turn)

    def _tell_rest(self) -> None:
        if self._rest is not None:
            self._rest.tell()

    @property
    def is_free(self) -> bool:
        """Whether the session does nothing."""
        return self.active is None and not self.waiting and not self.is_closed

    def _forget_idle(self, message: ForgetIdle) -> None:
        if not self._deadlines.is_this_rest(message.rest) or self.active is not None:
            return
        if self._rest is None or self.archive is None or not self.archive.is_opened:
            self._close(SessionClosed(session_id=self.session_id, why="idle timeout"))
        elif self._rest.is_possible:
            self._rest.begin()
        else:
            self._deadlines.rest()  # what is kept is not forgotten because the store has trouble

    def go_dormant(self) -> None:
        """All is on the disk, and nobody wants anything: be forgotten."""
        self.is_closed = True
        self.seat.actor = None
        self._tell_event("session.dormant")
        self._leave()

    def _down(self, message: Down) -> None:
        if message.name == STORE:
            self._store_down(message)
            return
        active = self.active
        is_theirs = active is not None and active.scheduler_incarnation == message.incarnation
        if active is not None and is_theirs and active.decided is None:
            self._home.door.leave(active.id)
            fault = EngineFault(actor=message.name, why=message.why)
            self._conclude(TurnEnd("error", 0, error=fault))
        self._tiers.scheduler_died()
        self._tell_scheduler(Rested())

    def _store_down(self, message: Down) -> None:
        archive = self.archive
        if archive is None:
            return
        self._starts_waiting = True
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
