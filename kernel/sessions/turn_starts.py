"""How turns of a session begin: they arrive, wait for their place in the log, and are submitted.

What waits is composed and started once nothing runs and no change of the log is being kept.
"""

from typing import Final, final

from kernel.actors.actor import Address
from kernel.errors import EngineFault, SessionBusy, TenureError
from kernel.ids import SCHEDULER
from kernel.messages import (
    CancelTurn,
    Composed,
    Rested,
    SchedulerMessage,
    Submit,
)
from kernel.requests.output_buffer import TurnEnd
from kernel.sessions.active_turn import ActiveTurn, absorbs_first, cancelled_end, open_turn
from kernel.sessions.turn_ends import NOBODY, TurnEnds, TurnHost, TurnPlace
from kernel.sessions.turn_queue import TurnQueue
from kernel.turn import OpenTurn, TurnRequest

__all__ = ["TurnStarts"]

_SCHEDULER: Final = Address[SchedulerMessage](SCHEDULER)


@final
class TurnStarts:
    """Starts one turn after another; called inside the session's handler.

    Attributes:
        host: the session.
        waiting: turns that have arrived and not started.
    """

    __slots__ = (
        "_archive",
        "_deadlines",
        "_ends",
        "_home",
        "_is_one_shot",
        "_name",
        "_session_id",
        "_starts_waiting",
        "_system",
        "_tiers",
        "host",
        "state",
        "waiting",
    )

    def __init__(self, host: TurnHost, place: TurnPlace, ends: TurnEnds) -> None:
        home = place.home
        self.host: TurnHost = host
        self.waiting = TurnQueue(
            place.session_id, place.state, home.door, place.deadlines, home.system, place.here
        )
        self.state = place.state
        self._session_id = place.session_id
        self._name = place.here.name
        self._system = home.system
        self._home = home
        self._archive = place.archive
        self._tiers = place.tiers
        self._deadlines = place.deadlines
        self._ends = ends
        self._is_one_shot = place.is_one_shot
        self._starts_waiting = False

    def arrive(self, request: TurnRequest) -> None:
        """A turn has come: it starts, waits, or finds the session busy."""
        active = self._ends.active
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
            busy = SessionBusy(session_id=self._session_id, turn_id=active.id)
            self.waiting.turn_away(request, busy)

    def start_composed(self, message: Composed) -> None:
        """Messages have become tokens, or could not."""
        first = self.waiting.first
        if (
            first is None
            or first.id != message.turn
            or self._ends.active is not None
            or self._is_saving
        ):
            return
        if message.error is not None:
            self.waiting.turn_away(self.waiting.next(), message.error)
        self.start_waiting()

    def start_waiting(self) -> None:
        """Start what waits, until a turn runs or its messages are composed."""
        self._starts_waiting = True
        while (
            (first := self.waiting.first) is not None
            and self._ends.active is None
            and not self._is_saving
            and not self.waiting.compose_first()
        ):
            self._start(first)
        self._starts_waiting = False
        if self._ends.active is None and not self.waiting:
            self._deadlines.rest()
            self.host.tell_rest()

    def start_next(self) -> None:
        """No turn runs any more; one that ends at its start must not deepen the loop above it."""
        if not self._starts_waiting:
            self.start_waiting()

    def hold_back(self) -> None:
        """Something else comes first; :meth:`start_waiting` follows."""
        self._starts_waiting = True

    def _start(self, request: TurnRequest) -> None:
        """Make the turn that the scheduler is to run."""
        try:
            self._home.door.check_working()
            turn = open_turn(request, self.state, self._home.limits, session=self._name)
            turn.cache.keeps_end = self._ends.ends_with(request)
        except TenureError as error:
            self.waiting.take_out(request)
            self.waiting.turn_away(request, error)
            if self._is_one_shot:
                self.host.close(error)
            return
        self._deadlines.wake()
        self._deadlines.end(request)
        self._deadlines.begin(request)
        self.state.last = None
        active = ActiveTurn(request)
        self._ends.begin(active)
        self.waiting.take_out(request)  # not before: a death in between must find it
        self.host.tell_rest()
        if self.state.drop_checkpoint():
            self._tell_scheduler(Rested())
        request.accepted.answer(None)
        self._ends.records.started(active)
        end = active.end_without_steps(turn, self.state.position)
        if end is not None:
            self._home.door.leave(request.id)
            self._ends.decide(end)
        else:
            self._tiers.fetch(turn, self._submit)

    def _submit(self, turn: OpenTurn) -> None:
        """All that the turn starts from is at hand."""
        active = self._ends.active
        if active is None or active.id != turn.id:
            return
        if active.is_interrupted:
            self._home.door.leave(turn.id)
            self._ends.decide(active.end_of(0, "interrupt", None))
            return
        if turn.image is not None:
            # It wasn't known before how much is left to absorb.
            limits, position = self._home.limits, turn.image.position
            turn.absorb_first = absorbs_first(
                self.state, limits, position, turn.known_len, turn.cache.named
            )
        active.scheduler_incarnation = self._system.incarnation_of(SCHEDULER)
        if self._tell_scheduler(Submit(turn)):
            self._home.door.leave(turn.id)
            gone = EngineFault(actor=SCHEDULER, why="it is not running")
            self._ends.conclude(TurnEnd("error", 0, error=gone))

    def cancel(self, message: CancelTurn) -> None:
        """Drop a turn that waits."""
        request, first = self.waiting.find(message.turn), self.waiting.first
        if request is not None:
            end = cancelled_end(request, message.reason)
            self.waiting.drop(request, end)
            self._ends.records.dropped(end)
            if self._ends.active is None and request is first:
                # It was being composed; the next in the queue takes its place.
                self.start_waiting()

    def abandon(self, lost: BaseException) -> None:
        """The session died: tell whoever waits. Posts nothing."""
        self.host = NOBODY
        self.waiting.turn_all_away(lost)

    @property
    def _is_saving(self) -> bool:
        """Whether a change of the log is on its way to the store."""
        return self._archive is not None and self._archive.change is not None

    def _tell_scheduler(self, message: SchedulerMessage) -> bool:
        """Post; True when there is no scheduler (the engine has given up or is closing)."""
        return self._system.post(_SCHEDULER, message, self._name) is not None
