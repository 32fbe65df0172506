"""A small ledger with one port of each kind, and the steps that most tests begin with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ownership import (
    ZEROS,
    Absorbed,
    Base,
    BaseName,
    BatchOwned,
    BatchPort,
    CachePort,
    Capacity,
    ClaimHandle,
    Consume,
    CustodianId,
    Ledger,
    Need,
    Place,
    Refused,
    SessionOwned,
    SessionPort,
    StepFailed,
)

SCHEDULER = CustodianId("scheduler")
SESSION = CustodianId("session:a")
OTHER = CustodianId("session:b")
CACHE = CustodianId("cache")
MAIL = CustodianId("mail:session:a")

Event = tuple[str, Mapping[str, object]]


class Recorder:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: str, fields: Mapping[str, object], /) -> None:
        self.events.append((event, fields))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def only(self, event: str) -> Mapping[str, object]:
        (fields,) = (fields for name, fields in self.events if name == event)
        return fields


@attrs.frozen
class Desk:
    """A ledger and its three ports."""

    ledger: Ledger
    batch: BatchPort
    session: SessionPort
    cache: CachePort
    kept: list[object] = attrs.field(factory=list[object])
    """States that a test only names: a handle that nobody keeps is a violation."""

    def reserve(
        self,
        positions: int = 0,
        base: Base | BatchOwned = ZEROS,
        turn: str = "turn",
        *,
        place: Place = Place.DEVICE,
        first_page: int = 0,
    ) -> BatchOwned:
        claim = self.batch.reserve(Need(positions, first_page), base, turn=turn, place=place)
        assert not isinstance(claim, Refused), claim
        return claim

    def copied(
        self, base: Base | BatchOwned, place: Place = Place.HOST, first_page: int = 0
    ) -> BatchOwned:
        """An unchanged copy of a state in a place: a turn without tokens."""
        claim = self.reserve(0, base, place=place, first_page=first_page)
        self.step([claim], 0)
        return claim

    def parked(self, state: Consume[SessionOwned], place: Place = Place.HOST) -> SessionOwned:
        """The same state of ``SESSION``, moved to another place."""
        claim = self.hand(self.copied(self.ledger.view.name_of(state), place))
        parked = self.session.commit(claim, replaces=state)
        self.keep(parked)
        return parked

    def pages(self, handle: ClaimHandle) -> list[int]:
        """The page table of a claim, as the ledger counts."""
        return list(self.ledger.view.describe(handle).pages)

    def pinned(self, handle: ClaimHandle) -> int:
        return self.ledger.view.describe(handle).pinned

    def step(self, claims: Sequence[BatchOwned], *tokens: int) -> None:
        """Launch the claims and land them with so many tokens each."""
        lease = self.batch.launch(claims, step=1)
        self.batch.land(lease, Absorbed(tokens))

    def fail(self, *claims: BatchOwned) -> None:
        self.batch.land(self.batch.launch(claims, step=1), StepFailed("it broke"))

    def working(self, tokens: int, base: Base = ZEROS, covers: int | None = None) -> BatchOwned:
        """A claim that has absorbed ``tokens`` beyond its base in one step."""
        start = 0
        if base is not ZEROS:
            found = self.ledger.view.find_base(base)
            assert found is not None
            start = found.position
        claim = self.reserve(start + tokens if covers is None else covers, base)
        self.step([claim], tokens)
        return claim

    def hand(self, claim: BatchOwned, target: CustodianId = SESSION) -> BatchOwned:
        self.ledger.move(claim, SCHEDULER, target, "test")
        return claim

    def committed(
        self, tokens: int, base: Base = ZEROS, replaces: Consume[SessionOwned | None] = None
    ) -> SessionOwned:
        """A state of ``SESSION`` that absorbed ``tokens`` beyond its base."""
        working = self.hand(self.working(tokens, base))
        state = self.session.commit(working, replaces=replaces)
        self.keep(state)
        return state

    def keep(self, handle: object) -> None:
        """Let a handle live on, whoever owns it."""
        self.kept.append(handle)

    def name(self, version: int | None = None, holder: CustodianId = SESSION) -> BaseName:
        return BaseName(holder, self.session.version if version is None else version)

    def check(self) -> None:
        report = self.ledger.view.audit()
        assert report.problems == ()

    def is_empty(self) -> bool:
        view = self.ledger.view
        self.check()
        is_all_free = all(
            view.free(place) == ((size.slots, size.pages) if size else (0, 0))
            for place, size in (
                (Place.DEVICE, view.capacity),
                (Place.HOST, view.host_capacity),
                (Place.FILE, None),
            )
        )
        return view.audit().at_rest and is_all_free


def open_desk(
    slots: int = 4,
    pages: int = 16,
    page_size: int = 4,
    *,
    host: tuple[int, int] | None = None,
    observer: Recorder | None = None,
    track_freed: bool = False,
) -> Desk:
    ledger = Ledger(
        Capacity(slots, pages, page_size),
        host=None if host is None else Capacity(*host, page_size),
        observer=observer,
        track_freed=track_freed,
    )
    return Desk(
        ledger,
        ledger.batch_port(SCHEDULER),
        ledger.session_port(SESSION),
        ledger.cache_port(CACHE),
    )


def untyped(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb as code without types sees it."""
    return verb


def snapshot(ledger: Ledger) -> object:
    """Everything that a refused verb must leave as it was."""
    view = ledger.view
    custodians = (SCHEDULER, SESSION, OTHER, CACHE, MAIL, CustodianId("device"))
    return (
        view.audit(),
        [view.resting(place) for place in Place],
        [view.held_by(custodian) for custodian in custodians],
        attrs.evolve(view.counters, violations=0),
    )
