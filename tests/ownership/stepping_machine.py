"""The first half of a ledger as a hypothesis state machine: admission, steps, custody."""

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    precondition,
    rule,
)

from ownership import (
    DEVICE,
    ZEROS,
    Absorbed,
    Base,
    BatchOwned,
    Capacity,
    CustodianId,
    Grown,
    Ledger,
    LedgerError,
    Need,
    OwnershipError,
    Place,
    Refused,
    StaleHandle,
    StepFailed,
)
from tests.ownership.model import Claim, Launched, Model, Page

__all__ = ["CACHE", "POSITIONS", "SCHEDULER", "SESSION", "SteppingMachine"]

SCHEDULER, SESSION, CACHE = map(CustodianId, ("scheduler", "session", "cache"))
POSITIONS = st.integers(0, 9)
PLACES = st.sampled_from([Place.DEVICE, Place.HOST, Place.DEVICE, Place.HOST, Place.FILE])
DROPS = st.sampled_from([0, 0, 0, 1, 2])
"""Pages that a claim does not keep."""


class SteppingMachine(RuleBasedStateMachine):
    """Claims begin, go to the device and come back, change hands, and are rolled back."""

    working: Bundle[Claim] = Bundle("working")
    finished: Bundle[Claim] = Bundle("finished")
    published: Bundle[Claim] = Bundle("published")
    states: Bundle[Claim] = Bundle("states")
    cached: Bundle[Claim] = Bundle("cached")
    flights: Bundle[Launched] = Bundle("flights")

    @initialize(
        slots=st.integers(1, 4),
        pages=st.sampled_from([0, 5, 12]),
        size=st.integers(1, 3),
        host=st.sampled_from([(2, 9), (0, 0), (1, 4)]),
    )
    def open(self, slots: int, pages: int, size: int, host: tuple[int, int]) -> None:
        host_slots, host_pages = host if pages else (host[0], 0)
        in_host = Capacity(host_slots, host_pages, size) if host_slots else None
        self.ledger = Ledger(Capacity(slots, pages, size), host=in_host)
        self.batch = self.ledger.batch_port(SCHEDULER)
        self.session = self.ledger.session_port(SESSION)
        self.cache = self.ledger.cache_port(CACHE)
        self.model = Model(
            {Place.DEVICE: slots, Place.HOST: host_slots},
            {Place.DEVICE: pages, Place.HOST: host_pages},
            size,
        )
        self.spent: list[BatchOwned] = []
        self.deaths = 0
        self.was_full = False

    # Admission

    @precondition(lambda self: self.model.free_slots(Place.DEVICE) or not self.was_full)
    @rule(target=working, need=POSITIONS, place=PLACES, drop=DROPS)
    def reserve(self, need: int, place: Place, drop: int) -> MultipleResults[Claim]:
        if place is Place.FILE or (drop and drop * self.model.size >= need):
            with pytest.raises(LedgerError):
                self.batch.reserve(Need(need, drop), ZEROS, turn="turn", place=place)
            return multiple()
        return self._reserved(Need(need, drop), ZEROS, None, place)

    @rule(target=working, need=POSITIONS, base=states, place=PLACES, drop=DROPS)
    def reserve_from_a_state(
        self, need: int, base: Claim, place: Place, drop: int
    ) -> MultipleResults[Claim]:
        return self._reserved_from(need, base, place, drop)

    @rule(target=working, need=POSITIONS, base=cached, place=PLACES)
    def reserve_from_the_cache(
        self, need: int, base: Claim, place: Place
    ) -> MultipleResults[Claim]:
        return self._reserved_from(need, base, place)

    @rule(target=working, need=POSITIONS, base=working, place=PLACES)
    def reserve_from_a_working_claim(
        self, need: int, base: Claim, place: Place
    ) -> MultipleResults[Claim]:
        if base.is_over:
            return self._refused(base)
        if base.content != "valid":
            with pytest.raises(LedgerError):
                self.batch.reserve(Need(need), base.batch, turn="turn", place=place)
            return multiple()
        return self._reserved(Need(need), base.batch, base, place)

    def _reserved_from(
        self, need: int, base: Claim, place: Place = Place.DEVICE, drop: int = 0
    ) -> MultipleResults[Claim]:
        if base.is_over:
            return self._refused(base)
        name = self.ledger.view.describe(base.handle).name
        assert name is not None
        return self._reserved(
            Need(need, min(drop, base.position // self.model.size)), name, base, place
        )

    def _reserved(
        self,
        need: Need,
        lent: Base | BatchOwned,
        base: Claim | None,
        place: Place = Place.DEVICE,
    ) -> MultipleResults[Claim]:
        model = self.model
        position = 0 if base is None else base.position
        first_page = max(need.first_page, 0 if base is None else base.first_page)
        shared = model.shared(base, place, first_page)
        count = model.pages_for(max(need.positions, position), place, first_page)
        missing = count - len(shared)
        fits = place is Place.FILE or (
            model.free_slots(place) > 0 and missing <= model.free_pages(place)
        )
        self.was_full = not fits
        handle = self.batch.reserve(need, lent, turn="turn", place=place)
        assert isinstance(handle, BatchOwned) == fits
        if isinstance(handle, Refused):
            return multiple()
        claim = Claim(handle, "batch", SCHEDULER, position=position, base=base, place=place)
        claim.content = "zeros" if base is None else "copy of base"
        claim.origin = None if base is None else base.name or base.origin
        claim.first_page = first_page
        claim.pages = [*shared, *(Page() for _ in range(missing))]
        model.claims.append(claim)
        return multiple(claim)

    @rule(claim=working, need=POSITIONS)
    def grow(self, claim: Claim, need: int) -> None:
        if claim.is_over:
            self._refused(claim)
        elif claim.content == "undefined" or (claim.place is Place.FILE and need > claim.position):
            with pytest.raises(LedgerError):
                self.batch.grow(claim.batch, Need(need))
        else:
            count = self.model.pages_for(need, claim.place, claim.first_page)
            missing = max(0, count - len(claim.pages))
            fits = not missing or missing <= self.model.free_pages(claim.place)
            grown = self.batch.grow(claim.batch, Need(need))
            assert grown == Grown(missing) if fits else isinstance(grown, Refused)
            claim.pages += [Page() for _ in range(missing)] if fits else []

    # Stepping

    @rule(target=flights, claim=consumes(working))
    def launch(self, claim: Claim) -> MultipleResults[Launched]:
        return self._launched([claim])

    @precondition(lambda self: len(self.bundle("working")) > 1)
    @rule(target=flights, one=consumes(working), other=consumes(working))
    def launch_two(self, one: Claim, other: Claim) -> MultipleResults[Launched]:
        return self._launched([one, other])

    def _launched(self, claims: list[Claim]) -> MultipleResults[Launched]:
        lent = [claim for claim in claims if self.model.copying(claim)]
        if lent or any(claim.is_over or claim.content == "undefined" for claim in claims):
            with pytest.raises(OwnershipError):
                self.batch.launch([claim.batch for claim in claims], step=1)
            for claim in claims:
                self._roll_back(claim, self.batch.rollback)
            return multiple()
        return multiple(self._launch(claims))

    def _launch(self, claims: list[Claim]) -> Launched:
        lease = self.batch.launch([claim.batch for claim in claims], step=1)
        flight = Launched(lease, claims)
        for claim in claims:
            claim.holder, claim.launch = DEVICE, flight
        return flight

    @rule(target=working, flight=consumes(flights), tokens=st.tuples(POSITIONS, POSITIONS))
    def land(self, flight: Launched, tokens: tuple[int, int]) -> MultipleResults[Claim]:
        if flight.hangs:
            self._refuses_to_land(flight, *([0] * len(flight.claims)))
            return self._landed(flight, None)
        counts = list(tokens[: len(flight.claims)])
        for index, claim in enumerate(flight.claims):
            least = self.model.least(claim)
            counts[index] = max(min(counts[index], self.model.room(claim)), least)
            if least:
                self._refuses_to_land(flight, *counts[:index], least - 1, *counts[index + 1 :])
        return self._landed(flight, counts)

    @rule(target=working, flight=consumes(flights))
    def fail(self, flight: Launched) -> MultipleResults[Claim]:
        return self._landed(flight, None)

    def _landed(self, flight: Launched, counts: list[int] | None) -> MultipleResults[Claim]:
        outcome = StepFailed("it broke") if counts is None else Absorbed(tuple(counts))
        handles: Sequence[object] = self.batch.land(flight.lease, outcome)
        assert list(handles) == [claim.handle for claim in flight.claims]
        for claim, count in zip(flight.claims, counts or [0] * len(handles), strict=True):
            is_copy = claim.content == "copy of base"
            is_valid = counts is not None and claim.place is not Place.FILE
            claim.content = "valid" if is_valid else "undefined"
            claim.position += count
            claim.holder, claim.launch = SCHEDULER, None
            if is_valid:
                self.model.freeze(claim, claim.base if is_copy else None)
        return multiple(*flight.claims)

    @rule(flight=flights)
    def quarantine(self, flight: Launched) -> None:
        self.ledger.quarantine(flight.lease)
        flight.hangs = True

    # Custody

    @rule(target=finished, claim=consumes(working))
    def finish(self, claim: Claim) -> MultipleResults[Claim]:
        return self._moved(claim, SESSION)

    @rule(target=published, claim=consumes(working))
    def publish(self, claim: Claim) -> MultipleResults[Claim]:
        return self._moved(claim, CACHE)

    @rule(target=working, claim=consumes(finished))
    def return_to_sender(self, claim: Claim) -> MultipleResults[Claim]:
        return self._moved(claim, SCHEDULER)

    def _moved(self, claim: Claim, target: CustodianId) -> MultipleResults[Claim]:
        if claim.is_over:
            return self._refused(claim)
        self.ledger.move(claim.handle, claim.holder, target, "message")
        claim.holder = target
        return multiple(claim)

    # Endings

    @rule(claim=consumes(working))
    def roll_back(self, claim: Claim) -> None:
        self._roll_back(claim, self.batch.rollback)

    @rule(claim=consumes(finished))
    def roll_back_in_the_session(self, claim: Claim) -> None:
        self._roll_back(claim, self.session.rollback)

    @rule(claim=consumes(published))
    def roll_back_in_the_cache(self, claim: Claim) -> None:
        self._roll_back(claim, self.cache.rollback)

    def _roll_back(self, claim: Claim, verb: Callable[[BatchOwned], None]) -> None:
        if claim.is_over:
            self._refused(claim)
            return
        verb(claim.batch)
        claim.is_over = True
        self.spent.append(claim.batch)

    def _refused(self, claim: Claim) -> MultipleResults[Claim]:
        """Its custodian died with it: no verb takes the handle."""
        verbs: dict[str, Callable[[Any], object]] = {
            "batch": self.batch.rollback,
            "session": self.session.close,
            "cache": self.cache.evict,
        }
        with pytest.raises(StaleHandle):
            verbs[claim.kind](claim.handle)
        return multiple()

    def _refuses_to_land(self, flight: Launched, *tokens: int) -> None:
        with pytest.raises(LedgerError):
            self.batch.land(flight.lease, Absorbed(tokens))
