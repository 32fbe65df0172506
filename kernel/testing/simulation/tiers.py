"""What a simulation has seen of the tiers: parks, preempted turns in host memory, images."""

from collections.abc import Callable
from typing import Any

from kernel.messages import Parked
from kernel.scheduling.parking import Parking
from kernel.scheduling.scheduler import Scheduler
from kernel.sessions.kept_states import NO_STATE
from kernel.sessions.session import SessionActor
from kernel.state_image import StateImage
from kernel.step import CopyOf, DeviceStep, StepRow
from kernel.turn import OpenTurn, TurnState
from ownership import Place

__all__ = ["loads_of", "watch_parking", "what_becomes_of", "where_parked"]

Saw = Callable[[str], None]


def watch_parking(parking: Parking, saw: Saw) -> None:
    """Count the copies into host memory that one scheduler asks for, and those without room."""

    def watch(name: str, what: str) -> None:
        ask: Callable[..., bool] = getattr(parking, name)

        def watched(*given: Any) -> bool:
            has_room = ask(*given)
            saw(what if has_room else f"no room: {what}")
            return has_room

        setattr(parking, name, watched)

    watch("park", "a park")
    watch("park_turn", "a preempted turn goes to host memory")


def what_becomes_of(message: Parked, actor: SessionActor) -> str:
    """Whether a copy takes its state's place, or comes too late."""
    states = actor.state.states
    if message.base.version in states.kept:
        return "a park landed"
    is_newer = states.current is not NO_STATE and states.current > message.base.version
    return "a park lost to a commit" if is_newer else "a park lost"


def where_parked(scheduler: Scheduler, turn: OpenTurn) -> str:
    """Where a turn has its state that has left the device for host memory; empty: it hasn't."""
    if turn.state is TurnState.PARKING:
        return "on the way to host memory"
    if turn.id in scheduler.parking.parked and turn.state is TurnState.WAITING:
        return "in host memory"
    return ""


def loads_of(step: DeviceStep) -> list[str]:
    """What the rows of a step bring back to the device, in words."""
    return [what for row in step.rows if (what := _load_of(row))]


def _load_of(row: StepRow) -> str:
    initial = row.initial
    if row.first_page:
        return "a row without its oldest pages"
    if isinstance(initial, StateImage):
        return "an image is loaded"
    is_from_host = isinstance(initial, CopyOf) and initial.place is Place.HOST
    is_from_host |= any(copy.place is Place.HOST for copy in row.page_copies)
    return "a state comes back from host memory" if is_from_host else ""
