"""Room for a turn: which moves are legal, and which of them are made.

One rank orders everything. A turn that needs room takes it, in this order, from

1. what is returning already (states that were asked for),
2. states of the prefix cache, the one used longest ago first,
3. sessions at rest: checkpoints (but those that a fork's turn waits to start from) first, then
   the least recently committed state, then the base of a turn that runs and has copied it, then
   that of a turn that waits,
4. its juniors, the most junior first,
5. its own base (it is then recomputed from the token log).

Nothing is asked or preempted unless all of it together makes the room. So the most senior turn
always gets what an empty engine could give it, it ends, and by induction every turn does.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from kernel.ids import TurnId
from kernel.prefixes.cache import PrefixCache
from kernel.scheduling.roster import Roster
from kernel.turn import OpenTurn
from ownership import (
    NO_SLOT,
    ZEROS,
    Base,
    BaseName,
    BatchOwned,
    ClaimView,
    CustodianId,
    LedgerView,
    Need,
    PageIndex,
    Place,
    ReleaseSimulation,
)

__all__ = ["Moves", "Room"]

_NONE: Final[Mapping[TurnId, BatchOwned]] = {}


@attrs.frozen
class Moves:
    """What has to move so that a turn fits."""

    asks: tuple[BaseName, ...] = ()
    """States that have to go; those that the scheduler itself holds are the cache's."""
    victims: tuple[OpenTurn, ...] = ()


@attrs.define
class _Wanted:
    """What is short, against what a simulation of moves would give back."""

    slots: int
    pages: int
    rows: int

    def has_memory(self, gain: ReleaseSimulation) -> bool:
        return gain.slots >= self.slots and gain.pages >= self.pages

    def is_met_by(self, gain: ReleaseSimulation, rows: int) -> bool:
        return self.has_memory(gain) and rows >= self.rows


