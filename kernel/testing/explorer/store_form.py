"""Canonical forms of what sessions keep in a store, of its actor, its jobs, and its disk."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kernel.engine.core import Core
from kernel.ids import SCHEDULER, STORE
from kernel.sessions.archive import SessionArchive
from kernel.sessions.session import SessionActor
from kernel.sessions.snapshots import SessionSnapshots
from kernel.sessions.store_actor import StoreActor
from kernel.sessions.stored_sessions import StoredSessions
from kernel.testing.explorer.forms import Names, field, message_form
from kernel.testing.explorer.held_store import HeldStore
from kernel.testing.explorer.job_form import job_form
from ownership import BaseName, CustodianId

__all__ = ["session_store_form", "store_form"]


def store_form(names: Names, store: HeldStore | None) -> tuple[Any, ...]:
    """All of the store that is no session's; empty where there is none."""
    stored = names.core.stored
    if store is None or stored is None:
        return ()
    actor = names.core.dispatcher.actor(STORE)
    return (
        _actor_form(names, actor) if isinstance(actor, StoreActor) else (),
        tuple((job_form(names, held.job), _reports(names, held.done)) for held in store.jobs),
        store.is_stopped,
        _disk_form(names, store),
        _stored_form(names, stored),
    )


def _actor_form(names: Names, actor: StoreActor) -> tuple[Any, ...]:
    now = names.core.dispatcher.now()
    opened: dict[int, Any] = field(actor, "_open")
    images = field(actor, "_images").values()
    return (
        tuple(
            (names.number("job", number), _business_form(names, one))
            for number, one in opened.items()
        ),
        tuple((at - now, number in opened) for at, number in field(actor, "_deadlines")),
        field(actor, "_timer") is not None,
        field(actor, "_num_asks"),
        (field(actor, "_bytes_out"), field(actor, "_bytes_in")),
        tuple(_business_form(names, fetch) for fetch in (*images, None, *field(actor, "_fetches"))),
        tuple(_business_form(names, fetch) for fetch in field(actor, "_reading")),
        tuple(message_form(names, actor, mail) for mail in actor.mailbox),
    )


def _business_form(names: Names, business: Any) -> tuple[Any, ...]:
    """Of something that the store's actor has under way for somebody."""
    if business is None:
        return ()
    asker = getattr(business, "asker", None)
    return (
        type(business).__name__,
        None if asker is None else names.actor(asker),
        names.turn(getattr(business, "turn", None)),
        names.place(getattr(business, "session_id", "")),
        names.asked(business.number) if hasattr(business, "number") else None,
        getattr(business, "position", None),
        tuple(getattr(business, "begin", None) or ()),
    )


def _reports(names: Names, done: Callable[..., Any]) -> tuple[Any, ...]:
    """Which business a report is for, and what its other jobs have come to."""
    cells = dict(zip(done.__code__.co_freevars, done.__closure__ or (), strict=True))
    number, reports = cells["number"].cell_contents, cells["reports"].cell_contents
    return (names.number("job", number), tuple(type(one).__name__ for one in reports))


def _disk_form(names: Names, store: HeldStore) -> tuple[Any, ...]:
    return tuple(
        (
            names.place(name),
            tuple((turn.start, turn.input_len, turn.tokens.tobytes()) for turn in kept.turns),
            repr(kept.facts),
            None if kept.image is None else kept.image.position,
        )
        for name, kept in sorted(store.disk.sessions.items())
    )


def _stored_form(names: Names, stored: StoredSessions) -> tuple[Any, ...]:
    residents, waking, dormant = stored.residents, stored.waking, stored.dormant
    return (
        tuple((type(ask).__name__, names.place(ask.session_id)) for ask in field(stored, "_asks")),
        # In order of arrival; the waiters' replies are their callers', and in their forms.
        tuple((names.place(one), len(who)) for one, who in field(waking, "_queue").items()),
        tuple((names.place(one), len(who)) for one, who in field(waking, "_reading").items()),
        tuple(sorted((names.place(name), n) for name, n in field(waking, "_outdated").items())),
        tuple(sorted((names.place(name), n) for name, n in field(stored, "_wanted").items())),
        tuple(map(names.place, field(residents, "_resting"))),
        tuple(sorted(map(names.place, field(residents, "_asked")))),
        (field(residents, "_count"), field(residents, "_awaited")),
        tuple(sorted(map(names.place, field(dormant, "_seats")))),
    )


def session_store_form(names: Names, actor: SessionActor) -> tuple[Any, ...]:
    """A session's side of the store; empty where there is none."""
    archive = actor.archive
    if archive is None:
        return ()
    state, tiers, rest = actor.state, field(actor, "_tiers"), field(actor, "_rest")
    reads: tuple[tuple[BaseName, Any], ...] = field(tiers, "_reads")
    return (
        _archive_form(names, actor, archive),
        tuple(turn.start for turn in field(state.logged, "_turns")),
        0 if state.image is None else state.image.position,
        (field(rest, "_is_leaving"), field(rest, "_is_held_up")) if rest is not None else (),
        tuple((names.base(base), _then(names, then)) for base, then in reads),
        names.turn(field(tiers, "_fetched")),
        actor.removed is not None,
        actor.seat.actor is actor,
    )


def _archive_form(names: Names, actor: SessionActor, archive: SessionArchive) -> tuple[Any, ...]:
    change, snapshots = archive.change, archive.snapshots
    incarnation = _lives(names.core, STORE)
    return (
        None
        if change is None
        else (
            names.asked(change.number),
            incarnation - change.incarnation,
            (change.length, change.shortest),
            _then(names, change.keep),
            _then(names, change.lose),
        ),
        tuple(message_form(names, actor, one) for one in archive.deferred),
        archive.is_opened,
        field(archive, "_kept_len"),
        field(archive, "_has_kept_facts"),
        field(archive, "_kept_salt"),
        field(archive, "_is_in_doubt"),
        (snapshots.position, field(snapshots, "_bytes"), _parent_form(names, snapshots)),
        tuple(
            (names.asked(number), at, _then(names, then))
            for number, at, _, then in field(snapshots, "_offered")
        ),
        tuple(
            (
                *(names.turn(one.ticket), incarnation - one.incarnation),
                *(one.position, one.is_own, _then(names, one.then)),
            )
            for one in field(snapshots, "_fetches")
        ),
    )


def _parent_form(names: Names, snapshots: SessionSnapshots) -> tuple[Any, ...]:
    """Of the session that it is a fork of: whose snapshot it may read."""
    parent: SessionSnapshots | None = field(snapshots, "_parent")
    return () if parent is None else (names.actor(field(parent, "_holder")), parent.position)


def _lives(core: Core, name: CustodianId) -> int:
    return core.dispatcher.incarnation_of(name)


def _then(names: Names, then: Any) -> tuple[Any, ...]:
    """What happens when an answer comes: which function, and what it was given."""
    if not isinstance(then, partial):
        return (then.__name__,)
    given = [_given(names, one) for one in then.args]
    return (then.func.__name__, *given)


def _given(names: Names, one: Any) -> Any:
    if isinstance(one, BaseName):
        return names.base(one)
    if isinstance(one, int):
        return _lives(names.core, SCHEDULER) - one
    return type(one).__name__
