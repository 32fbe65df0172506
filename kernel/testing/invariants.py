"""What must hold of a kernel between two messages, and when it has come to rest.

``always`` may be asked after each handler, ``at_rest`` when nothing is left to do, ``all_free``
after every session was closed. Each answers with what is broken; an empty list is the proof. They
look at the one table and at every actor's own list, and compare the two.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import attrs

from kernel.actors.actor import AnyActor
from kernel.devices.orphans import orphans
from kernel.engine.core import Core
from kernel.ids import SCHEDULER, STORE
from kernel.scheduling.scheduler import Scheduler
from kernel.sessions.session import SessionActor
from kernel.sessions.store_actor import StoreActor
from ownership import BaseName, ClaimHandle, ClaimId, CustodianId, Kind, LedgerView

__all__ = ["Broken", "all_free", "always", "at_rest"]

_asked: Callable[[object], set[BaseName]] = attrgetter("_admission.room.asked")
"""States that the scheduler has asked for and not had an answer about."""


@attrs.frozen
class Broken:
    """A property that does not hold, and what shows it."""

    property: str
    message: str

    def __str__(self) -> str:
        return f"{self.property}: {self.message}"


def always(core: Core, *, deaths: int = 0, reclaims: bool = False) -> list[Broken]:
    """What must hold between any two handlers.

    Args:
        core: the kernel to look at.
        deaths: how many actors were made to die; one more died of a bug.
        reclaims: whether claims may have been taken back from the dead: after a planted death.
    """
    return [
        *_ledger_problems(core, reclaims=reclaims),
        *_deaths(core, deaths),
        *_poison(core),
        *(broken for actor in core.dispatcher.actors() for broken in _mailbox(core, actor)),
        *(broken for actor in core.sessions.values() for broken in _session(core, actor)),
        *_scheduler(core),
    ]


def at_rest(core: Core) -> list[Broken]:
    """What must hold when no message is under way, no step runs and no caller has more to ask."""
    return [Broken("at rest", message) for message in _unrest(core)]


def all_free(core: Core) -> list[Broken]:
    """What must hold when every session was closed and all has come to rest."""
    audit = core.ledger.audit()
    limits = core.limits
    host = core.ledger.view.host_capacity
    problems: list[str] = []
    if not audit.at_rest:
        problems.append(f"something is still owned: {audit}")
    slots = audit.free_slots + audit.quarantined_slots
    pages = audit.free_pages + audit.quarantined_pages
    if (slots, pages) != (limits.num_slots, limits.num_pages):
        problems.append(
            f"{slots} of {limits.num_slots} slots and {pages} of {limits.num_pages} pages are "
            "free or in quarantine"
        )
    slots = audit.host_free_slots + audit.host_quarantined_slots
    pages = audit.host_free_pages + audit.host_quarantined_pages
    if host is not None and (slots, pages) != (host.slots, host.pages):
        problems.append(
            f"{slots} of {host.slots} slots and {pages} of {host.pages} pages of host memory are "
            "free or in quarantine"
        )
    return [Broken("everything free", problem) for problem in problems]


def _ledger_problems(core: Core, *, reclaims: bool) -> Iterator[Broken]:
    for problem in core.ledger.audit().problems:
        yield Broken("conservation", problem)
    counters = core.ledger.view.counters
    if counters.violations:
        last = core.ledger.view.violations[-1]
        yield Broken("no violation", f"{last.kind}: {last.message}")
    if counters.reclaimed and not reclaims:
        yield Broken("no reclaim without a fault", f"{counters.reclaimed} claims were taken back")
    scheduler, pool = core.scheduler, core.recovery.pool
    for lease in orphans(core.ledger.view, core.recovery.quarantine, pool, scheduler):
        yield Broken("a lease is known", f"nobody is left to land {lease!r}")


def _deaths(core: Core, expected: int) -> Iterator[Broken]:
    deaths = core.dispatcher.deaths
    if deaths > expected:
        yield Broken("nobody dies", f"{deaths} actors have died, {expected} were made to")


def _poison(core: Core) -> Iterator[Broken]:
    reads: Sequence[object] = getattr(core.device, "poison_reads", ())
    if reads:
        yield Broken("no poison is read", f"{reads[0]!r}")


def _mailbox(core: Core, actor: AnyActor) -> Iterator[Broken]:
    mailbox = actor.mailbox
    # What a session has taken and not answered waits there still.
    waiting = actor.num_mail if isinstance(actor, SessionActor) else len(mailbox)
    if waiting > actor.mail_bound:
        yield Broken(
            "mailboxes are bounded",
            f"{waiting} messages for {actor.name}, at most {actor.mail_bound} are meant to be",
        )
    carried = [getattr(mail, name) for mail in mailbox for name in mail.carries]
    if carried or core.ledger.view.held_by(mailbox.custodian):
        yield from _custody(core, mailbox.custodian, carried)


def _session(core: Core, actor: SessionActor) -> Iterator[Broken]:
    state = actor.state
    listed = [one for one in (*state.states.kept.values(), state.held) if one is not None]
    broken = list(_custody(core, actor.name, listed))
    yield from broken
    versions: list[int] = [] if broken else list(state.states.kept)
    position = max(map(state.states.position, versions), default=0)
    if position and position > len(state.log) - 1:
        yield Broken(
            "something is pending",
            f"{actor.name} has absorbed {position} of {len(state.log)} tokens of its log",
        )


def _scheduler(core: Core) -> Iterator[Broken]:
    scheduler = core.scheduler
    if scheduler is None:
        return
    parking, cache = scheduler.parking, scheduler.cache
    cached = () if cache is None else cache.states.values()
    copies = (*parking.parked.values(), *parking.copies.values())
    yield from _custody(core, SCHEDULER, (*scheduler.claims.values(), *copies, *cached))
    for turn in [*scheduler.claims, *parking.parked]:
        if scheduler.roster.get(turn) is None:
            yield Broken("a claim has a turn", f"the scheduler has a claim of {turn}, which ended")


def _custody(core: Core, holder: CustodianId, listed: Sequence[ClaimHandle]) -> Iterator[Broken]:
    """The holder's own list must be the table's list for it."""
    view = core.ledger.view
    table: set[ClaimId] = {claim.claim for claim in view.held_by(holder)}
    own: list[ClaimId] = []
    for handle in listed:
        try:
            own.append(view.describe(handle).claim)
        except Exception as error:  # a spent handle that somebody still lists
            yield Broken("one custodian", f"{holder} lists {handle!r}: {error}")
            return
    if len(own) != len(table) or set(own) != table:
        yield Broken(
            "one custodian",
            f"{holder} lists claims {sorted(own)}, the table says it holds {sorted(table)}",
        )


def _unrest(core: Core) -> Iterator[str]:
    if not core.dispatcher.is_quiet:
        yield "a message is under way"
    if core.door.queued_reqs:
        yield f"the door still counts {core.door.queued_reqs} turns"
    for actor in core.sessions.values():
        yield from _restless_session(actor)
    if core.scheduler is not None:
        yield from _restless_scheduler(core.scheduler)
    store = core.dispatcher.actor(STORE)
    if isinstance(store, StoreActor) and not store.is_idle:
        yield "the store has not done all that it was asked"
    yield from _restless_ledger(core.ledger.view)


def _restless_session(actor: SessionActor) -> Iterator[str]:
    if actor.active is not None:
        yield f"turn {actor.active.id} of {actor.name} is open, and nothing will happen"
    for request in actor.waiting:
        yield f"turn {request.id} of {actor.name} waits for ever"
    if actor.state.held is not None:
        yield f"{actor.name} holds a claim of a turn that is over"
    if actor.has_business_with(SCHEDULER) and actor.active is None:
        yield f"{actor.name} waits for a state to be read out"
    if actor.archive is not None:
        if actor.archive.has_business:
            yield f"{actor.name} waits for the store"
        for message in actor.archive.deferred:
            yield f"{actor.name} has never handled {message}"


def _restless_scheduler(scheduler: Scheduler) -> Iterator[str]:
    for turn in scheduler.roster:
        yield f"the scheduler has turn {turn.id} ({turn.state.value}), which nobody waits for"
    if scheduler.flight is not None:
        yield f"step {scheduler.flight.step} has not landed"
    for base in {*_asked(scheduler), *scheduler.parking.asked}:
        yield f"{base} was asked for, and nobody has answered"
    for flight in scheduler.parking.flights:
        yield f"{flight.lease!r} has not landed"
    cache = scheduler.cache
    if cache is not None and cache.books.bytes > cache.books.sizes.budget:
        yield f"the prefix cache has {cache.books.bytes} bytes, beyond its budget"


def _restless_ledger(view: LedgerView) -> Iterator[str]:
    for claim in view.held_by(SCHEDULER):
        if claim.kind is not Kind.CACHE:
            yield f"the scheduler holds {claim}"
    if len(view.leases()) > view.quarantined_leases:
        yield "a step is on the device"
