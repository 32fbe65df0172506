"""Which events are possible in a state: what must go on, and what callers and faults may add."""

from collections.abc import Iterator

from kernel.ids import GPU_POOL, SCHEDULER, STORE
from kernel.messages import StepOverdue
from kernel.messages.store import StoreOverdue
from kernel.testing.explorer.events import Event
from kernel.testing.explorer.forms import field
from kernel.testing.explorer.stage import Stage
from kernel.testing.explorer.timers import message_of

__all__ = ["extras", "may_fault", "progress"]

_OVERDUE = ("it hangs", "it completes just before", "it completes just after")


def progress(stage: Stage) -> list[Event]:
    """What happens by itself, sooner or later; in a quiescent state there is none of it.

    The GPU pool is always served first. What it does commutes with whatever another actor or a
    caller could do instead: it reads its own leases and the placements of claims that the device
    has, and its only post, ``StepLanded``, could have come later by a later completion.
    """
    dispatcher = stage.core.dispatcher
    pool = dispatcher.actor(GPU_POOL)
    if pool is not None and len(pool.mailbox):
        return [Event("deliver", GPU_POOL)]
    actors = sorted(dispatcher.actors(), key=lambda actor: (actor.name == SCHEDULER, actor.name))
    events = [Event("deliver", actor.name) for actor in actors if len(actor.mailbox)]
    events += [
        Event("complete", number=number, detail="done")
        for number, held in enumerate(stage.device.held)
        if stage.is_wanted(held) and held.is_running
    ]
    if stage.store is not None and stage.store.jobs:
        events.append(Event("store", detail="done"))
    events += [
        Event("start", one.plan.name)
        for one in stage.callers
        if one.may_start() and (stage.holds_states or not one.plan.needs_cached)
    ]
    if _has_ended_worker(stage):
        events.append(Event("poll"))
    return events


def extras(stage: Stage) -> Iterator[Event]:
    """What may happen beside, as far as the world's budgets go."""
    world = stage.world
    if stage.core.audit is not None:
        return
    has_left = stage.moves_made + stage.faults_made < world.max_together
    if has_left and stage.moves_made < world.max_moves:
        is_free = world.first_move is None or stage.moves_made > 0
        yield from (one for one in _moves(stage) if is_free or one.kind == world.first_move)
    for number, held in enumerate(stage.device.held):
        if not stage.is_wanted(held) and held.is_running:
            yield Event("complete", number=number, detail="late")
    if may_fault(stage):
        yield from _faults(stage)


def may_fault(stage: Stage) -> bool:
    """Whether the world's budgets allow one more fault."""
    world = stage.world
    if world.moves_first and stage.moves_made < world.max_moves:
        return False
    has_left = stage.moves_made + stage.faults_made < world.max_together
    return has_left and stage.faults_made < world.max_faults


def _moves(stage: Stage) -> Iterator[Event]:
    moves = stage.world.moves
    pool = stage.core.dispatcher.actor(GPU_POOL)
    if not moves or (pool is not None and len(pool.mailbox)):
        return
    for caller in stage.callers:
        for asked in caller.asked:
            request = asked.request
            if "cancel" in moves and asked.is_open and not request.is_cancel_posted:
                yield Event("cancel", request.id)
            if "interrupt" in moves and request.accepted.is_settled and not asked.interrupts:
                for number, how in enumerate(stage.world.interrupts):
                    if asked is caller.asked[-1] and (how.keep or 0) <= len(request.output.tokens):
                        yield Event("interrupt", request.id, number)
        if "close" in moves and caller.may_close():
            yield Event("close", caller.plan.name)
    if "reset" in moves and stage.holds_states:
        yield Event("reset")
    if "shutdown" in moves and stage.core.door.closed_by is None:
        yield Event("shutdown")
    if "alarm" in moves:
        yield from _alarms(stage)


def _alarms(stage: Stage) -> Iterator[Event]:
    for number, timer in enumerate(stage.timers):
        message = message_of(timer)
        if message is not None and not isinstance(message, StepOverdue | StoreOverdue):
            yield Event("alarm", type(message).__name__, number)


def _faults(stage: Stage) -> Iterator[Event]:
    faults = stage.world.faults
    for number, held in enumerate(stage.device.held):
        if not stage.is_wanted(held) or not held.is_running:
            continue
        if "step fails" in faults:
            yield Event("complete", number=number, detail="failed")
        if "device lost" in faults:
            yield Event("complete", number=number, detail="lost")
        if "overdue" in faults and stage.deadline_of(held) is not None:
            for detail in _OVERDUE:
                yield Event("overdue", number=number, detail=detail)
    yield from _store_faults(stage)
    if "kill" in faults:
        for actor in sorted(stage.core.dispatcher.actors(), key=lambda actor: actor.name):
            if actor.name.partition(":")[0] in stage.world.victims:
                yield Event("kill", actor.name)


def _store_faults(stage: Stage) -> Iterator[Event]:
    if stage.store is None or not stage.store.jobs:
        return
    if "job fails" in stage.world.faults:
        yield Event("store", detail="failed")
    if "job overdue" in stage.world.faults and stage.store_timer is not None:
        yield Event("overdue", STORE)


def _has_ended_worker(stage: Stage) -> bool:
    abandoned = field(stage.core.recovery.quarantine, "_abandoned")
    return any(one.worker.join(0.0) for one in abandoned)
