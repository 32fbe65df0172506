"""The verbs of random tests: each is tried, and the model beside it says what has to come of it."""

import itertools
from collections.abc import Callable, Sequence

import pytest

from ownership import (
    ZEROS,
    Absorbed,
    Base,
    BaseChanged,
    BaseName,
    BatchOwned,
    CacheOwned,
    CustodianId,
    Grown,
    LedgerError,
    Need,
    Place,
    Refused,
    StepFailed,
)
from tests.ownership.world import CACHE, SCHEDULER, SESSIONS, Flight, Resting, Working, World

__all__ = ["Verbs"]


class Verbs(World):
    """Admission, steps and endings, with the choices that each of them leaves."""

    # Admission

    def reserve(self) -> None:
        source: Working | Resting | None = None
        valid = [row for row in self.working if row.is_landed and not row.is_undefined]
        if self.resting and self.choose.number(0, 2):
            source = self.choose.one(self.resting)
        elif valid and self.choose.number(0, 1):
            source = self.choose.one(valid)
        places = [Place.DEVICE, Place.DEVICE, Place.HOST]
        if source is not None:
            places += [Place.HOST, Place.HOST, Place.FILE]
        self._reserve(source, self.choose.one(places))

    def _reserve(self, source: Working | Resting | None, place: Place) -> None:
        history = () if source is None else source.history
        need = self._need(source, place)
        view = self.ledger.view
        base: Base | BatchOwned = ZEROS
        if source is not None:
            base = source.name if isinstance(source, Resting) else source.handle
        missing = None if isinstance(base, BatchOwned) else view.pages_needed(need, base, place)
        slots, pages = view.free(place)
        has_slot = slots > 0 or not view.capacity.slots or place is Place.FILE
        claim = self.batch.reserve(need, base, turn="turn", place=place)
        if isinstance(claim, Refused):
            assert not has_slot or missing is None or missing > pages
            return
        assert has_slot
        assert missing is None or view.free(place)[1] == pages - missing
        first_page = max(need.first_page, 0 if source is None else source.first_page)
        origin = None
        if source is not None:
            origin = source.name if isinstance(source, Resting) else source.origin
        self.working.append(Working(claim, history, origin, place, first_page, source))

    def _need(self, source: Working | Resting | None, place: Place) -> Need:
        """What a copy needs, as a rule; and now and then one that drops pages."""
        position = 0 if source is None else len(source.history)
        positions = position + (0 if place is Place.FILE else self.choose.number(0, 12))
        size = self.ledger.view.capacity.page_size
        droppable = (positions - 1 if source is None else position) // size
        if place is Place.FILE or droppable <= 0 or self.choose.number(0, 7):
            return Need(positions)
        return Need(positions, self.choose.number(0, droppable))

    def grow(self) -> None:
        row = self.choose.one(self.working)
        need = Need(len(row.history) + self.choose.number(0, 12))
        if row.is_undefined or (row.place is Place.FILE and need.positions > len(row.history)):
            with pytest.raises(LedgerError):
                self.batch.grow(row.handle, need)
        elif isinstance(self.batch.grow(row.handle, need), Grown):
            assert self.ledger.view.covered(row.handle) >= need.positions

    # Stepping

    def launch(self) -> None:
        lent = [row.source for row in self.unlanded()]
        fit = [row for row in self.working if not row.is_undefined and row not in lent]
        rows = self.choose.some(fit) if fit else []
        if rows:
            self._launch(rows, self._count)

    def _launch(self, chosen: Sequence[Working], count: Callable[[Working], int]) -> None:
        rows = [row for row in self.working if row in chosen]
        runs_at_once = bool(self.choose.number(0, 1))
        tokens = [tuple(itertools.islice(self.tokens, count(row))) for row in rows]
        self.working = [row for row in self.working if row not in rows]
        lease = self.batch.launch([row.handle for row in rows], step=1)
        self.memory.poison_freed()
        step = list(zip(self.ledger.view.placements(lease), tokens, strict=True))
        images = self.memory.run(step) if runs_at_once else None
        self.flights.append(Flight(lease, rows, tokens, step, images))

    def _count(self, row: Working) -> int:
        """How many tokens a row absorbs: all that a window is loaded with, at its first step."""
        room = self.ledger.view.covered(row.handle) - len(row.history)
        size = self.ledger.view.capacity.page_size
        least = max(row.first_page * size - len(row.history), 0)
        if row.place is not Place.DEVICE and self.choose.number(0, 3):
            return least
        return self.choose.number(least, min(room, least + 7))

    def land(self) -> None:
        self._land(self.choose.one(self.flights), fails=not self.choose.number(0, 5))

    def _land(self, flight: Flight, *, fails: bool) -> None:
        done = Absorbed(tuple(map(len, flight.tokens)))
        if flight.is_quarantined and not fails:
            with pytest.raises(LedgerError):
                self.batch.land(flight.lease, done)
            return
        self.flights.remove(flight)
        images = flight.images
        if images is None:
            images = self.memory.run(flight.step, fails=fails)
        outcome = StepFailed("it broke") if fails else done
        handles: Sequence[object] = self.batch.land(flight.lease, outcome)
        assert list(handles) == [row.handle for row in flight.rows]
        for row, tokens, image in zip(flight.rows, flight.tokens, images, strict=True):
            row.is_landed, row.is_undefined = True, fails or row.place is Place.FILE
            row.source = None
            row.history += () if fails else tokens
            if image is not None and not fails:
                self.memory.check_image(image, row.history, row.first_page)
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
        old = self.choose.one([None, *own])
        started = [state for state in self.of_sessions() if state.name == row.origin]
        if started and self.choose.number(0, 3):
            (old,) = started
            holder = old.holder
        self._commit(row, holder, old)

    def of_sessions(self) -> list[Resting]:
        """The states of sessions."""
        return [state for state in self.resting if state.holder != CACHE]

    def _commit(self, row: Working, holder: CustodianId, old: Resting | None) -> None:
        port = self.sessions[holder]
        self.ledger.move(row.handle, SCHEDULER, holder, "commit")
        version = port.version
        replaced = None if old is None else old.handle
        assert not isinstance(replaced, CacheOwned)
        try:
            state = port.commit(row.handle, replaces=replaced)
        except LedgerError as refused:
            is_other_base = isinstance(refused, BaseChanged)
            assert is_other_base == (old is not None and self._may_be_kept(row))
            assert not is_other_base or (old is not None and old.name != row.origin)
            self.ledger.move(row.handle, holder, SCHEDULER, "back")
            return
        assert self._may_be_kept(row)
        self.working.remove(row)
        self.note_spent(row.handle)
        kept = Resting(
            state, BaseName(holder, port.version), row.history, holder, row.place, row.first_page
        )
        self.is_now(row, kept)
        if old is None:
            self.resting.append(kept)
            return
        assert old.name == row.origin
        if self._has_only_moved(row, old):
            assert port.version == version
            kept.name = old.name
            self.resting[self.resting.index(old)] = kept
        else:
            assert port.version > version
            self.resting.remove(old)
            self.resting.append(kept)

    def _has_only_moved(self, row: Working, old: Resting) -> bool:
        return row.place is not old.place and (row.history, row.first_page) == (
            old.history,
            old.first_page,
        )

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
        kept = Resting(state, name, row.history, CACHE, row.place, row.first_page)
        self.is_now(row, kept)
        self.resting.append(kept)

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
