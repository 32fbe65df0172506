"""What random verbs act on, and the witnesses that judge every step."""

import itertools
from typing import Any, TypeVar

import attrs

from ownership import (
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
    Place,
    SessionOwned,
    SessionPort,
)
from tests.ownership.choosers import Chooser
from tests.ownership.memory import Image, Memory, Step
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
    origin: BaseName | None
    """The state at rest that it came from, itself or by way of another working claim."""
    place: Place = Place.DEVICE
    first_page: int = 0
    source: "Working | Resting | None" = None
    """What its first step copies; kept until that has landed."""
    is_undefined: bool = False
    is_landed: bool = False

    @property
    def is_moving(self) -> bool:
        """Whether it has yet to be copied from another place."""
        return self.source is not None and self.source.place is not self.place


@attrs.define(eq=False)
class Resting:
    """What the model knows of a state at rest."""

    handle: Owns[SessionOwned | CacheOwned]
    name: BaseName
    history: tuple[int, ...]
    holder: CustodianId
    place: Place = Place.DEVICE
    first_page: int = 0


@attrs.define(eq=False)
class Flight:
    """A step on the device."""

    lease: Lease
    rows: list[Working]
    tokens: list[tuple[int, ...]]
    step: Step
    images: list[Image | None] | None
    """What its rows have read out; None: it has yet to run."""
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
        size = choose.number(1, 4)
        host_slots = choose.number(0, 6) if slots else 0
        host_pages = choose.one([0, 6, 14, 40]) if pages else 0
        self.ledger = Ledger(
            Capacity(slots, pages, size),
            host=Capacity(host_slots, host_pages, size) if host_slots + host_pages else None,
            observer=self.replay,
            track_freed=True,
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

    def unlanded(self) -> list[Working]:
        """Claims whose first step is still to land, those on the device included."""
        rows = [*self.working, *(row for flight in self.flights for row in flight.rows)]
        return [row for row in rows if row.source is not None]

    def is_now(self, row: Working, kept: Resting) -> None:
        """A working claim is a state at rest now, and so is what others copy."""
        for copy in self.unlanded():
            if copy.source is row:
                copy.source = kept

    def the_audit_finds_nothing(self) -> None:
        report = self.ledger.audit()
        assert report.problems == ()
        view = self.ledger.view
        assert report.quarantined_slots == view.quarantined_slots
        assert report.quarantined_pages == view.quarantined_pages
        slots, pages = self.everything()
        (slots_free, pages_free), (host_slots_free, host_pages_free) = self.free()
        held = report.exclusive_pages + report.shared_pages + report.quarantined_pages
        held += report.host_quarantined_pages
        assert pages_free + host_pages_free + held == pages
        counted = report.batch + report.session + report.cache + report.draining
        in_memory = sum(report.on_device.values()) + sum(report.in_host.values())
        rows = [*self.working, *(row for flight in self.flights for row in flight.rows)]
        files = sum(row.place is Place.FILE for row in rows)
        assert counted + report.quarantined == in_memory + files
        if view.capacity.slots:
            assert slots_free + host_slots_free + in_memory == slots
        for place in Place:
            states = [s.name for s in self.resting if s.holder != CACHE and s.place is place]
            assert view.resting(place) == tuple(states)

    def free(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Slots and pages on the device, and in host memory."""
        return self.ledger.view.free(Place.DEVICE), self.ledger.view.free(Place.HOST)

    def everything(self) -> tuple[int, int]:
        """Slots and pages of all places."""
        device, host = self.ledger.view.capacity, self.ledger.view.host_capacity
        if host is None:
            return device.slots, device.pages
        return device.slots + host.slots, device.pages + host.pages

    def the_events_say_the_same(self) -> None:
        (slots, pages), (host_slots, host_pages) = self.free()
        assert len(self.replay.free_slots) == slots + host_slots
        assert len(self.replay.free_pages) == pages + host_pages

    def nobody_wrote_into_anothers_memory(self) -> None:
        for state in self.resting:
            seen = self.ledger.view.describe(state.handle)
            assert (seen.place, seen.name) == (state.place, state.name)
            assert seen.first_page == state.first_page
            assert seen.pinned == sum(copy.source is state for copy in self.unlanded())
            self.memory.check(seen, state.history)
        for row in self.working:
            seen = self.ledger.view.describe(row.handle)
            assert seen.position == len(row.history)
            assert (seen.content is Content.UNDEFINED) == row.is_undefined
            assert (seen.place, seen.first_page) == (row.place, row.first_page)
            assert seen.pinned == sum(copy.source is row for copy in self.unlanded())
            if seen.content is Content.VALID:
                self.memory.check(seen, row.history)
