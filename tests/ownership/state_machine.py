"""A ledger as a hypothesis state machine: what a verb consumes, its bundle loses."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import MultipleResults, consumes, invariant, multiple, precondition, rule

from ownership import (
    ZEROS,
    BaseChanged,
    CustodianId,
    LedgerError,
    Need,
    Place,
    StaleHandle,
)
from tests.ownership.model import Claim, Launched
from tests.ownership.stepping_machine import (
    CACHE,
    PLACES,
    POSITIONS,
    SCHEDULER,
    SESSION,
    SteppingMachine,
)

__all__ = ["LedgerMachine"]

cached, finished, flights = (
    SteppingMachine.cached,
    SteppingMachine.finished,
    SteppingMachine.flights,
)
published, states = SteppingMachine.published, SteppingMachine.states
working = SteppingMachine.working


def is_like(claim: Claim, state: Claim) -> bool:
    """Whether a claim that started from a state is still the same."""
    return (claim.position, claim.first_page) == (state.position, state.first_page)


class LedgerMachine(SteppingMachine):
    """All verbs of all ports, moves, quarantine, deaths, and what was spent or is elsewhere.

    A dead custodian's claims stay in their bundles, where their handles are worth nothing: each
    rule that draws one tries it, and it must be refused.
    """

    @rule(target=states, claim=consumes(finished))
    def commit(self, claim: Claim) -> MultipleResults[Claim]:
        return self._committed(claim, None)

    @rule(target=states, claim=consumes(finished), replaces=consumes(states))
    def commit_and_replace(self, claim: Claim, replaces: Claim) -> MultipleResults[Claim]:
        if replaces.is_over:
            return self._refused(replaces)
        return self._committed(claim, replaces)

    def _committed(self, claim: Claim, replaces: Claim | None) -> MultipleResults[Claim]:
        kept: MultipleResults[Claim] = multiple() if replaces is None else multiple(replaces)
        if claim.is_over:
            self._refused(claim)
            return kept
        replaced = None if replaces is None else replaces.session
        is_from_another = replaces is not None and claim.origin is not replaces.name
        if is_from_another or not claim.may_be_kept:
            with pytest.raises(BaseChanged if claim.may_be_kept else LedgerError):
                self.session.commit(claim.batch, replaces=replaced)
            self._roll_back(claim, self.session.rollback)
            return kept
        version = self.session.version
        state = self.session.commit(claim.batch, replaces=replaced)
        committed = Claim(state, "session", SESSION)
        if replaces is not None:
            replaces.is_over = True
            if claim.place is not replaces.place and is_like(claim, replaces):
                committed.name = replaces.name
        assert (self.session.version == version) == (committed.name is not None)
        return self._kept(claim, committed)

    @rule(target=cached, claim=consumes(published))
    def admit(self, claim: Claim) -> MultipleResults[Claim]:
        if claim.is_over:
            return self._refused(claim)
        if not claim.may_be_kept:
            with pytest.raises(LedgerError):
                self.cache.admit(claim.batch)
            self._roll_back(claim, self.cache.rollback)
            return multiple()
        return self._kept(claim, Claim(self.cache.admit(claim.batch), "cache", CACHE))

    def _kept(self, claim: Claim, state: Claim) -> MultipleResults[Claim]:
        state.content, state.position = "valid", claim.position
        state.place, state.first_page = claim.place, claim.first_page
        state.name = state.name or object()
        count = self.model.pages_for(claim.position, claim.place, claim.first_page)
        state.pages = claim.pages[:count]
        for copy in self.model.copying(claim):
            copy.base = state
        claim.is_over = True
        self.spent.append(claim.batch)
        self.model.claims.append(state)
        return multiple(state)

    @rule(state=consumes(states))
    def close(self, state: Claim) -> None:
        if state.is_over:
            self._refused(state)
        else:
            self.session.close(state.session)
            state.is_over = True

    @rule(state=consumes(cached))
    def evict(self, state: Claim) -> None:
        if state.is_over:
            self._refused(state)
        else:
            self.cache.evict(state.cache)
            state.is_over = True

    @precondition(lambda self: len(self.model.claims) > 2 and self.deaths < 2)
    @rule(custodian=st.sampled_from([SCHEDULER, SESSION, CACHE]))
    def die(self, custodian: CustodianId) -> None:
        self.deaths += 1
        lost = [c for c in self.model.claims if c.holder == custodian and not c.is_over]
        counted = self.ledger.reclaim(custodian)
        assert counted.batch == sum(claim.kind == "batch" for claim in lost)
        assert counted.session + counted.cache == sum(claim.kind != "batch" for claim in lost)
        for claim in lost:
            claim.is_over = True

    # Whole turns in one rule, so that stories get far

    @rule(target=states, need=POSITIONS, tokens=st.integers(1, 9))
    def first_turn(self, need: int, tokens: int) -> MultipleResults[Claim]:
        return self._turn(self._reserved(Need(need), ZEROS, None), tokens, None)

    @rule(target=states, base=consumes(states), need=POSITIONS, tokens=POSITIONS)
    def next_turn(self, base: Claim, need: int, tokens: int) -> MultipleResults[Claim]:
        return self._turn(self._reserved_from(need, base), tokens, base)

    @rule(target=states, base=consumes(states), place=PLACES)
    def move_to(self, base: Claim, place: Place) -> MultipleResults[Claim]:
        return self._move_to(base, place)

    def _move_to(self, base: Claim, place: Place) -> MultipleResults[Claim]:
        return self._turn(self._reserved_from(0, base, place), 0, base)

    @rule(target=states, base=consumes(states), need=POSITIONS, tokens=POSITIONS)
    def park_and_go_on(self, base: Claim, need: int, tokens: int) -> MultipleResults[Claim]:
        for parked in self._move_to(base, Place.HOST).values:
            return self._turn(self._reserved_from(need, parked), tokens, parked)
        return multiple()

    @rule(target=working, base=states)
    def copy_there_and_back(self, base: Claim) -> MultipleResults[Claim]:
        """The way back shares whatever is there; what drops a page shares nothing there."""
        there = Place.HOST if base.place is Place.DEVICE else Place.DEVICE
        copies = self._reserved_from(0, base, there)
        for copy in copies.values:
            self._landed(self._launch([copy]), [0])
            cut = self._reserved_from(0, base, there, drop=1)
            back = self._reserved(Need(0), copy.batch, copy, base.place)
            return multiple(copy, *cut.values, *back.values)
        return copies

    def _turn(
        self, reserved: MultipleResults[Claim], tokens: int, base: Claim | None
    ) -> MultipleResults[Claim]:
        for claim in reserved.values:
            self._landed(self._launch([claim]), [min(tokens, self.model.room(claim))])
            self._moved(claim, SESSION)
            return self._committed(claim, base)
        return multiple() if base is None else multiple(base)

    # Mistakes

    @precondition(lambda self: self.spent)
    @rule(data=st.data())
    def use_a_spent_handle(self, data: st.DataObject) -> None:
        handle = self.spent.pop(data.draw(st.integers(0, len(self.spent) - 1)))
        for verb in (self.batch.rollback, self.session.rollback, self.cache.admit):
            with pytest.raises(StaleHandle):
                verb(handle)

    @rule(flight=flights, tokens=st.integers(-1, 30))
    def use_what_the_device_has(self, flight: Launched, tokens: int) -> None:
        for claim in flight.claims:
            for verb in (self.batch.rollback, self.session.rollback, self.cache.admit):
                with pytest.raises(StaleHandle):
                    verb(claim.batch)
        if tokens > self.model.room(flight.claims[0]) or tokens < 0:
            self._refuses_to_land(flight, tokens, *([0] * (len(flight.claims) - 1)))
        self._refuses_to_land(flight, *([0] * (len(flight.claims) + 1)))

    @rule(state=states)
    def give_back_what_the_session_keeps(self, state: Claim) -> None:
        """The seed's rollback, in code that has no types."""
        rollback: Callable[[Any], None] = self.batch.rollback
        with pytest.raises(TypeError):
            rollback(state.handle)

    # What must hold

    @invariant()
    def everything_is_conserved(self) -> None:
        report = self.ledger.audit()
        assert report.problems == ()
        columns = self.model.columns()
        for column in ("batch", "session", "cache", "draining", "quarantined"):
            assert getattr(report, column) == columns[column]
        assert self.ledger.view.columns() == report.on_device
        assert self.ledger.view.columns(Place.HOST) == report.in_host
        assert report.free_slots == self.model.free_slots(Place.DEVICE)
        assert report.free_pages == self.model.free_pages(Place.DEVICE)
        assert report.host_free_slots == self.model.free_slots(Place.HOST)
        assert report.host_free_pages == self.model.free_pages(Place.HOST)

    @invariant()
    def every_claim_is_as_the_model_says(self) -> None:
        index_of: dict[object, int] = {}
        for claim in self.model.claims:
            if claim.is_over:
                continue
            seen = self.ledger.view.describe(claim.handle)
            assert seen.kind.value == claim.kind
            assert seen.custodian == claim.holder
            assert seen.content.value == claim.content
            assert seen.position == claim.position
            assert (seen.place, seen.first_page) == (claim.place, claim.first_page)
            assert seen.pinned == len(self.model.copying(claim))
            assert len(seen.pages) == len(claim.pages)
            for page, index in zip(claim.pages, seen.pages, strict=True):
                assert index_of.setdefault(page, index) == index
        assert len(set(index_of.values())) == len(index_of)
