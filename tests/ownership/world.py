"""What random verbs act on, and the witnesses that judge every step."""

import itertools
from typing import Any, TypeVar

import attrs

from ownership import (
    Base,
    BaseName,
    BatchOwned,
    CacheOwned,
    CachePort,
    Capacity,
    Content,
    CustodianId,
    Lease,
    Ledger,
    Owns,
    SessionOwned,
    SessionPort,
)
from tests.ownership.choosers import Chooser
from tests.ownership.memory import Memory, Step
from tests.ownership.replay import Replay

SCHEDULER = CustodianId("scheduler")
CACHE = CustodianId("cache")
T = TypeVar("T")
SESSIONS = (CustodianId("session:a"), CustodianId("session:b"))


@attrs.define(eq=False)
class Working:
    """What the model knows of a working claim."""

    handle: Owns[BatchOwned]
    history: tuple[int, ...]
    base: Base
    is_undefined: bool = False
    is_landed: bool = False


@attrs.define(eq=False)
class Resting:
    """What the model knows of a state at rest."""

    handle: Owns[SessionOwned | CacheOwned]
    name: BaseName
    history: tuple[int, ...]
    holder: CustodianId


@attrs.define(eq=False)
class Flight:
    """A step on the device."""

    lease: Lease
    rows: list[Working]
    tokens: list[tuple[int, ...]]
    step: Step
    has_run: bool
    is_quarantined: bool = False


class World:
    """A ledger, a device that remembers, and the model of what should be there."""

    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.working: list[Working] = []
        self.resting: list[Resting] = []
        self.flights: list[Flight] = []
        self.spent: list[Any] = []
        self.tokens = itertools.count()
        self.replay = Replay()
        pages = choose.one([0, 6, 14, 40])
        slots = choose.number(0 if pages else 1, 6)
        self.ledger = Ledger(
            Capacity(slots, pages, choose.number(1, 4)), observer=self.replay, track_freed=True
        )
        self.memory = Memory(self.ledger)
        self.batch = self.ledger.batch_port(SCHEDULER)
        self.cache: CachePort = self.ledger.cache_port(CACHE)
        self.sessions: dict[CustodianId, SessionPort] = {
            name: self.ledger.session_port(name) for name in SESSIONS
        }

    def note_spent(self, handle: object) -> None:
        """Keep a handle that is about to be spent, to be used once more by mistake."""
        self.spent.append(handle)

    def the_audit_finds_nothing(self) -> None:
        report = self.ledger.audit()
        assert report.problems == ()
        view = self.ledger.view
        assert report.quarantined_slots == view.quarantined_slots
        assert report.quarantined_pages == view.quarantined_pages
        held = report.exclusive_pages + report.shared_pages + report.quarantined_pages
        assert view.free_pages + held == view.capacity.pages
        claims = report.batch + report.session + report.cache + report.draining
        if view.capacity.slots:
            assert view.free_slots + claims + report.quarantined == view.capacity.slots
        assert set(view.resting()) == {s.name for s in self.resting if s.holder != CACHE}

    def the_events_say_the_same(self) -> None:
        view = self.ledger.view
        assert len(self.replay.free_slots) == view.free_slots
        assert len(self.replay.free_pages) == view.free_pages

    def nobody_wrote_into_anothers_memory(self) -> None:
        for state in self.resting:
            seen = self.ledger.view.describe(state.handle)
            self.memory.check(seen.slot, seen.pages, state.history)
        for row in self.working:
            seen = self.ledger.view.describe(row.handle)
            assert seen.position == len(row.history)
            assert (seen.content is Content.UNDEFINED) == row.is_undefined
            if seen.content is Content.VALID:
                self.memory.check(seen.slot, seen.pages, row.history)
