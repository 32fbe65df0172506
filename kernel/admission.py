"""Admission and growth: who gets room next, in order of rank.

One pass a tick. It stops at the first turn that has to wait, so no junior is admitted or grown
while a senior waits for room.
"""

import heapq
from collections.abc import Callable
from typing import Final

from kernel.actor import System
from kernel.errors import EngineFault
from kernel.ids import GPU_POOL
from kernel.policies import Policy, Rank
from kernel.room import Room
from kernel.step import DeviceLimits
from kernel.turn import OpenTurn, TurnState
from kernel.workload import Workload
from ownership import ZEROS, BaseName, ClaimView, LedgerView, Need, Refused

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
    ) -> None:
        self._system = system
        self._work = work
        self._view = view
        self._limits = limits
        self._policy = policy
        self.room = Room(view, work.roster, max_rows=limits.max_rows, parked=work.parking.parked)

    def give_room(self) -> None:
        """Grow and admit in order of rank, until a turn has to wait for room."""
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
                return

    def _try(self, turn: OpenTurn, attempt: Callable[[OpenTurn], bool]) -> bool:
        if attempt(turn):
            return True
        need = Need(turn.known_len)
        if not self.room.can_ever_fit(need, self._shares(turn)):
            self._work.fail(turn, _no_room())
            return True
        moves = self.room.moves_for(turn, need, self._work.claims)
        if moves is None:
            return False
        for victim in moves.victims:
            self._work.preempt(victim)
        for base in moves.asks:
            self._ask(base)
        return attempt(turn)

    def _shares(self, turn: OpenTurn) -> ClaimView | None:
        """Whose frozen pages a turn has or can have; looked up only when a step hangs."""
        if not self._view.quarantined_leases:
            return None
        if turn.id in self._work.claims:
            return self._view.describe(self._work.claims[turn.id])
        return self.room.state_of(turn.base) if isinstance(turn.base, BaseName) else None

    def _ask(self, base: BaseName) -> None:
        """Have a state moved to host memory, or to where its session can still move it."""
        self.room.asked.add(base)
        parking = self._work.parking
        if not parking.park(base):
            parking.ask(base)

    def _admit(self, turn: OpenTurn) -> bool:
        if not self.room.has_row():
            return False
        need = Need(turn.known_len)
        port, parked = self._work.port, self._work.parking.parked
        if turn.id in parked:
            claim = port.reserve(need, parked[turn.id], turn=turn.id)
        else:
            claim = port.reserve(need, turn.base, turn=turn.id)
        if isinstance(claim, Refused) and claim.reason == "base":
            turn.base = ZEROS
            turn.absorb_first = False
            claim = port.reserve(need, ZEROS, turn=turn.id)
        if isinstance(claim, Refused):
            return False
        turn.position = self._view.position(claim)
        turn.is_loading = turn.image is not None and turn.position == 0
        if turn.image is not None and turn.is_loading:
            turn.position = turn.image.position
        turn.has_landed = False
        self._set_covered(turn)
        self._work.claims[turn.id] = claim
        self._work.roster.run(turn)
        self._policy.admitted(turn.rank)
        if not turn.was_admitted:
            turn.was_admitted = True
            self._work.door.leave(turn.id)
            turn.output.admitted_at = self._system.now()
            turn.output.cached_tokens = turn.position
            self._work.counters.cached_tokens += turn.position
        return True

    def _grow(self, turn: OpenTurn) -> bool:
        if isinstance(
            self._work.port.grow(self._work.claims[turn.id], Need(turn.known_len)), Refused
        ):
            return False
        self._set_covered(turn)
        return True

    def _set_covered(self, turn: OpenTurn) -> None:
        page = self._limits.page_size
        has_pages = self._limits.num_pages > 0
        turn.covered = -(-turn.known_len // page) * page if has_pages else _UNLIMITED
        self._work.grows.pop(turn.id, None)


def _rank(turn: OpenTurn) -> Rank:
    return turn.rank


def _no_room() -> EngineFault:
    why = "a hanging step keeps so much of the pool in quarantine that the turn can't fit"
    return EngineFault(actor=GPU_POOL, why=why)
