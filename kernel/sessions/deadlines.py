"""The deadlines of one session: those of its turns, and the end of its patience while idle.

The dispatcher's timers are the only source of time, and all that a timer does is to post. A
turn's deadlines run from its submission, whether it waits in the session, at the scheduler, or
runs. The idle clock runs only while no turn is live, and starts when the last one has ended.
"""

from kernel.actors.actor import Address, System, Timer
from kernel.messages import AlarmKind, ForgetIdle, SessionMessage, TurnAlarm
from kernel.turn import TurnRequest
from ownership import CustodianId

__all__ = ["Deadlines"]


class Deadlines:
    """Arms timers for one session.

    Args:
        here: the session; its timers post to it.
        sender: the session's own name.
        idle_timeout_s: ``None``: it may be idle for ever.
    """

    __slots__ = (
        "_here",
        "_idle_timeout_s",
        "_idle_timer",
        "_rests",
        "_sender",
        "_system",
    )

    def __init__(
        self,
        system: System,
        here: Address[SessionMessage],
        sender: CustodianId,
        idle_timeout_s: float | None,
    ) -> None:
        self._system = system
        self._here = here
        self._sender = sender
        self._idle_timeout_s = idle_timeout_s
        self._idle_timer: Timer | None = None
        self._rests = 0

    def begin(self, request: TurnRequest) -> None:
        """Arm what a turn asks for; its waiting so far counts."""
        submitted = request.output.submitted_at
        if request.queue_timeout_s is not None:
            self._arm(request, "queue_timeout", submitted + request.queue_timeout_s)
        if request.timeout_s is not None:
            self._arm(request, "timeout", submitted + request.timeout_s)
        if request.stall_timeout_s is not None:
            self._arm(request, "stall_timeout", submitted + request.stall_timeout_s)

    def end(self, request: TurnRequest) -> None:
        """A turn has ended; idempotent."""
        for timer in request.alarms.values():
            timer.cancel()
        request.alarms.clear()

    def has_passed(self, request: TurnRequest, kind: AlarmKind) -> bool:
        """Whether an alarm is due; a stall alarm that came too early is armed again."""
        output = request.output
        if kind == "queue_timeout":
            return output.admitted_at is None
        if kind == "stall_timeout" and request.stall_timeout_s is not None:
            now = self._system.now()
            since = now if output.unread_since is None else output.unread_since
            due = since + request.stall_timeout_s
            if now < due:
                self._arm(request, kind, due)
                return False
        return True

    def rest(self) -> None:
        """No turn is live any more: start the idle clock."""
        if self._idle_timeout_s is None:
            return
        self.wake()
        forget = ForgetIdle(self._rests)
        self._idle_timer = self._system.call_at(
            self._system.now() + self._idle_timeout_s,
            lambda: self._system.post(self._here, forget, self._sender),
        )

    def wake(self) -> None:
        """A turn is live, or the session closes: stop the idle clock."""
        self._rests += 1
        timer, self._idle_timer = self._idle_timer, None
        if timer is not None:
            timer.cancel()

    def is_this_rest(self, rest: int) -> bool:
        """Whether an idle alarm was armed for the rest that the session is in now."""
        return rest == self._rests

    def _arm(self, request: TurnRequest, kind: AlarmKind, at: float) -> None:
        alarm = TurnAlarm(request.id, kind)
        request.alarms[kind] = self._system.call_at(
            at, lambda: self._system.post(self._here, alarm, self._sender)
        )
