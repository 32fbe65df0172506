"""One session: it decides what becomes of its turns, in the order of its mailbox.

The first of *finished*, *cancel*, *interrupt* and *close* that the session handles is a turn's
outcome, and the caller is told after that. A cancelled turn is forgotten at once: the committed
state was never touched, so the session takes its next turn, and whatever still arrives under the
old turn's id is rolled back. An interrupted turn ends when its claim lands; what arrives in
between waits for it.

A one-shot request is a session of one turn that closes itself.
"""

from typing import Literal, assert_never, final

from kernel.active_turn import ActiveTurn, cancelled_end, open_turn
from kernel.actor import Actor, Address
from kernel.deadlines import Deadlines
from kernel.errors import (
    EngineFault,
    SessionBusy,
    SessionClosed,
    SessionLost,
    TenureError,
)
from kernel.ids import SCHEDULER, SessionId, TurnId, session_custodian
from kernel.messages import (
    Cancel,
    CancelTurn,
    CloseSession,
    Composed,
    Continue,
    Down,
    ForgetIdle,
    GaveUp,
    GiveUp,
    HistoryMessage,
    Interrupt,
    InterruptTurn,
    Parked,
    PhaseAbsorbed,
    Rested,
    SchedulerMessage,
    SessionMessage,
    StartTurn,
    StopFound,
    Submit,
    TurnAlarm,
    TurnEnded,
    TurnFailed,
    TurnFinished,
)
from kernel.output_buffer import TurnEnd
from kernel.session_history import change_history
from kernel.session_home import SessionHome
from kernel.session_interrupts import interrupt
from kernel.session_state import SessionState
from kernel.turn import TurnRequest
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
        self.is_detached = False
        self._starts_waiting = False
        self._here: Address[SessionMessage] = Address(self.name)
        self._home = home
        self._deadlines = deadlines = Deadlines(system, self._here, name, idle_timeout_s)
        deadlines.rest()
        self._records = TurnRecords(session_id, home.counters, deadlines, home.probe)
        self.waiting = TurnQueue(session_id, self.state, home.door, deadlines, system, self._here)

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
        if isinstance(message, HistoryMessage):
            self._change_history(message)
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
                moved = self.state.give_up(message.base)
                self._tell_scheduler(GaveUp(message.base, moved))
            case Parked():
                moved = self.state.move(message.base, message.claim)
                self._tell_scheduler(GaveUp(message.base, moved))
            case InterruptTurn():
                self._interrupt(message)
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
                if self._deadlines.is_this_rest(message.rest) and self.active is None:
                    self._close(SessionClosed(session_id=self.session_id, why="idle timeout"))
            case CloseSession():
                error = message.error or SessionClosed(session_id=self.session_id)
                self._close(error)
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
        elif isinstance(message, InterruptTurn | HistoryMessage):
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
        self._home.on_end(self.session_id)

    def has_business_with(self, name: CustodianId, /) -> bool:
        """A turn is open at the scheduler."""
        return name == SCHEDULER and self.active is not None

    # A turn begins

    def _arrive(self, request: TurnRequest) -> None:
        active = self.active
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
        if first is None or first.id != message.turn or self.active is not None:
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
            and not self.waiting.compose_first()
        ):
            self._start(first)
        self._starts_waiting = False
        if self.active is None and not self.waiting:
            self._deadlines.rest()

    def _start(self, request: TurnRequest) -> None:
        try:
            self._home.door.check_working()
            turn = open_turn(request, self.state, self._home.limits, session=self.name)
            turn.cache.keeps_end = self.is_one_shot
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
        active.scheduler_incarnation = self.system.incarnation_of(SCHEDULER)
        if self.state.drop_checkpoint():
            self._tell_scheduler(Rested())
        request.accepted.answer(None)
        self._records.started(active)
        end = active.end_without_steps(turn, self.state.position)
        if end is not None:
            self._home.door.leave(request.id)
            self._extend_log(0)
            self._conclude(end)
        elif self._tell_scheduler(Submit(turn)):
            self._home.door.leave(request.id)
            gone = EngineFault(actor=SCHEDULER, why="it is not running")
            self._conclude(TurnEnd("error", 0, error=gone))

    # A turn ends

    def _is_active(self, turn: TurnId) -> bool:
        return self.active is not None and self.active.id == turn

    def _finished(self, message: Consume[TurnFinished]) -> None:
        active = self.active
        if active is None or active.id != message.turn:
            self._roll_back_late(message.claim)
            return
        end = active.end_of(message.kept, message.reason, message.stop_token)
        self._extend_log(end.kept)
        if self.is_one_shot:
            self.state.roll_back(message.claim)
        else:
            self.state.take(message.claim, keep_checkpoint=active.request.kind == "generate")
        self._conclude(end)

    def _roll_back_late(self, claim: Consume[BatchOwned]) -> None:
        """Whatever arrives for a forgotten turn goes back."""
        self.state.roll_back(claim)
        self._tell_scheduler(Rested())

    def _ended_without_claim(self, message: TurnEnded) -> None:
        active = self.active
        if active is None or active.id != message.turn:
            return
        end = active.end_of(message.kept, message.reason, message.stop_token)
        self._extend_log(end.kept)
        self._conclude(end)

    def _extend_log(self, kept: int) -> None:
        if self.active is not None:
            self.state.extend_by_turn(self.active.request, kept)

    def _conclude(self, end: TurnEnd) -> None:
        """Tell the caller, come to rest, and start what waits."""
        active, self.active = self.active, None
        if active is None:
            return
        self._records.ended(active, end)
        self.last_used_at = self.system.now()
        if self.is_one_shot:
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
        if active is None or active.id != message.turn:
            return
        if message.error is not None:
            self._tell_scheduler(Cancel(message.turn))
            self._conclude(TurnEnd("error", 0, error=message.error))
            return
        hit = active.request.output.stop_hit
        if hit is not None:
            self._tell_scheduler(Interrupt(message.turn, hit.kept_tokens, "stop"))

    def _interrupt(self, message: InterruptTurn) -> None:
        told = interrupt(self.session_id, message, self.active, self.waiting, self.state)
        if told is not None:
            self._tell_scheduler(told)

    def _change_history(self, message: HistoryMessage) -> None:
        first = self.active or self.waiting.first
        open_turn = None if first is None else first.id
        change_history(self.session_id, message, self.state, open_turn)
        self._tell_scheduler(Rested())

    def _close(self, error: BaseException) -> None:
        """Close now: forget the turn, answer whoever waits, give back what is held."""
        active = self.active
        self.is_closed = True
        if active is not None:
            self._tell_scheduler(Cancel(active.id))
            self._records.ended(active, TurnEnd("abort", 0, error=error))
            # Not before: a session that dies on the way here still has a caller to tell.
            self.active = None
        self.waiting.turn_all_away(error)
        self._deadlines.wake()
        self.state.close()
        self.system.retire(self)
        self._home.on_end(self.session_id)
        self._tell_scheduler(Rested())

    def _down(self, message: Down) -> None:
        active = self.active
        if active is not None and active.scheduler_incarnation == message.incarnation:
            self._home.door.leave(active.id)
            fault = EngineFault(actor=message.name, why=message.why)
            self._conclude(TurnEnd("error", 0, error=fault))
        self._tell_scheduler(Rested())

    def _alarm(self, alarm: TurnAlarm) -> None:
        active, request = self.active, self.waiting.find(alarm.turn)
        if active is not None and active.id == alarm.turn:
            request = active.request
        if request is not None and self._deadlines.has_passed(request, alarm.kind):
            self._cancel(CancelTurn(alarm.turn, alarm.kind))

    def _tell_scheduler(self, message: SchedulerMessage) -> bool:
        """Post; True when there is no scheduler (the engine has given up or is closing)."""
        return self.system.post(_SCHEDULER, message, self.name) is not None
