"""Random verbs in any order: conserved after every one, and no claim's memory is touched.

Three witnesses that share nothing with the ledger: the audit, the replay of its events, and a
device that remembers what was written where.
"""

import itertools

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ownership import (
    ZEROS,
    Absorbed,
    Base,
    BaseChanged,
    BaseName,
    BatchOwned,
    CacheOwned,
    CachePort,
    Capacity,
    Content,
    CustodianId,
    Grown,
    Lease,
    Ledger,
    LedgerError,
    Need,
    Refused,
    SessionOwned,
    SessionPort,
    StaleHandle,
    StepFailed,
)
from tests.ownership.memory import Memory, Step
from tests.ownership.replay import Replay

SCHEDULER = CustodianId("scheduler")
CACHE = CustodianId("cache")
SESSIONS = (CustodianId("session:a"), CustodianId("session:b"))


@attrs.define(eq=False)
class Working:
    """What the model knows of a working claim."""

    handle: BatchOwned
    history: tuple[int, ...]
    base: Base
    is_undefined: bool = False
    is_landed: bool = False


@attrs.define(eq=False)
class Resting:
    """What the model knows of a state at rest."""

    handle: SessionOwned | CacheOwned
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


class LedgerMachine(RuleBasedStateMachine):
    """Every verb, in any order that its types allow, and some that they don't."""

    def __init__(self) -> None:
        super().__init__()
        self.working: list[Working] = []
        self.resting: list[Resting] = []
        self.flights: list[Flight] = []
        self.spent: list[BatchOwned] = []
        self.tokens = itertools.count()

    @initialize(
        slots=st.integers(0, 5), pages=st.sampled_from([0, 6, 14]), page_size=st.integers(1, 4)
    )
    def open(self, slots: int, pages: int, page_size: int) -> None:
        self.replay = Replay()
        self.ledger = Ledger(
            Capacity(max(slots, 0 if pages else 1), pages, page_size),
            observer=self.replay,
            track_freed=True,
        )
        self.memory = Memory(self.ledger)
        self.batch = self.ledger.batch_port(SCHEDULER)
        self.cache: CachePort = self.ledger.cache_port(CACHE)
        self.sessions: dict[CustodianId, SessionPort] = {
            name: self.ledger.session_port(name) for name in SESSIONS
        }

    # Admission

    @rule(data=st.data(), more=st.integers(0, 12))
    def reserve(self, data: st.DataObject, more: int) -> None:
        base: Base = ZEROS
        history: tuple[int, ...] = ()
        if self.resting and data.draw(st.booleans()):
            state = data.draw(st.sampled_from(self.resting))
            base, history = state.name, state.history
        view = self.ledger.view
        need = Need(len(history) + more)
        missing, free = view.pages_needed(need, base), view.free_pages
        has_slot = view.free_slots > 0 or not view.capacity.slots
        claim = self.batch.reserve(need, base, turn="turn")
        if isinstance(claim, Refused):
            assert not has_slot or missing > free
        else:
            assert has_slot
            assert view.free_pages == free - missing
            self.working.append(Working(claim, history, base))

    @precondition(lambda self: self.working)
    @rule(data=st.data(), more=st.integers(0, 12))
    def grow(self, data: st.DataObject, more: int) -> None:
        row = data.draw(st.sampled_from(self.working))
        need = Need(len(row.history) + more)
        if row.is_undefined:
            with pytest.raises(LedgerError):
                self.batch.grow(row.handle, need)
        elif isinstance(self.batch.grow(row.handle, need), Grown):
            assert self.ledger.view.covered(row.handle) >= need.positions

    # Stepping

    @precondition(lambda self: any(not row.is_undefined for row in self.working))
    @rule(data=st.data(), runs_at_once=st.booleans())
    def launch(self, data: st.DataObject, runs_at_once: bool) -> None:
        fit = [row for row in self.working if not row.is_undefined]
        rows = data.draw(st.lists(st.sampled_from(fit), min_size=1, unique_by=id))
        tokens: list[tuple[int, ...]] = []
        for row in rows:
            room = self.ledger.view.covered(row.handle) - len(row.history)
            count = data.draw(st.integers(0, min(room, 7)))
            tokens.append(tuple(itertools.islice(self.tokens, count)))
        self.working = [row for row in self.working if row not in rows]
        lease = self.batch.launch([row.handle for row in rows], step=1)
        self.memory.poison_freed()
        step = list(zip(self.ledger.view.placements(lease), tokens, strict=True))
        if runs_at_once:
            self.memory.run(step)
        self.flights.append(Flight(lease, rows, tokens, step, runs_at_once))

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), fails=st.booleans())
    def land(self, data: st.DataObject, fails: bool) -> None:
        flight = data.draw(st.sampled_from(self.flights))
        done = Absorbed(tuple(map(len, flight.tokens)))
        if flight.is_quarantined and not fails:
            with pytest.raises(LedgerError):
                self.batch.land(flight.lease, done)
            return
        self.flights.remove(flight)
        if not flight.has_run:
            self.memory.run(flight.step, fails=fails)
        handles = self.batch.land(flight.lease, StepFailed("it broke") if fails else done)
        assert handles == tuple(row.handle for row in flight.rows)
        for row, tokens in zip(flight.rows, flight.tokens, strict=True):
            row.is_landed, row.is_undefined = True, fails
            row.history += () if fails else tokens
            self.working.append(row)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        flight = data.draw(st.sampled_from(self.flights))
        flight.is_quarantined = True
        self.ledger.quarantine(flight.lease)

    # Endings

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.working))
        self._rolled_back(row)

    def _rolled_back(self, row: Working) -> None:
        self.working.remove(row)
        self.batch.rollback(row.handle)
        self.spent.append(row.handle)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), holder=st.sampled_from(SESSIONS), replaces=st.booleans())
    def commit(self, data: st.DataObject, holder: CustodianId, replaces: bool) -> None:
        row = data.draw(st.sampled_from(self.working))
        own = [state for state in self.resting if state.holder == holder]
        old = data.draw(st.sampled_from(own)) if own and replaces else None
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
        self.spent.append(row.handle)
        if old is not None:
            assert old.name == row.base
            self.resting.remove(old)
        name = BaseName(holder, port.version)
        self.resting.append(Resting(state, name, row.history, holder))

    def _may_be_kept(self, row: Working) -> bool:
        return row.is_landed and not row.is_undefined and bool(row.history)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.working))
        self.ledger.move(row.handle, SCHEDULER, CACHE, "admit")
        if not self._may_be_kept(row):
            with pytest.raises(LedgerError):
                self.cache.admit(row.handle)
            self.ledger.move(row.handle, CACHE, SCHEDULER, "back")
            return
        state = self.cache.admit(row.handle)
        self.working.remove(row)
        self.spent.append(row.handle)
        name = self.ledger.view.describe(state).name
        assert name is not None
        self.resting.append(Resting(state, name, row.history, CACHE))

    @precondition(lambda self: self.resting)
    @rule(data=st.data())
    def end_state(self, data: st.DataObject) -> None:
        self._ended(data.draw(st.sampled_from(self.resting)))

    def _ended(self, state: Resting) -> None:
        self.resting.remove(state)
        if isinstance(state.handle, CacheOwned):
            self.cache.evict(state.handle)
        else:
            self.sessions[state.holder].close(state.handle)

    @rule(custodian=st.sampled_from([SCHEDULER, CACHE, *SESSIONS]))
    def reclaim(self, custodian: CustodianId) -> None:
        counted = self.ledger.reclaim(custodian)
        lost = [row for row in self.working if custodian == SCHEDULER]
        gone = [state for state in self.resting if state.holder == custodian]
        assert counted.batch == len(lost)
        assert counted.session + counted.cache == len(gone)
        self.working = [row for row in self.working if row not in lost]
        self.resting = [state for state in self.resting if state not in gone]
        self.spent += [row.handle for row in lost]

    # Questions and mistakes

    @precondition(lambda self: self.working or self.resting)
    @rule(data=st.data())
    def simulate_and_do(self, data: st.DataObject) -> None:
        """What the simulation says is exactly what the real endings give."""
        choices = st.lists(st.sampled_from([*self.working, *self.resting]), unique_by=id)
        chosen = data.draw(choices)
        view = self.ledger.view
        simulation = view.simulate()
        for one in chosen:
            if isinstance(one, Working):
                simulation.claim(one.handle)
            else:
                simulation.base(one.name)
        expected = (view.free_slots + simulation.slots, view.free_pages + simulation.pages)
        for one in data.draw(st.permutations(chosen)):
            if isinstance(one, Working):
                self._rolled_back(one)
            else:
                self._ended(one)
        assert (view.free_slots, view.free_pages) == expected

    @precondition(lambda self: self.spent)
    @rule(data=st.data())
    def use_a_spent_handle(self, data: st.DataObject) -> None:
        stale = data.draw(st.sampled_from(self.spent))
        for verb in (self.batch.rollback, self.cache.admit, self.ledger.view.describe):
            with pytest.raises(StaleHandle):
                verb(stale)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def use_a_leased_claim(self, data: st.DataObject) -> None:
        flight = data.draw(st.sampled_from(self.flights))
        row = data.draw(st.sampled_from(flight.rows))
        with pytest.raises(StaleHandle):
            self.batch.rollback(row.handle)
        with pytest.raises(StaleHandle):
            self.ledger.move(row.handle, SCHEDULER, CACHE, "away")

    # Witnesses

    @invariant()
    def the_audit_finds_nothing(self) -> None:
        if not hasattr(self, "ledger"):
            return
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

    @invariant()
    def the_events_say_the_same(self) -> None:
        if not hasattr(self, "ledger"):
            return
        view = self.ledger.view
        assert len(self.replay.free_slots) == view.free_slots
        assert len(self.replay.free_pages) == view.free_pages

    @invariant()
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

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for flight in self.flights:
            self.working += flight.rows
            self.batch.land(flight.lease, StepFailed("it is over"))
        for state in list(self.resting):
            self._ended(state)
        for row in list(self.working):
            self._rolled_back(row)
        report = self.ledger.audit()
        assert report.at_rest
        assert (report.free_slots, report.free_pages) == (
            self.ledger.view.capacity.slots,
            self.ledger.view.capacity.pages,
        )


def test_random_verbs_conserve_everything() -> None:
    """A few hundred steps at each change; more by hand with ``-m slow``."""
    run_state_machine_as_test(
        LedgerMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_random_verbs_conserve_everything() -> None:
    """The same for minutes."""
    run_state_machine_as_test(
        LedgerMachine, settings=settings(max_examples=2000, stateful_step_count=60, deadline=None)
    )
