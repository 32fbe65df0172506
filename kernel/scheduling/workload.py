"""The working claims of the scheduler, and every way in which one of them leaves.

``finish`` and ``give_phase`` send a claim to its session, ``drop`` and ``fail`` roll it back,
``preempt`` too, after a copy in host memory has been made where there is room for one. ``launch``
moves it into a lease, and ``take_back`` lands the lease whole. There is no other way, so "released
without a reason" can't happen.
"""

from collections.abc import Sequence

from kernel.actors.actor import Address, System
from kernel.actors.door import Door
from kernel.flight import Counters, Flight
from kernel.ids import SCHEDULER, TurnId
from kernel.messages import (
    EndReason,
    PhaseAbsorbed,
    SessionMessage,
    TurnEnded,
    TurnFailed,
    TurnFinished,
)
from kernel.prefixes.turn_prefixes import NO_PREFIXES, Prefixes, leave_state
from kernel.scheduling.parking import Parking
from kernel.scheduling.roster import Roster
from kernel.turn import OpenTurn
from ownership import BatchOwned, BatchPort, Consume, LandOutcome, Lease, Owns

__all__ = ["Workload"]


class Workload:
    """Open turns with their working claims.

    Attributes:
        claims: working claims by turn; those of a launched step are in its lease instead.
        roster: the turns, by rank.
        grows: running turns that need another page before their next token.
        is_short: whether a turn waits for memory since the last pass of admission, not only for a
            row; then nothing of the cache goes for something else.
    """

    claims: Owns[dict[TurnId, BatchOwned]]

    def __init__(
        self,
        system: System,
        port: BatchPort,
        door: Door,
        counters: Counters,
        parking: Parking,
        prefixes: Prefixes = NO_PREFIXES,
    ) -> None:
        self.claims = {}
        self.prefixes = prefixes
        self.parking = parking
        self.roster = Roster()
        self.grows: dict[TurnId, OpenTurn] = {}
        self.is_short = False
        self.port = port
        self.door = door
        self.counters = counters
        self._system = system

    # A turn leaves

    def finish(self, turn: OpenTurn, reason: EndReason, stop_token: int | None, kept: int) -> None:
        """Send a turn's claim to its session, to be committed or rolled back there.

        That of a one-shot, which nobody commits, goes to the prefix cache where that wants it.
        """
        cache = self.prefixes.cache
        if cache is not None and self.prefixes.wants_end(turn, may_evict=not self.is_short):
            leave_state(cache, turn, self.claims.pop(turn.id))
            self.tell(turn, TurnEnded(turn.id, kept, reason, stop_token))
            self._end(turn)
        else:
            self._send_claim(turn, reason, stop_token, kept)

    def _send_claim(
        self, turn: OpenTurn, reason: EndReason, stop_token: int | None, kept: int
    ) -> None:
        claim = self.claims.pop(turn.id)
        self._hand_over(turn, TurnFinished(turn.id, reason, stop_token, kept, claim))
        self._end(turn)

    def finish_parked(self, turn: OpenTurn, reason: EndReason, kept: int) -> bool:
        """As ``finish``, for a preempted turn that waits with its state; False: it has none."""
        if turn.id not in self.parking.parked:
            return False
        self._roll_back(turn)  # admitted again, but its state has not been copied yet
        self.claims[turn.id] = self.parking.parked.pop(turn.id)
        self._send_claim(turn, reason, None, kept)
        return True

    def drop(self, turn: OpenTurn) -> None:
        """Roll a turn's claim back, if it has one, and forget the turn."""
        claim = self.claims.pop(turn.id, None)
        self._end(turn)
        self.parking.give_back_parked(turn)
        if claim is not None:
            self.port.rollback(claim)

    def fail(self, turn: OpenTurn, error: BaseException) -> None:
        """Drop a turn and tell its session why."""
        self.drop(turn)
        self.tell(turn, TurnFailed(turn.id, error))

    def tell(self, turn: OpenTurn, message: TurnEnded | TurnFailed) -> None:
        """Tell a session; one that is gone has told its caller itself."""
        self._system.post(Address[SessionMessage](turn.session), message, SCHEDULER)

    def give_phase(self, turn: OpenTurn) -> None:
        """Send the claim of a turn's first phase to its session; the turn goes on after it."""
        if self._hand_over(turn, PhaseAbsorbed(turn.id, self.claims.pop(turn.id))):
            self.roster.commit(turn)
        else:
            self._end(turn)

    def _hand_over(self, turn: OpenTurn, message: Consume[TurnFinished | PhaseAbsorbed]) -> bool:
        """Post a claim to its session; False when that is gone and the claim was rolled back."""
        session = Address[TurnFinished | PhaseAbsorbed](turn.session)
        try:
            left = self._system.post(session, message, SCHEDULER)
        except BaseException:
            # Nothing was moved: the claim is ours again, and the row's guard fails the turn.
            self.claims[turn.id] = message.claim
            raise
        if left is not None:
            self.port.rollback(left.claim)
        return left is None

    def preempt(self, turn: OpenTurn) -> None:
        """Take a turn's room, once its state is in host memory; it keeps all that it has streamed.

        Without room there, or without a state, its claim goes back at once.
        """
        self.grows.pop(turn.id, None)
        if turn.is_sliding:
            self._undo_slide(turn)
        turn.output.preemptions += 1
        self.counters.preemptions += 1
        if self.parking.park_turn(turn, self.claims[turn.id]):
            self.roster.park(turn)
        else:
            self.unload(turn)

    def slide(self, turn: OpenTurn, claim: Consume[BatchOwned]) -> None:
        """Go on in a claim that starts from the turn's own one, which stays until it is copied."""
        self.parking.parked[turn.id] = self.claims.pop(turn.id)
        self.claims[turn.id] = claim
        turn.has_landed = False
        turn.is_sliding = True

    def _undo_slide(self, turn: OpenTurn) -> None:
        """Nothing was copied yet: the turn's state is where it was."""
        self._roll_back(turn)
        self.claims[turn.id] = self.parking.parked.pop(turn.id)
        turn.has_landed = True
        turn.is_sliding = False

    def _roll_back(self, turn: OpenTurn) -> None:
        working = self.claims.pop(turn.id, None)
        if working is not None:
            self.port.rollback(working)

    def unload(self, turn: OpenTurn) -> None:
        """Give a turn's claim back and let it wait again."""
        self.grows.pop(turn.id, None)
        self.port.rollback(self.claims.pop(turn.id))
        turn.position = 0
        turn.is_loading = False
        self.roster.wait(turn)

    def _end(self, turn: OpenTurn) -> None:
        self.grows.pop(turn.id, None)
        self.door.leave(turn.id)
        self.roster.end(turn)

    # A step comes and goes

    def launch(self, turns: Sequence[OpenTurn], step: int) -> Lease:
        """Move the claims of all rows into one lease, whose custodian is the device."""
        lease = self.port.launch([self.claims.pop(turn.id) for turn in turns], step=step)
        for turn in turns:
            turn.in_flight = True
        return lease

    def take_back(self, flight: Flight, outcome: LandOutcome) -> None:
        """Land the whole lease before any of its rows is judged."""
        for turn, claim in zip(flight.turns, self.port.land(flight.lease, outcome), strict=True):
            turn.in_flight = False
            self.claims[turn.id] = claim
