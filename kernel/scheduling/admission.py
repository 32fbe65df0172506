"""Admission and growth: who gets room next, in order of rank.

One pass a tick. It stops at the first turn that has to wait, so no junior is admitted or grown
while a senior waits for room.
"""

import heapq
from collections.abc import Callable
from typing import Final

from kernel.actors.actor import System
from kernel.errors import EngineFault
from kernel.ids import GPU_POOL, SCHEDULER
from kernel.policies import Policy, Rank
from kernel.prefixes.cache import Match
from kernel.prefixes.turn_prefixes import NO_PREFIXES, Prefixes
from kernel.scheduling.room import Room
from kernel.scheduling.workload import Workload
from kernel.step import DeviceLimits
from kernel.turn import OpenTurn, TurnState
from ownership import ZEROS, Base, BaseName, ClaimView, LedgerView, Need, Refused

__all__ = ["Admission"]

_UNLIMITED: Final = 1 << 62


class Admission:
    """Gives room to waiting and growing turns of one workload."""

    def __init__(
        self,
        system: System,
        work: Workload,
        view: LedgerView,
        limits: DeviceLimits,
        policy: Policy,
        prefixes: Prefixes = NO_PREFIXES,
    ) -> None:
        self._system = system
        self._work = work
        self._view = view
        self._limits = limits
        self._policy = policy
        self._prefixes = prefixes
        self.room = Room(
            view,
            work.roster,
            max_rows=limits.max_rows,
            cache=prefixes.cache,
        )

    def give_room(self) -> None:
        """Grow and admit in order of rank, until a turn has to wait for room."""
        self._work.is_short = False
        if not (self._work.grows or self._work.roster.waiting):
            return
        # Merged as it goes: a pass looks at few turns, however many wait.
        growing = sorted(self._work.grows.values(), key=_rank)
        for turn in heapq.merge(growing, list(self._work.roster.waiting), key=_rank):
            if turn.state is TurnState.ENDED:
                continue
            if turn.state is TurnState.RUNNING:
                has_room = turn.id not in self._work.grows or self._try(turn, self._grow)
            else:
                has_room = self._try(turn, self._admit)
            if not has_room:
                self._work.is_short = turn.state is TurnState.RUNNING or self.room.has_row()
                return

    def _try(self, turn: OpenTurn, attempt: Callable[[OpenTurn], bool]) -> bool:
        if attempt(turn):
            return True
        need = self._need(turn)
        match = self._match(turn)
        start = turn.base if match is None else match.base
        slides = turn.state is TurnState.RUNNING and turn.must_slide
        if not self.room.can_ever_fit(need, self._shares(turn, start), slides=slides):
            self._work.fail(turn, _no_room())
            return True
        moves = self.room.moves_for(turn, need, self._work.claims, start, self._work.parking.parked)
        if moves is None:
            return False
        for victim in moves.victims:
            self._work.preempt(victim)
        is_parked = [self._ask(base) for base in moves.asks]
        if not all(is_parked) or any(one.state is TurnState.WAITING for one in moves.victims):
            # What could not be copied: else nothing would ever land, and so make room again.
            self._work.parking.make_host_room({one.base for one in self._work.roster})
        return attempt(turn)

    def _match(self, turn: OpenTurn) -> Match | None:
        """What a turn that waits for its first claim finds in the cache, if that is the furthest.

        The name that it finds is pinned by the reserve that follows, in the same handler.

        Returns:
            ``None``: it has a state, or one of its session's is further.
        """
        has_state = turn.id in self._work.claims or turn.id in self._work.parking.parked
        is_newest = turn.base is not ZEROS and not turn.is_behind
        if has_state or is_newest:
            return None
        if turn.base is ZEROS and turn.image is None:
            return self._prefixes.match(turn)
        # Of a session that slides a cached state reaches no further than its own.
        match = None if turn.window is not None else self._prefixes.match(turn)
        return match if match is not None and match.position > self._start(turn) else None

    def _fall_back(self, turn: OpenTurn) -> bool:
        """Give a turn whose base is gone the nearest one of its session that is left.

        Returns:
            False: there is none but an image, or nothing.
        """
        least = 0 if turn.image is None else turn.image.position
        found = [(name, self._view.find_base(name)) for name in turn.fallbacks]
        left = [name for name, base in found if base is not None and base.position > least]
        turn.base = left[0] if left else ZEROS
        turn.fallbacks = tuple(left[1:])
        turn.is_behind = bool(left)
        turn.absorb_first = False
        turn.cache.is_planned = False  # of a first phase that is none any more
        return bool(left)

    def _shares(self, turn: OpenTurn, start: Base) -> ClaimView | None:
        """Whose frozen pages a turn has or can have; looked up only when a step hangs."""
        if not self._view.quarantined_leases:
            return None
        if turn.id in self._work.claims:
            return self._view.describe(self._work.claims[turn.id])
        return self.room.state_of(start) if isinstance(start, BaseName) else None

    def _ask(self, base: BaseName) -> bool:
        """Have a state moved to host memory, or, where no room is, to where its session can.

        Returns:
            False: there was no room.
        """
        cache = self._prefixes.cache
        if base.holder == SCHEDULER and cache is not None:
            cache.evict(base)
            return True
        self.room.asked.add(base)
        parking = self._work.parking
        is_parked = parking.park(base)
        if not is_parked:
            parking.ask(base)
        return is_parked

    def _admit(self, turn: OpenTurn) -> bool:
        if not self.room.has_row():
            return False
        need = self._need(turn)
        port, parked = self._work.port, self._work.parking.parked
        match = self._match(turn)
        if turn.id in parked:
            claim = port.reserve(need, parked[turn.id], turn=turn.id)
        else:
            start = turn.base if match is None else match.base
            claim = port.reserve(need, start, turn=turn.id)
        has_more = True
        while has_more and isinstance(claim, Refused) and claim.reason == "base":
            has_more = self._fall_back(turn)
            match = self._match(turn)
            need = self._need(turn)
            left = turn.base if match is None else match.base
            claim = port.reserve(need, left, turn=turn.id)
        if isinstance(claim, Refused):
            return False
        turn.position = self._view.position(claim)
        turn.first_page = need.first_page
        turn.is_sliding = False
        turn.is_loading = turn.image is not None and turn.position == 0
        if turn.image is not None and turn.is_loading:
            turn.position = turn.image.position
        turn.has_landed = False
        self._set_covered(turn, need)
        self._work.claims[turn.id] = claim
        self._work.roster.run(turn)
        self._policy.admitted(turn.rank)
        self._prefixes.begin(turn, match)
        if not turn.was_admitted:
            turn.was_admitted = True
            self._work.door.leave(turn.id)
            turn.output.admitted_at = self._system.now()
        if not turn.has_computed:
            # Whoever loses its claim before its first row may find less the next time.
            self._work.counters.cached_tokens += turn.position - turn.output.cached_tokens
            turn.output.cached_tokens = turn.position
        return True

    def _grow(self, turn: OpenTurn) -> bool:
        if turn.must_slide:
            return self._slide(turn)
        need = self._need(turn)
        if isinstance(self._work.port.grow(self._work.claims[turn.id], need), Refused):
            return False
        self._set_covered(turn, need)
        return True

    def _slide(self, turn: OpenTurn) -> bool:
        """Go on in a claim without the oldest pages; its first step copies the rest."""
        need = self._need(turn)
        claim = self._work.port.reserve(need, self._work.claims[turn.id], turn=turn.id)
        if isinstance(claim, Refused):
            return False
        self._work.slide(turn, claim)
        turn.first_page = need.first_page
        self._set_covered(turn, need)
        return True

    def _need(self, turn: OpenTurn) -> Need:
        """What a turn's claim must hold: from where it is, or from where it will start."""
        if turn.window is None:
            return Need(turn.known_len)
        return turn.need(turn.position if turn.state is TurnState.RUNNING else self._start(turn))

    def _start(self, turn: OpenTurn) -> int:
        """The position at which a turn that waits would begin."""
        parked = self._work.parking.parked
        if turn.id in parked:
            return self._view.position(parked[turn.id])
        found = self._view.find_base(turn.base) if isinstance(turn.base, BaseName) else None
        if found is not None:
            return found.position
        return 0 if turn.image is None else turn.image.position

    def _set_covered(self, turn: OpenTurn, need: Need) -> None:
        page = self._limits.page_size
        has_pages = self._limits.num_pages > 0
        turn.covered = -(-need.positions // page) * page if has_pages else _UNLIMITED
        self._work.grows.pop(turn.id, None)


def _rank(turn: OpenTurn) -> Rank:
    return turn.rank


def _no_room() -> EngineFault:
    why = "a hanging step keeps so much of the pool in quarantine that the turn can't fit"
    return EngineFault(actor=GPU_POOL, why=why)
