"""Random verbs against a model: every witness is asked after every step."""

from collections.abc import Callable, Sequence

import pytest

from ownership import LedgerError, Place, StaleHandle, StepFailed
from tests.ownership.verbs import Verbs
from tests.ownership.world import CACHE, SCHEDULER, Resting, Working


class Machine(Verbs):
    """Every verb, in any order that its types allow, and some that they don't."""

    def step(self) -> None:
        """One verb or mistake, then every witness."""
        moves: list[Callable[[], None]] = [self.reserve] * 3
        if self.working:
            moves += [self.launch] * 6
            moves += [self.commit] * 4
            moves += [self.grow, self.rollback, self.admit]
        if self.flights:
            moves += [self.land] * 6
            moves += [self.use_a_leased_claim]
        if self.flights and not self.choose.number(0, 3):
            moves += [self.quarantine]
        if any(isinstance(row.source, Working) for row in self.unlanded()):
            moves += [self.launch_what_is_copied]
        if self.resting:
            moves += [self.end_state]
        if self.working or self.resting:
            moves += [self.simulate_and_do]
        if self.of_sessions():
            moves += [self.park, self.go_there_and_back]
        if self.spent:
            moves += [self.use_a_spent_handle]
        if not self.choose.number(0, 100):
            moves = [self.reclaim]
        self.choose.one(moves)()
        self.the_audit_finds_nothing()
        self.the_events_say_the_same()
        self.nobody_wrote_into_anothers_memory()

    # Whole moves at once, so that stories get far

    def park(self) -> None:
        """A state goes to the other place, and keeps its name there."""
        state = self.choose.one(self.of_sessions())
        row = self._copied(state, self._other(state.place))
        if row is not None:
            self._commit(row, state.holder, state)

    def go_there_and_back(self) -> None:
        """A copy in the other place, and one of that where the state is."""
        state = self.choose.one(self.of_sessions())
        there = self._copied(state, self._other(state.place))
        if there is not None:
            self._copied(there, state.place)

    def _copied(self, source: Working | Resting, place: Place) -> Working | None:
        """A copy that has landed, if there is room for it."""
        before = list(self.working)
        self._reserve(source, place)
        for row in self.working:
            if row not in before:
                self._launch([row], lambda _: 0)
                self._land(self.flights[-1], fails=False)
                return row
        return None

    def _other(self, place: Place) -> Place:
        return Place.HOST if place is Place.DEVICE else Place.DEVICE

    # Questions and mistakes

    def launch_what_is_copied(self) -> None:
        lent = [row.source for row in self.unlanded()]
        for row in self.working:
            if row in lent:
                with pytest.raises(LedgerError, match="is pinned by"):
                    self.batch.launch([row.handle], step=1)

    def simulate_and_do(self) -> None:
        """What the simulation says is exactly what the real endings give.

        But for copies into another place, which it takes for done.
        """
        moving = [row for row in self.unlanded() if row.is_moving]
        lent = [row.source for row in moving]
        candidates: list[Working | Resting] = [*self.working, *self.resting]
        left_out = [*moving, *lent, *(row for row in self.working if row.source in lent)]
        candidates = [one for one in candidates if one not in left_out]
        chosen = self.choose.some(candidates) if candidates else []
        view = self.ledger.view
        place = self.choose.one([Place.DEVICE, Place.HOST])
        simulation = view.simulate(place)
        for one in chosen:
            if isinstance(one, Working):
                simulation.claim(one.handle)
            else:
                simulation.base(one.name)
        slots, pages = view.free(place)
        expected = (slots + simulation.slots, pages + simulation.pages)
        for one in sorted(chosen, key=lambda _: self.choose.number(0, 99)):
            if isinstance(one, Working):
                self._rolled_back(one)
            else:
                self._ended(one)
        assert view.free(place) == expected

    def use_a_spent_handle(self) -> None:
        stale = self.choose.one(self.spent)
        for verb in (self.batch.rollback, self.cache.admit, self.ledger.view.describe):
            with pytest.raises(StaleHandle):
                verb(stale)

    def use_a_leased_claim(self) -> None:
        row = self.choose.one(self.choose.one(self.flights).rows)
        with pytest.raises(StaleHandle):
            self.batch.rollback(row.handle)
        with pytest.raises(StaleHandle):
            self.ledger.move(row.handle, SCHEDULER, CACHE, "away")

    def end(self) -> None:
        """All lands and ends, and everything is free."""
        for flight in self.flights:
            self.working += flight.rows
            handles: Sequence[object] = self.batch.land(flight.lease, StepFailed("it is over"))
            assert len(handles) == len(flight.rows)
        for state in list(self.resting):
            self._ended(state)
        for row in list(self.working):
            self._rolled_back(row)
        report = self.ledger.audit()
        assert report.at_rest
        assert self.everything() == (
            report.free_slots + report.host_free_slots,
            report.free_pages + report.host_free_pages,
        )
