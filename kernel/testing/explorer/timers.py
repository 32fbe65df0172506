"""What a timer is for: the message that it will post, read out of the callback that it calls."""

from kernel.actors.actor import Timer
from kernel.messages import ForgetIdle, StepOverdue, TurnAlarm
from kernel.messages.store import StoreOverdue

__all__ = ["Alarm", "message_of"]

Alarm = StepOverdue | StoreOverdue | TurnAlarm | ForgetIdle


def message_of(timer: Timer) -> Alarm | None:
    """The message that a timer posts when it is due; ``None`` for one that calls a method."""
    for cell in getattr(timer.fire, "__closure__", None) or ():
        content: object = cell.cell_contents
        if isinstance(content, Alarm):
            return content
    return None
