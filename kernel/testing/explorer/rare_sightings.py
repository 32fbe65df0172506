"""What is seen in worlds with a prefix cache or a store alone."""

from collections.abc import Iterator
from typing import Self

import attrs

from kernel.ids import SCHEDULER, STORE
from kernel.messages import (
    Cancel,
    CancelTurn,
    ClearCache,
    CloseSession,
    Down,
    Hibernate,
    InterruptTurn,
    StateRead,
)
from kernel.messages.store import LogStored, StateFetched, StateStored
from kernel.scheduling.scheduler import Scheduler
from kernel.session_store import StoreFault
from kernel.sessions.session import SessionActor
from kernel.testing.explorer.events import Event
from kernel.testing.explorer.forms import field
from kernel.testing.explorer.stage import Stage
from kernel.turn import TurnState
from ownership import Kind

__all__ = ["Figures", "of_cache_event", "of_store_message"]


@attrs.frozen
class Figures:
    """What can be counted before and after an event."""

    published: int
    hits: int
    evictions: int
    dormant: int
    """Sessions that went dormant and have not come back."""
    woken: int
    """Of those that did, whose callers have not looked yet."""
    taken_up: int
    """Those that died, and are there again."""

    @classmethod
    def of(cls, stage: Stage) -> Self:
        """What they are now."""
        counters, alive = stage.core.counters, stage.core.sessions.values()
        mine = [one.actor for one in stage.callers if one.actor is not None]
        mine = [actor for actor in mine if not actor.is_one_shot]
        again = {actor.name for actor in alive if actor not in mine}
        pairs = [(actor, actor.seat.actor) for actor in mine]
        return cls(
            counters.cache_published,
            counters.cache_hits,
            counters.cache_evictions,
            sum(now is None for _, now in pairs),
            sum(now is not None and now is not actor for actor, now in pairs),
            sum(now is actor and actor.name in again for actor, now in pairs),
        )

    def since(self, before: Self) -> Iterator[str]:
        """What has happened."""
        if self.published > before.published:
            yield "a state is published"
        if self.hits > before.hits:
            yield "a cached state is used"
        if self.evictions > before.evictions:
            yield "a cached state is evicted"
        if self.dormant > before.dormant:
            yield "a session goes dormant"
        if self.woken > before.woken:
            yield "a dormant session is woken"
        if self.taken_up > before.taken_up:
            yield "a session that died is taken up again"


def of_cache_event(stage: Stage, event: Event, head: object) -> Iterator[str]:
    """At the scheduler, or of its death."""
    scheduler = stage.core.scheduler
    if scheduler is None or scheduler.cache is None:
        return
    is_death = event.kind in ("crash", "kill") and event.who == SCHEDULER
    if is_death and scheduler.cache.states:
        yield "the scheduler dies with cached states"
    if event.who != SCHEDULER or event.kind != "deliver":
        return
    if isinstance(head, ClearCache) and _pinned(stage, scheduler):
        yield "a cached state is evicted while pinned"
    if isinstance(head, Cancel) and _is_between(stage, scheduler, head):
        yield "cancel between match and launch"


def _pinned(stage: Stage, scheduler: Scheduler) -> bool:
    cache, book = scheduler.cache, field(stage.core.ledger, "_book")
    return cache is not None and any(book.live[id(one)].pins for one in cache.states.values())


def _is_between(stage: Stage, scheduler: Scheduler, head: Cancel) -> bool:
    turn, claim = scheduler.roster.get(head.turn), scheduler.claims.get(head.turn)
    if turn is None or claim is None or turn.in_flight or turn.state is not TurnState.RUNNING:
        return False
    base = field(stage.core.ledger, "_book").live[id(claim)].base
    return base is not None and base.kind in (Kind.CACHE, Kind.DRAINING)


def of_store_message(actor: SessionActor, head: object) -> Iterator[str]:
    """At a session that is kept."""
    archive, active = actor.archive, actor.active
    if archive is None:
        return
    is_kept = active is not None and active.decided is not None
    match head:
        case LogStored() if is_kept:
            yield "a turn is refused by the store" if head.fault is not None else "a turn is kept"
        case LogStored() if head.fault is not None:
            yield "a change of the log is refused by the store"
        case StateStored():
            yield "a snapshot is refused" if head.fault is not None else "a snapshot is kept"
        case StateFetched() if not isinstance(head.found, StoreFault):
            yield "a turn starts from a snapshot" if active is not None else "a snapshot too late"
        case StateRead() if head.image is not None:
            yield "a state is read out to be kept"
        case Hibernate() if active is not None:
            yield "asked to go while its turn runs"
        case Down() if head.name == STORE and archive.change is not None:
            yield "the store dies with a change under way"
        case CancelTurn() | InterruptTurn() | CloseSession() if is_kept:
            what = type(head).__name__.removesuffix("Turn").removesuffix("Session").lower()
            yield f"{what} while the turn is being kept"
        case _:
            return
