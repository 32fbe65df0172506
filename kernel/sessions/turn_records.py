"""What is kept of the turns of one session beside its log: counts, deadlines, events."""

from typing import final

import attrs

from kernel.ids import SessionId
from kernel.probe import Probe
from kernel.requests.output_buffer import TurnEnd
from kernel.sessions.active_turn import ActiveTurn
from kernel.sessions.deadlines import Deadlines

__all__ = ["SessionCounters", "TurnRecords"]


@attrs.define(eq=False)
class SessionCounters:
    """Ends of turns over all sessions of an engine."""

    finished: int = 0
    cancelled: int = 0
    failed: int = 0

    def count(self, end: TurnEnd) -> None:
        """A turn has ended."""
        if end.error is None:
            self.finished += 1
        elif end.reason in ("abort", "timeout"):
            self.cancelled += 1
        else:
            self.failed += 1


@final
class TurnRecords:
    """Notes the beginning and the end of each turn, and tells its caller of the end."""

    __slots__ = ("_counters", "_deadlines", "_probe", "_session_id")

    def __init__(
        self,
        session_id: SessionId,
        counters: SessionCounters,
        deadlines: Deadlines,
        probe: Probe,
    ) -> None:
        self._session_id = session_id
        self._counters = counters
        self._deadlines = deadlines
        self._probe = probe

    def started(self, active: ActiveTurn) -> None:
        """A turn was accepted and is about to run."""
        self._report("turn.started", active, None)
        if active.request.history_differs and self._probe.enabled:
            facts = {"session": self._session_id, "turn": active.id}
            self._probe.record("turn.history_differs", facts)

    def ended(self, active: ActiveTurn, end: TurnEnd) -> None:
        """A turn has come to its outcome; whoever waits for it is told."""
        self._counters.count(end)
        self._deadlines.end(active.request)
        active.settle(end)
        self._report("turn.ended", active, end)

    def dropped(self, end: TurnEnd) -> None:
        """A turn that waited in its session won't run."""
        self._counters.count(end)

    def _report(self, event: str, active: ActiveTurn, end: TurnEnd | None) -> None:
        """One event for a turn's start and one for its end; counts and times, no text."""
        if self._probe.enabled:
            self._probe.record(event, {"session": self._session_id, **active.facts(end)})