class Room:
    """Finds the moves that make room for one turn; changes nothing itself."""

    def __init__(
        self,
        view: LedgerView,
        roster: Roster,
        *,
        max_rows: int,
        cache: PrefixCache | None = None,
    ) -> None:
        self._view = view
        self._roster = roster
        self._cache = cache
        self._max_rows = max_rows
        self._page_size = view.capacity.page_size
        self.asked: set[BaseName] = set()

    def has_row(self) -> bool:
        """Whether one more turn may run; a turn between its two phases keeps its row."""
        return self._roster.num_running < self._max_rows

    def can_ever_fit(
        self, need: Need, shares: ClaimView | None = None, *, slides: bool = False
    ) -> bool:
        """Whether an engine with nothing in it but hanging steps could hold the need.

        Args:
            need: positions that pages must cover.
            shares: the claim whose frozen pages the turn has or can have.
            slides: into a new claim, and that one stays until it has been copied.
        """
        view = self._view
        capacity = view.capacity
        if len(view.leases()) > view.quarantined_leases:
            return True  # Some step will land, and its landing asks again.
        slots, stuck = self._out_of_reach()
        pages = view.pages_needed(need, ZEROS)
        if slides and shares is not None:
            pages += len(set(shares.pages) - stuck)
        elif stuck and shares is not None:
            frozen = shares.pages[: shares.position // self._page_size]
            pages -= len(stuck.intersection(frozen))
        claims = 2 if slides else 1
        return (capacity.slots == 0 or capacity.slots - slots >= claims) and (
            capacity.pages == 0 or capacity.pages - len(stuck) >= pages
        )

    def _out_of_reach(self) -> tuple[int, set[PageIndex]]:
        """Slots and pages on the device of hanging steps, and of the states that they pin.

        Such a state is never asked for, so it may stay as long as the step hangs.
        """
        view = self._view
        if not view.quarantined_leases:
            return 0, set()
        here = [claim for claim in view.hanging() if claim.place is Place.DEVICE]
        at_rest = [one for one in here if one.name is not None and self.state_of(one.name) == one]
        slots = view.quarantined_slots + sum(state.slot is not NO_SLOT for state in at_rest)
        return slots, {page for claim in here for page in claim.pages}

    def state_of(self, name: BaseName) -> ClaimView | None:
        """The state at rest of that name. O(claims of the ledger)."""
        return next((c for c in self._view.held_by(name.holder) if c.name == name), None)

    def moves_for(
        self,
        turn: OpenTurn,
        need: Need,
        claims: Mapping[TurnId, BatchOwned],
        start: Base | None = None,
        parked: Mapping[TurnId, BatchOwned] = _NONE,
    ) -> Moves | None:
        """The moves that make room for a turn, or ``None`` when it has to wait.

        Args:
            turn: the turn that needs room.
            need: positions that its pages must cover.
            claims: the working claims by turn; only borrowed.
            start: what it would start from; by default its session's state.
            parked: claims that turns have yet to copy out of, by turn; only borrowed.
        """
        runs = turn.id in claims
        own = turn.base if start is None else start
        wanted = self._wanted(turn, need, own, runs=runs, is_parked=turn.id in parked)
        gain = self._returning(claims)
        if (self.asked or self._roster.parking) and wanted.is_met_by(gain, 0):
            return None
        asks = self._cached_for(own, wanted, gain)
        # A turn that is short of a row alone must not cost a look at every session, every tick.
        for base in () if wanted.has_memory(gain) else self._resting_for(turn):
            if wanted.has_memory(gain):
                break
            gain.base(base)
            asks.append(base)
        victims: list[OpenTurn] = []
        for junior in self._juniors(turn, claims):
            if wanted.is_met_by(gain, len(victims)):
                break
            gain.claim(claims[junior.id])
            if junior.is_sliding:
                gain.claim(parked[junior.id])
            victims.append(junior)
        unpinned = () if wanted.has_memory(gain) else self._pinned_by(victims, claims)
        for base in unpinned:
            if base != own and not wanted.has_memory(gain):
                gain.base(base)
                asks.append(base)
        may_ask = isinstance(own, BaseName) and (own in unpinned or self._may_ask(own))
        if not wanted.has_memory(gain) and isinstance(own, BaseName) and may_ask:
            # A turn that runs has copied its base, and loses nothing but the way back.
            if not runs:
                wanted.pages = self._short_of_pages(self._view.pages_needed(need, ZEROS))
            gain.base(own)
            asks.append(own)
        if not wanted.is_met_by(gain, len(victims)):
            return None
        return Moves(tuple(asks), tuple(victims))

    def _returning(self, claims: Mapping[TurnId, BatchOwned]) -> ReleaseSimulation:
        """What is on its way back already: states asked for, and turns on their way out."""
        gain = self._view.simulate()
        for base in self.asked:
            gain.base(base)
        for leaving in self._roster.parking:
            gain.claim(claims[leaving.id])
        return gain

    def _cached_for(self, own: Base, wanted: _Wanted, gain: ReleaseSimulation) -> list[BaseName]:
        """Cached states that may go; never the one that the turn would start from."""
        if self._cache is None or wanted.has_memory(gain):
            return []
        return self._cache.plan(gain, wanted.slots, wanted.pages, spare=own)

    def _wanted(
        self, turn: OpenTurn, need: Need, own: Base, *, runs: bool, is_parked: bool
    ) -> _Wanted:
        view = self._view
        slots = int(view.capacity.slots > 0 and view.free_slots == 0)
        if runs and turn.must_slide:
            # Its own claim stays until the new one has copied out of it.
            pages = self._short_of_pages(view.pages_needed(need, ZEROS))
            return _Wanted(slots=slots, pages=pages, rows=0)
        if runs:
            pages = self._short_of_pages(-(-(need.positions - turn.covered) // self._page_size))
            return _Wanted(slots=0, pages=pages, rows=0)
        # One that was asked for is as good as gone.
        is_elsewhere = own in self.asked or is_parked
        base = ZEROS if is_elsewhere else own
        pages = self._short_of_pages(view.pages_needed(need, base))
        return _Wanted(slots=slots, pages=pages, rows=int(not self.has_row()))

    def _short_of_pages(self, pages: int) -> int:
        return max(0, pages - self._view.free_pages)

    def _juniors(self, turn: OpenTurn, claims: Mapping[TurnId, BatchOwned]) -> Iterator[OpenTurn]:
        for junior in reversed(self._roster.running):
            if junior.rank <= turn.rank:
                return
            if junior.id in claims:
                yield junior

    def _pinned_by(
        self, victims: Sequence[OpenTurn], claims: Mapping[TurnId, BatchOwned]
    ) -> Sequence[BaseName]:
        """States that only these victims have yet to copy: they can be asked for after them.

        Forks of one session copy one state, so it may be pinned by several. One in host memory
        gives no room here.
        """
        bases = (self._view.describe(claims[victim.id]).base for victim in victims)
        pins = Counter(base for base in bases if base is not None)
        states = {base: self._view.find_base(base) for base in pins}
        return [
            base
            for base, state in states.items()
            if state and state.place is Place.DEVICE and state.pinned == pins[base]
        ]

    def _resting_for(self, turn: OpenTurn) -> list[BaseName]:
        """States that may be asked for, the cheapest loss first; never the turn's own base.

        A pinned state would only drain: asking for it costs its session something and brings
        nothing before the copy has landed, and then it can be asked for anyway.
        """
        newest: dict[CustodianId, int] = {}
        resting = self._view.resting()
        for base in resting:
            newest[base.holder] = max(base.version, newest.get(base.holder, base.version))
        running = {open_turn.session for open_turn in self._roster.running}
        waiting = {open_turn.session for open_turn in self._roster.waiting}
        waiting |= {open_turn.session for open_turn in self._roster.committing}
        # A fork's first turn starts from another session's state.
        wanted = {open_turn.base for open_turn in self._roster.waiting}

        def loss(base: BaseName) -> int:
            if base in wanted:
                return 3
            if base.version < newest[base.holder]:
                return 0
            if base.holder in waiting:
                return 3
            return 2 if base.holder in running else 1

        candidates = (base for base in resting if base != turn.base and self._may_ask(base))
        return sorted(candidates, key=loss)

    def _may_ask(self, base: BaseName) -> bool:
        view = self._view.find_base(base)
        return base not in self.asked and view is not None and not view.pinned
