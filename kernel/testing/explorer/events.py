"""What can happen next: one value an event, small enough to keep a million of them."""

from typing import Literal

import attrs

__all__ = ["Event", "EventKind"]

EventKind = Literal[
    "deliver",
    "complete",
    "start",
    "poll",
    "cancel",
    "interrupt",
    "close",
    "shutdown",
    "alarm",
    "crash",
    "kill",
    "overdue",
    "stop",
    "reset",
    "store",
]

FAULTS: frozenset[str] = frozenset({"crash", "kill", "overdue"})
MOVES: frozenset[str] = frozenset({"cancel", "interrupt", "close", "shutdown", "alarm", "reset"})


@attrs.frozen
class Event:
    """One choice of the explorer.

    Attributes:
        kind: what happens.
        who: to which actor, conversation or turn.
        number: which of several: the moment of a crash, the place of a step among those that the
            device has, or of an interrupt among the world's.
        detail: how a step, or a job of the store, ends or is overdue.
    """

    kind: EventKind
    who: str = ""
    number: int = 0
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether it is paid from the budget of faults."""
        return self.kind in FAULTS or self.detail in ("failed", "lost")

    @property
    def is_move(self) -> bool:
        """Whether it is paid from the budget of moves."""
        return self.kind in MOVES

    def __str__(self) -> str:
        match self.kind:
            case "deliver":
                return f"{self.who} handles its next message"
            case "complete":
                return f"step {self.number} on the device: {self.detail}"
            case "crash":
                return f"{self.who} dies in its handler, at moment {self.number}"
            case "kill":
                return f"{self.who} is killed between two messages"
            case "store":
                return f"the store's next job: {self.detail}"
            case "overdue" if self.who:
                return f"the {self.who} is overdue"
            case "overdue":
                return f"step {self.number} on the device is overdue ({self.detail})"
            case "poll":
                return "the abandoned worker is looked at"
            case "start" | "cancel" | "close" | "interrupt":
                return f"the caller: {self.kind} {self.who}"
            case "alarm":
                return f"time passes until the {self.who}"
            case "shutdown" | "stop" | "reset":
                return f"the engine: {self.kind}"
