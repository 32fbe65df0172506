"""The canonical form of a state: two states with one form have the same future.

Everything that decides what can happen next is in it, and no name of it. Claims, slots, pages,
runs, versions, steps and incarnations are numbered in the order in which a walk in a fixed order
meets them, times are only before or after each other, and statistics are left out. What is left
out on purpose, and why that is sound, is in ``docs/explorer.md``; a test compares the fields that
are read here with those that the classes have.
"""

from hashlib import blake2b
from marshal import dumps
from typing import Any

from kernel.actors.actor import AnyActor
from kernel.devices.gpu_pool import GpuPool
from kernel.ids import GPU_POOL, SCHEDULER, SessionId
from kernel.messages import Rested, Tick
from kernel.policies import FirstCome
from kernel.scheduling.scheduler import Scheduler
from kernel.sessions.session import SessionActor
from kernel.testing.explorer.cache_form import cache_form, use_form
from kernel.testing.explorer.callers import Caller
from kernel.testing.explorer.forms import Names, field, message_form, turn_form
from kernel.testing.explorer.parking_form import parking_form
from kernel.testing.explorer.stage import Stage
from kernel.testing.explorer.store_form import session_store_form, store_form
from kernel.testing.explorer.timers import message_of
from ownership import Lease

__all__ = ["canonical", "digest"]


def digest(stage: Stage) -> bytes:
    """A short fingerprint of the canonical form."""
    return blake2b(dumps(canonical(stage), 2), digest_size=16).digest()


def canonical(stage: Stage) -> tuple[Any, ...]:
    """The canonical form."""
    core = stage.core
    callers = _in_order(stage)
    names = Names(core, [caller.plan.name for caller in callers])
    core_form = (
        type(core.failure).__name__,
        type(core.door.closed_by).__name__,
        tuple(sorted(names.turn(turn) for turn in field(core.door, "_tokens_by_turn"))),
        core.audit is not None,
        len(field(field(core.dispatcher, "_restarts"), "_times")),
        field(core.recovery, "_stalls"),
    )
    sessions = tuple(_caller_form(names, caller) for caller in callers)
    scheduler = _scheduler_form(names)
    pool = _pool_form(names, stage)
    return (
        core_form,
        sessions,
        scheduler,
        pool,
        _quarantine_form(names),
        _timers_form(names, stage),
        store_form(names, stage.store),
        names.rest_of_ledger(),
        stage.moves_made,
        stage.faults_made,
    )


def _in_order(stage: Stage) -> list[Caller]:
    """The callers, those that are alike sorted by what they have done and not by their names.

    A tie leaves two states apart that could be one, which costs time and hides nothing.
    """
    same = stage.world.same
    if not same:
        return stage.callers
    alike = [caller for caller in stage.callers if caller.plan.name in same]
    others = [caller for caller in stage.callers if caller.plan.name not in same]
    return [*sorted(alike, key=_history), *others]


def _history(caller: Caller) -> tuple[Any, ...]:
    actor = caller.actor
    ends = tuple(
        (len(one.request.output.tokens), repr(_end_form(one.request.output.end)))
        for one in caller.asked
    )
    if actor is None:
        return (ends,)
    mail = tuple(type(mail).__name__ for mail in actor.mailbox)
    return (ends, len(actor.state.log), actor.active is None, actor.is_closed, mail)


def _caller_form(names: Names, caller: Caller) -> tuple[Any, ...]:
    asked = tuple(
        (
            one.is_refused,
            field(one.request.accepted, "_outcome") is not None,
            one.request.is_cancel_posted,
            _end_form(one.request.output.end),
            tuple(names.reply(reply) for reply in one.interrupts),
            one.request.output.delivered if one.request.output.end is None else 0,
        )
        for one in caller.asked
    )
    actor = caller.actor
    if actor is None:
        return (caller.is_over, asked)
    if names.core.stored is None:
        return (caller.is_over, asked, _session_form(names, actor))
    return (caller.is_over, asked, _session_form(names, actor), _knowledge_form(names, caller))


def _knowledge_form(names: Names, caller: Caller) -> tuple[Any, ...]:
    """Where there is a store: what its caller waits for, and what a session that wakes may say."""
    woken, waking = names.core.sessions.get(SessionId(caller.plan.name)), caller.waking
    actor = caller.actor
    return (
        None if woken is None or woken is actor else _session_form(names, woken),
        actor is not None and (actor.is_closed, actor.seat.actor is None),
        None if waking is None else type(field(waking, "_outcome")).__name__,
        None if caller.removal is None else names.reply(caller.removal),
        caller.is_closing,
        (caller.before, caller.since),
        tuple(tuple(one.request.output.tokens) for one in caller.asked),
    )


def _end_form(end: Any) -> object:
    if end is None:
        return None
    return (end.reason, end.kept, type(end.error).__name__)


