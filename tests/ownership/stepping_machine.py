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
    Refused,
    StaleHandle,
    StepFailed,
)
from tests.ownership.model import Claim, Launched, Model

__all__ = ["CACHE", "POSITIONS", "SCHEDULER", "SESSION", "SteppingMachine"]

SCHEDULER, SESSION, CACHE = map(CustodianId, ("scheduler", "session", "cache"))
POSITIONS = st.integers(0, 9)


class SteppingMachine(RuleBasedStateMachine):
    """Claims begin, go to the device and come back, change hands, and are rolled back."""

    working: Bundle[Claim] = Bundle("working")
    finished: Bundle[Claim] = Bundle("finished")
    published: Bundle[Claim] = Bundle("published")
    states: Bundle[Claim] = Bundle("states")
    cached: Bundle[Claim] = Bundle("cached")
    flights: Bundle[Launched] = Bundle("flights")

    @initialize(slots=st.integers(1, 4), pages=st.sampled_from([0, 5, 12]), size=st.integers(1, 3))
    def open(self, slots: int, pages: int, size: int) -> None:
        self.ledger = Ledger(Capacity(slots, pages, size))
        self.batch = self.ledger.batch_port(SCHEDULER)
        self.session = self.ledger.session_port(SESSION)
        self.cache = self.ledger.cache_port(CACHE)
        self.model = Model(slots, pages, size)
        self.spent: list[BatchOwned] = []
        self.deaths = 0
        self.was_full = False

    # Admission

    @precondition(lambda self: self.model.free_slots or not self.was_full)
    @rule(target=working, need=POSITIONS)
    def reserve(self, need: int) -> MultipleResults[Claim]:
        return self._reserved(need, ZEROS, None)

    @rule(target=working, need=POSITIONS, base=states)
    def reserve_from_a_state(self, need: int, base: Claim) -> MultipleResults[Claim]:
        return self._reserved_from(need, base)

    @rule(target=working, need=POSITIONS, base=cached)
    def reserve_from_the_cache(self, need: int, base: Claim) -> MultipleResults[Claim]:
        return self._reserved_from(need, base)

    def _reserved_from(self, need: int, base: Claim) -> MultipleResults[Claim]:
        if base.is_over:
            return self._refused(base)
        name = self.ledger.view.describe(base.handle).name
        assert name is not None
        return self._reserved(need, name, base)

    def _reserved(self, need: int, name: Base, base: Claim | None) -> MultipleResults[Claim]:
        model = self.model
        position = 0 if base is None else base.position
        shared = [] if base is None else base.pages[: position // model.size]
        missing = model.pages_for(max(need, position)) - len(shared)
        fits = model.free_slots > 0 and missing <= model.free_pages
        self.was_full = not fits
        handle = self.batch.reserve(Need(need), name, turn="turn")
        assert isinstance(handle, BatchOwned) == fits
        if isinstance(handle, Refused):
            return multiple()
        claim = Claim(handle, "batch", SCHEDULER, position=position, origin=base)
        claim.content = "zeros" if base is None else "copy of base"
        claim.pages = [*shared, *(object() for _ in range(missing))]
        model.claims.append(claim)
        return multiple(claim)

    @rule(claim=working, need=POSITIONS)
    def grow(self, claim: Claim, need: int) -> None:
        if claim.is_over:
            self._refused(claim)
        elif claim.content == "undefined":
            with pytest.raises(LedgerError):
                self.batch.grow(claim.batch, Need(need))
        else:
            missing = max(0, self.model.pages_for(need) - len(claim.pages))
            fits = missing <= self.model.free_pages
            grown = self.batch.grow(claim.batch, Need(need))
            assert grown == Grown(missing) if fits else isinstance(grown, Refused)
            claim.pages += [object() for _ in range(missing)] if fits else []

    # Stepping

    @rule(target=flights, claim=consumes(working))
    def launch(self, claim: Claim) -> MultipleResults[Launched]:
        return self._launched([claim])

    @precondition(lambda self: len(self.bundle("working")) > 1)
    @rule(target=flights, one=consumes(working), other=consumes(working))
    def launch_two(self, one: Claim, other: Claim) -> MultipleResults[Launched]:
        return self._launched([one, other])

    def _launched(self, claims: list[Claim]) -> MultipleResults[Launched]:
        if any(claim.is_over or claim.content == "undefined" for claim in claims):
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
        for index, room in enumerate(map(self.model.room, flight.claims)):
            counts[index] = min(counts[index], room)
        return self._landed(flight, counts)

    @rule(target=working, flight=consumes(flights))
    def fail(self, flight: Launched) -> MultipleResults[Claim]:
        return self._landed(flight, None)

    def _landed(self, flight: Launched, counts: list[int] | None) -> MultipleResults[Claim]:
        outcome = StepFailed("it broke") if counts is None else Absorbed(tuple(counts))
        handles: Sequence[object] = self.batch.land(flight.lease, outcome)
        assert list(handles) == [claim.handle for claim in flight.claims]
        for claim, count in zip(flight.claims, counts or [0] * len(handles), strict=True):
            claim.content = "undefined" if counts is None else "valid"
            claim.position += count
            claim.holder, claim.launch = SCHEDULER, None
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
