"""A trace in words: one line an event, as it happens when the trace is replayed."""

from collections.abc import Sequence

from kernel.testing.explorer.events import Event
from kernel.testing.explorer.stage import Stage
from kernel.testing.explorer.world import World

__all__ = ["narrate"]

_WIDTH = 200


def narrate(world: World, trace: Sequence[Event]) -> tuple[str, ...]:
    """Replay a trace and say what happened at each event."""
    stage = Stage(world)
    stage.narrates = True
    lines: list[str] = []
    for event in trace:
        try:
            stage.perform(event)
        except Exception as error:
            lines.append(f"{stage.told}: {error!r}")
            break
        lines.append(stage.told)
    stage.close()
    return tuple(line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…" for line in lines)
