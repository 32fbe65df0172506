"""Random verbs against a model: every witness is asked after every step."""

import itertools
from collections.abc import Callable, Sequence

import pytest

from ownership import (
    ZEROS,
    Absorbed,
    Base,
    BaseChanged,
    BaseName,
    CacheOwned,
    Grown,
    LedgerError,
    Need,
    Refused,
    StaleHandle,
    StepFailed,
)
from tests.ownership.world import CACHE, SCHEDULER, SESSIONS, Flight, Resting, Working, World


class Machine(World):
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
        if self.resting:
            moves += [self.end_state]
        if self.working or self.resting:
            moves += [self.simulate_and_do]
        if self.spent:
            moves += [self.use_a_spent_handle]
        if not self.choose.number(0, 100):
            moves = [self.reclaim]
        self.choose.one(moves)()
        self.the_audit_finds_nothing()
        self.the_events_say_the_same()
        self.nobody_wrote_into_anothers_memory()

    # Admission

    def reserve(self) -> None:
        base: Base = ZEROS
        history: tuple[int, ...] = ()
        if self.resting and self.choose.number(0, 2):
            state = self.choose.one(self.resting)
            base, history = state.name, state.history
        view = self.ledger.view
        need = Need(len(history) + self.choose.number(0, 12))
        missing, free = view.pages_needed(need, base), view.free_pages
        has_slot = view.free_slots > 0 or not view.capacity.slots
        claim = self.batch.reserve(need, base, turn="turn")
        if isinstance(claim, Refused):
            assert not has_slot or missing > free
        else:
            assert has_slot
            assert view.free_pages == free - missing
            self.working.append(Working(claim, history, base))

    def grow(self) -> None:
        row = self.choose.one(self.working)
        need = Need(len(row.history) + self.choose.number(0, 12))
        if row.is_undefined:
            with pytest.raises(LedgerError):
                self.batch.grow(row.handle, need)
        elif isinstance(self.batch.grow(row.handle, need), Grown):
            assert self.ledger.view.covered(row.handle) >= need.positions

    # Stepping

    def launch(self) -> None:
        fit = [row for row in self.working if not row.is_undefined]
        rows = self.choose.some(fit) if fit else []
        if not rows:
            return
        runs_at_once = bool(self.choose.number(0, 1))
        tokens: list[tuple[int, ...]] = []
        for row in rows:
            room = self.ledger.view.covered(row.handle) - len(row.history)
            count = self.choose.number(0, min(room, 7))
            tokens.append(tuple(itertools.islice(self.tokens, count)))
        self.working = [row for row in self.working if row not in rows]
        lease = self.batch.launch([row.handle for row in rows], step=1)
        self.memory.poison_freed()
        step = list(zip(self.ledger.view.placements(lease), tokens, strict=True))
        if runs_at_once:
            self.memory.run(step)
        self.flights.append(Flight(lease, rows, tokens, step, runs_at_once))

    def land(self) -> None:
        flight = self.choose.one(self.flights)
        fails = not self.choose.number(0, 5)
        done = Absorbed(tuple(map(len, flight.tokens)))
        if flight.is_quarantined and not fails:
            with pytest.raises(LedgerError):
                self.batch.land(flight.lease, done)
            return
        self.flights.remove(flight)
        if not flight.has_run:
            self.memory.run(flight.step, fails=fails)
        outcome = StepFailed("it broke") if fails else done
        handles: Sequence[object] = self.batch.land(flight.lease, outcome)
        assert list(handles) == [row.handle for row in flight.rows]
        for row, tokens in zip(flight.rows, flight.tokens, strict=True):
            row.is_landed, row.is_undefined = True, fails
            row.history += () if fails else tokens
            self.working.append(row)

    def quarantine(self) -> None:
        flight = self.choose.one(self.flights)
        flight.is_quarantined = True
        self.ledger.quarantine(flight.lease)

    # Endings

    def rollback(self) -> None:
        self._rolled_back(self.choose.one(self.working))

    def _rolled_back(self, row: Working) -> None:
        self.working.remove(row)
        self.note_spent(row.handle)
        self.batch.rollback(row.handle)

    def commit(self) -> None:
        row = self._likely_kept()
        holder = self.choose.one(SESSIONS)
        own = [state for state in self.resting if state.holder == holder]
        old = self.choose.one([None, *own, *(state for state in own if state.name == row.base)])
        port = self.sessions[holder]
        self.ledger.move(row.handle, SCHEDULER, holder, "commit")
        replaced = None if old is None else old.handle
        assert not isinstance(replaced, CacheOwned)
        try:
            state = port.commit(row.handle, replaces=replaced)
        except LedgerError as refused:
            is_other_base = isinstance(refused, BaseChanged)
            assert is_other_base == (old is not None and self._may_be_kept(row))
            assert not is_other_base or (old is not None and old.name != row.base)
            self.ledger.move(row.handle, holder, SCHEDULER, "back")
            return
        assert self._may_be_kept(row)
        self.working.remove(row)
        self.note_spent(row.handle)
        if old is not None:
            assert old.name == row.base
            self.resting.remove(old)
        name = BaseName(holder, port.version)
        self.resting.append(Resting(state, name, row.history, holder))

    def _likely_kept(self) -> Working:
        good = [row for row in self.working if self._may_be_kept(row)]
        return self.choose.one(good if good and self.choose.number(0, 5) else self.working)

    def _may_be_kept(self, row: Working) -> bool:
        return row.is_landed and not row.is_undefined and bool(row.history)

    def admit(self) -> None:
        row = self._likely_kept()
        self.ledger.move(row.handle, SCHEDULER, CACHE, "admit")
        if not self._may_be_kept(row):
            with pytest.raises(LedgerError):
                self.cache.admit(row.handle)
            self.ledger.move(row.handle, CACHE, SCHEDULER, "back")
            return
        state = self.cache.admit(row.handle)
        self.working.remove(row)
        self.note_spent(row.handle)
        name = self.ledger.view.describe(state).name
        assert name is not None
        self.resting.append(Resting(state, name, row.history, CACHE))

    def end_state(self) -> None:
        self._ended(self.choose.one(self.resting))

    def _ended(self, state: Resting) -> None:
        self.resting.remove(state)
        if isinstance(state.handle, CacheOwned):
            self.cache.evict(state.handle)
        else:
            self.sessions[state.holder].close(state.handle)

    def reclaim(self) -> None:
        custodian = self.choose.one([SCHEDULER, CACHE, *SESSIONS])
        counted = self.ledger.reclaim(custodian)
        lost = [row for row in self.working if custodian == SCHEDULER]
        gone = [state for state in self.resting if state.holder == custodian]
        assert counted.batch == len(lost)
        assert counted.session + counted.cache == len(gone)
        self.working = [row for row in self.working if row not in lost]
        self.resting = [state for state in self.resting if state not in gone]
        self.spent += [row.handle for row in lost]

    # Questions and mistakes

    def simulate_and_do(self) -> None:
        """What the simulation says is exactly what the real endings give."""
        candidates: list[Working | Resting] = [*self.working, *self.resting]
        chosen = self.choose.some(candidates)
        view = self.ledger.view
        simulation = view.simulate()
        for one in chosen:
            if isinstance(one, Working):
                simulation.claim(one.handle)
            else:
                simulation.base(one.name)
        expected = (view.free_slots + simulation.slots, view.free_pages + simulation.pages)
        for one in sorted(chosen, key=lambda _: self.choose.number(0, 99)):
            if isinstance(one, Working):
                self._rolled_back(one)
            else:
                self._ended(one)
        assert (view.free_slots, view.free_pages) == expected

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
        report, capacity = self.ledger.audit(), self.ledger.view.capacity
        assert report.at_rest
        assert (report.free_slots, report.free_pages) == (capacity.slots, capacity.pages)
