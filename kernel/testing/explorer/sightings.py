"""What the explorer has seen: the rare meetings that a world is there for, counted by name.

Properties of the kind *sometimes* keep it from passing by visiting nothing. A world names those
that it must have seen; the names are the keys of the report.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from kernel.ids import SCHEDULER
from kernel.messages import (
    Cancel,
    CancelTurn,
    CloseSession,
    GiveUp,
    Interrupt,
    InterruptTurn,
    LaunchStep,
    Parked,
    PhaseAbsorbed,
    StepCompleted,
    StepLanded,
    Tick,
    TurnFinished,
    WorkerEnded,
)
from kernel.scheduling.parking import ParkTurn, ReadState, TransferFlight
from kernel.sessions.kept_states import NO_STATE
from kernel.sessions.session import SessionActor
from kernel.step import StepDone, TransferDone
from kernel.testing.explorer.events import Event
from kernel.testing.explorer.forms import field
from kernel.testing.explorer.rare_sightings import Figures, of_cache_event, of_store_message
from kernel.testing.explorer.stage import Stage
from kernel.turn import TurnState
from ownership import Place

__all__ = ["Sighting", "after", "before"]


@attrs.frozen
class Sighting:
    """What was counted before an event, to be compared after it."""

    names: tuple[str, ...]
    preemptions: int
    parking: int
    head: object
    grows: int
    commits: int
    figures: Figures


def before(stage: Stage, event: Event) -> Sighting:
    """Look at an event that is about to happen."""
    head = stage.head(event.who) if event.kind in ("deliver", "crash") else None
    names = (
        tuple(_of_message(stage, event, head))
        if head is not None
        else tuple(_of_event(stage, event))
    )
    scheduler = stage.core.scheduler
    grows = 0 if scheduler is None else len(field(scheduler, "_work").grows)
    parking = 0 if scheduler is None else len(scheduler.roster.parking)
    commits = stage.core.ledger.view.counters.commits
    names += tuple(of_cache_event(stage, event, head))
    preemptions, figures = stage.core.counters.preemptions, Figures.of(stage)
    return Sighting(names, preemptions, parking, head, grows, commits, figures)


def after(stage: Stage, event: Event, seen: Sighting) -> Iterator[str]:
    """What an event has turned out to be."""
    yield from seen.names
    yield from Figures.of(stage).since(seen.figures)
    core = stage.core
    if core.counters.preemptions > seen.preemptions:
        yield "preempted by growth" if seen.grows else "preempted"
        if core.scheduler is not None:
            is_kept = len(core.scheduler.roster.parking) > seen.parking
            yield "preempted to host memory" if is_kept else "preempted, and its state dropped"
    if isinstance(seen.head, Tick) and event.kind == "deliver" and core.scheduler is not None:
        for turn in core.scheduler.roster.waiting:
            yield "refused first turn" if turn.history_len == 0 else "refused later turn"
    if core.ledger.view.draining_slots:
        yield "a base drains"
    if event.kind == "crash":
        yield from _of_crash(stage)
    if isinstance(seen.head, TurnFinished | PhaseAbsorbed) and event.kind == "deliver":
        yield from _of_claim(stage, seen)
    if any(run.count > 1 for run in field(core.ledger, "_book").runs.alive.values()):
        yield "a run is shared"
    if core.failure is not None:
        yield f"the engine failed: {type(core.failure).__name__}"


def _of_crash(stage: Stage) -> Iterator[str]:
    *passed, last = stage.planter.moments
    posts = sum(moment.startswith("after the post") for moment in passed)
    if last.startswith("before it handles"):
        yield "death before a handler's first post"
    elif last.startswith("after the post"):
        yield "death after a handler's first post" if not posts else "death after a later post"
    elif last.startswith("before the post") and posts:
        yield "kill between two posts"


def _of_claim(stage: Stage, seen: Sighting) -> Iterator[str]:
    if stage.core.ledger.view.counters.commits == seen.commits:
        yield "a finished claim is rolled back"


def _of_event(stage: Stage, event: Event) -> Iterator[str]:
    match event.kind:
        case "complete" if event.detail == "late":
            yield "quarantine and late completion"
        case "complete" if event.detail in ("failed", "lost"):
            yield f"step {event.detail}"
        case "alarm":
            yield f"alarm: {event.who}"
        case "kill":
            yield f"kill of {event.who.partition(':')[0]}"
        case "overdue":
            yield f"the {event.who} is overdue" if event.who else f"step overdue: {event.detail}"
        case "stop" | "shutdown":
            if stage.device.held:
                yield f"{event.kind} in flight"
        case "start":
            yield from _of_start(stage, event)
        case _:
            return


def _of_start(stage: Stage, event: Event) -> Iterator[str]:
    caller = stage.caller(event.who)
    parent = caller.plan.fork_of
    if parent is not None and caller.actor is None:
        actor = stage.caller(parent).actor
        if actor is not None and not actor.is_closed:
            has_state = actor.state.state is not None
            yield "fork of a state" if has_state else "fork of a parent without a state"
            if actor.state.absorbed and not has_state:
                yield "fork of a parent that gave up"
            if actor.active is not None:
                yield "fork while the parent's turn runs"


def _of_message(stage: Stage, event: Event, head: object) -> Iterator[str]:
    actor: Any = next(one for one in stage.core.dispatcher.actors() if one.name == event.who)
    if isinstance(actor, SessionActor):
        yield from _at_session(stage, actor, head)
        yield from of_store_message(actor, head)
    elif event.who == SCHEDULER:
        yield from _at_scheduler(actor, head)
    elif isinstance(head, LaunchStep):
        places = stage.core.ledger.view.placements(head.lease)
        if any(place.tail_copy for place in places):
            yield "a tail is copied"
        if any(place.source is Place.HOST for place in places):
            yield "a state comes back from host memory"
    elif isinstance(head, WorkerEnded):
        yield "an abandoned worker has ended"
    elif isinstance(head, StepCompleted) and head.step not in actor.leases:
        yield "a step completes after its pool's death"


def _at_session(stage: Stage, actor: SessionActor, head: object) -> Iterator[str]:
    active = actor.active
    scheduler = stage.core.scheduler
    turn = None if active is None or scheduler is None else scheduler.roster.get(active.id)
    match head:
        case CloseSession() if any(isinstance(mail, GiveUp | Parked) for mail in actor.mailbox):
            is_copy = any(isinstance(mail, Parked) for mail in actor.mailbox)
            yield "a park of the closed" if is_copy else "asked of the closed"
        case CloseSession() if turn is not None and turn.in_flight:
            yield "close in flight"
        case CloseSession() if turn is not None and turn.state is TurnState.WAITING:
            yield "close of a queued turn"
        case CancelTurn() if active is not None and active.is_interrupted:
            yield "interrupt, then cancel"
        case CancelTurn() if actor.waiting.find(head.turn) is not None:
            yield "cancel of a turn that waits in its session"
        case TurnFinished() if active is None or active.id != head.turn:
            yield "late claim rolled back"
        case PhaseAbsorbed() if active is None or active.id != head.turn:
            yield "late phase rolled back"
        case PhaseAbsorbed():
            yield "first phase committed"
        case GiveUp() | Parked():
            yield from _of_tier(actor, head)
        case InterruptTurn() if active is None and actor.state.last is not None:
            yield "late interrupt"
            if head.keep is not None and head.keep < actor.state.last.kept:
                yield "late interrupt cuts"
        case _:
            return


def _of_give_up(actor: SessionActor, head: GiveUp) -> Iterator[str]:
    state = actor.state
    if state.checkpoint is not None and head.base.version == state.states.before:
        yield "checkpoint dropped"
    elif state.state is not None and head.base.version == state.states.current:
        yield "state given up"
        if actor.active is not None:
            yield "a state given up while its turn is open"
    else:
        yield "asked for a state that is gone"


def _of_tier(actor: SessionActor, head: GiveUp | Parked) -> Iterator[str]:
    yield from _of_park(actor, head) if isinstance(head, Parked) else _of_give_up(actor, head)


def _of_park(actor: SessionActor, head: Parked) -> Iterator[str]:
    states = actor.state.states
    if head.base.version in states.kept:
        yield "a park landed"
        if actor.active is not None:
            yield "a park landed while its turn is open"
    else:
        is_newer = states.current is not NO_STATE and states.current > head.base.version
        yield "a park lost to a commit" if is_newer else "a park lost"


def _at_scheduler(scheduler: Any, head: object) -> Iterator[str]:
    match head:
        case Cancel() | Interrupt():
            turn = scheduler.roster.get(head.turn)
            if turn is not None:
                yield from _cut_short(turn, head, is_parked=turn.id in scheduler.parking.parked)
        case StepLanded():
            flight = scheduler.flight
            transfer = scheduler.parking.flight_of(head.lease)
            if transfer is not None:
                yield from _of_transfer(transfer, head)
            elif flight is None or flight.lease is not head.lease:
                yield "a step lands that nobody waits for"
            elif not isinstance(head.report, StepDone):
                yield "a step lands as failed"
        case _:
            return


def _of_transfer(transfer: TransferFlight, head: StepLanded) -> Iterator[str]:
    if not isinstance(head.report, TransferDone):
        yield "a transfer lands as failed"
    for errand in transfer.errands:
        if isinstance(errand, ReadState):
            yield "a state is read out"
        elif isinstance(errand, ParkTurn) and errand.turn.state is TurnState.ENDED:
            yield "a turn ends on the way to host memory"


def _cut_short(turn: Any, head: Cancel | Interrupt, *, is_parked: bool) -> Iterator[str]:
    what = "cancel" if isinstance(head, Cancel) else "interrupt"
    if turn.in_flight:
        yield f"{what} in flight"
    elif turn.state is TurnState.WAITING:
        yield f"{what} in host memory" if is_parked else f"{what} of a queued turn"
    elif turn.state is TurnState.PARKING:
        yield f"{what} on the way to host memory"
    elif turn.state is TurnState.COMMITTING:
        yield f"{what} between two phases"
    if turn.output.preemptions and turn.state is TurnState.WAITING:
        yield f"preempt then {what}"
    if isinstance(head, Interrupt) and turn.state is TurnState.RUNNING:
        is_below = turn.position < turn.history_len + turn.input_len
        yield "interrupt below a chunk" if is_below else "interrupt above a chunk"