def _session_form(names: Names, actor: SessionActor) -> tuple[Any, ...]:
    if actor.is_closed and names.core.dispatcher.actor(actor.name) is not actor:
        return ("gone",)
    state = actor.state
    last = state.last
    active = actor.active
    return (
        state.log.tobytes(),
        names.handle(state.state),
        names.handle(state.checkpoint),
        names.handle(state.held),
        state.image is not None,
        None if state.inherited is None else names.base(state.inherited),
        state.absorbed > 0,
        state.is_woken,
        None
        if last is None
        else (
            names.turn(last.id),
            last.log_before,
            last.input_len,
            last.kept,
            min(last.kept, last.receipt.tokens),
        ),
        None
        if active is None
        else (
            names.turn(active.id),
            active.is_interrupted,
            active.keep,
            len(active.interrupts),
            names.core.dispatcher.incarnation_of(SCHEDULER) - active.scheduler_incarnation,
            _end_form(active.decided),
        ),
        state.cache_salt,
        session_store_form(names, actor),
        actor.turns,
        actor.is_closed,
        actor.is_close_posted,
        tuple((names.turn(one.id), len(one.interrupts)) for one in actor.waiting),
        _mail_form(names, actor),
    )


def _mail_form(names: Names, actor: AnyActor) -> tuple[Any, ...]:
    return tuple(message_form(names, actor, mail) for mail in actor.mailbox)


def _scheduler_form(names: Names) -> tuple[Any, ...]:
    scheduler = names.core.scheduler
    if scheduler is None:
        return ()
    flight = scheduler.flight
    roster = scheduler.roster
    work = field(scheduler, "_work")
    mail = _without_idle_rests([*scheduler.mailbox])
    return (
        # In order of rank, which is all that ranks are for.
        tuple(
            turn_form(
                names,
                turn,
                scheduler.claims.get(turn.id),
                scheduler.parking.parked.get(turn.id),
            )
            for turn in sorted(roster, key=lambda turn: turn.rank)
        ),
        _policy_form(names, scheduler),
        tuple(sorted(names.turn(turn) for turn in work.grows)),
        work.is_short,
        None
        if flight is None
        else (
            names.lease(flight.lease),
            tuple(names.turn(turn.id) for turn in flight.turns),
            flight.absorbs,
            flight.pool_incarnation == names.core.dispatcher.incarnation_of(GPU_POOL),
        ),
        field(scheduler, "_tick_posted"),
        tuple(sorted(map(repr, map(names.base, field(scheduler, "_admission").room.asked)))),
        parking_form(names, scheduler.parking),
        cache_form(names, scheduler),
        tuple(use_form(names, turn.cache) for turn in sorted(roster, key=lambda turn: turn.rank)),
        tuple(message_form(names, scheduler, message) for message in mail),
    )


def _policy_form(names: Names, scheduler: Scheduler) -> tuple[Any, ...]:
    """What decides the ranks of turns to come, among those that are there."""
    policy = field(names.core, "_policy")
    if isinstance(policy, FirstCome):
        return ()
    now = names.core.dispatcher.now()
    return (repr(policy), tuple(sorted(turn.rank[0] - now for turn in scheduler.roster)))


def _without_idle_rests(mail: list[Any]) -> list[Any]:
    """Drop each ``Rested`` that changes nothing, because all that it does is to ask for a tick.

    Ahead of a tick there is one to come, and two in a row ask for the same one.
    """
    last_tick = max((n for n, message in enumerate(mail) if isinstance(message, Tick)), default=-1)
    kept: list[Any] = []
    for number, message in enumerate(mail):
        if isinstance(message, Rested):
            is_second = bool(kept) and isinstance(kept[-1], Rested)
            if number < last_tick or is_second:
                continue
        kept.append(message)
    return kept


def _pool_form(names: Names, stage: Stage) -> tuple[Any, ...]:
    pool = names.core.recovery.pool
    held = tuple(
        (names.step(one.step.step), stage.is_wanted(one), one.worker.is_stopped)
        for one in stage.device.held
    )
    if pool is None:
        return (held,)
    return (_leases_form(names, pool.leases), _mail_form(names, pool), held)


def _leases_form(names: Names, leases: dict[int, Lease]) -> tuple[Any, ...]:
    return tuple((names.step(step), names.lease(lease)) for step, lease in sorted(leases.items()))


def _quarantine_form(names: Names) -> tuple[Any, ...]:
    quarantine = names.core.recovery.quarantine
    abandoned = tuple(
        (tuple(names.step(step) for step in sorted(one.steps)), one.worker.join(0.0))
        for one in field(quarantine, "_abandoned")
    )
    return (_leases_form(names, field(quarantine, "_leases")), abandoned)


def _timers_form(names: Names, stage: Stage) -> tuple[Any, ...]:
    """What is due, in order; a deadline that nobody listens to any more is no part of it."""
    forms: list[Any] = []
    pool = names.core.recovery.pool
    for timer in stage.timers:
        message = message_of(timer)
        step = getattr(message, "step", None)
        if step is not None and not (isinstance(pool, GpuPool) and step in pool.leases):
            continue
        if message is None:
            forms.append("poll")
        else:
            forms.append(message_form(names, None, message))
    return tuple(forms)
