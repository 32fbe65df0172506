"""Copies that the scheduler asks for: states parked in host memory, preempted turns, read-outs.

Each is a turn without tokens: reserve from a base in another place, copy, then hand over or roll
back. It has no rank: it is reserved at once or refused, and then the next tier is asked. What
was asked for goes to the device as one lease at a time, beside the steps that compute.
"""

from collections.abc import Callable, Container

import attrs

from kernel.actors.actor import Address, System
from kernel.flight import Counters
from kernel.ids import GPU_POOL, SCHEDULER, TurnId
from kernel.messages import (
    GaveUp,
    GiveUp,
    LaunchTransfer,
    Parked,
    PoolMessage,
    ReadOutState,
    SchedulerMessage,
    SessionMessage,
    StateRead,
)
from kernel.state_image import StateImage
from kernel.step import StepFault, StepReport, TransferDone, TransferReport
from kernel.turn import OpenTurn, TurnState
from ownership import (
    Absorbed,
    Base,
    BaseName,
    BatchOwned,
    BatchPort,
    Consume,
    CustodianId,
    Lease,
    LedgerView,
    Need,
    Owns,
    Place,
    Refused,
    StepFailed,
)

__all__ = ["Errand", "ParkState", "ParkTurn", "Parking", "ReadState", "TransferFlight"]


@attrs.frozen
class ParkState:
    """A state at rest moves to host memory."""

    base: BaseName


@attrs.frozen
class ParkTurn:
    """A preempted turn's working state moves to host memory; it waits there."""

    turn: OpenTurn


@attrs.frozen
class ReadState:
    """A state at rest is read into an image for its session."""

    base: BaseName
    session: CustodianId


Errand = ParkState | ParkTurn | ReadState


@attrs.frozen
class TransferFlight:
    """A transfer that the device has: what each of its copies is for."""

    lease: Lease
    errands: tuple[Errand, ...]
    pool_incarnation: int
    launched_at: float
    steps_before: int


class Parking:
    """The copies of one scheduler.

    Attributes:
        copies: claims that wait until the copies before them have been made, by number.
        parked: what a turn's working claim has yet to copy out of, or will: in host memory of a
            preempted turn, its own claim before of one that slides.
        asked: states in host memory whose sessions were asked to give them up.
    """

    copies: Owns[dict[int, BatchOwned]]
    parked: Owns[dict[TurnId, BatchOwned]]

    def __init__(
        self,
        system: System,
        port: BatchPort,
        view: LedgerView,
        counters: Counters,
        new_step: Callable[[], int],
    ) -> None:
        self.copies = {}
        self.parked = {}
        self.flights: list[TransferFlight] = []
        self.asked: set[BaseName] = set()
        self._errands: dict[int, Errand] = {}
        self._next = 0
        self._system = system
        self._port = port
        self._view = view
        self._counters = counters
        self._new_step = new_step
        self._pool: Address[PoolMessage] = Address(GPU_POOL)

    # What is asked

    def park(self, base: BaseName) -> bool:
        """Begin to move a state at rest to host memory; False when there is no room for it."""
        claim = self._port.reserve(Need(0), base, turn="park", place=Place.HOST)
        if isinstance(claim, Refused):
            return False
        self._add(claim, ParkState(base))
        return True

    def park_turn(self, turn: OpenTurn, working: BatchOwned) -> bool:
        """Begin to copy a preempted turn's state to host memory; False: no room, or no state."""
        if not turn.has_landed or not turn.position:
            return False
        claim = self._port.reserve(Need(0), working, turn=turn.id, place=Place.HOST)
        if isinstance(claim, Refused):
            return False
        self._add(claim, ParkTurn(turn))
        return True

    def read_out(self, message: ReadOutState) -> None:
        """Begin to read a state into an image."""
        claim = self._port.reserve(Need(0), message.base, turn="read out", place=Place.FILE)
        if isinstance(claim, Refused):
            self._answer(message.session, StateRead(message.base, None, "the state is gone"))
        else:
            self._add(claim, ReadState(message.base, message.session))

    def refuse(self, message: ReadOutState, why: str) -> None:
        """A question that nobody is left to work on."""
        self._answer(message.session, StateRead(message.base, None, why))

    def give_back_parked(self, turn: OpenTurn) -> None:
        """A turn has its state on the device again, or needs none any more."""
        claim = self.parked.pop(turn.id, None)
        if claim is not None:
            self._port.rollback(claim)

    def make_host_room(self, wanted: Container[Base]) -> None:
        """Ask for the least recently committed states in host memory while little is free there.

        So that what has to leave the device next finds room at once. What has just been copied
        is not the session's yet, and stays: memory for one state alone is of use.

        Args:
            wanted: bases of turns that wait; they stay.
        """
        capacity = self._view.host_capacity
        if capacity is None:
            return
        slots, pages = self._view.free(Place.HOST)
        low_slots = -(-capacity.slots // 8)
        low_pages = -(-capacity.pages // 8)
        if slots >= low_slots and pages >= low_pages:
            return
        gain = self._view.simulate(Place.HOST)
        for base in self.asked:
            gain.base(base)
        for base in self._view.resting(Place.HOST):
            if slots + gain.slots >= low_slots and pages + gain.pages >= low_pages:
                return
            found = self._view.find_base(base)
            is_free = found is not None and not found.pinned
            if is_free and base not in wanted and base not in self.asked:
                gain.base(base)
                self.asked.add(base)
                self.ask(base)

    def _add(self, claim: Consume[BatchOwned], errand: Errand) -> None:
        number = self._next = self._next + 1
        self.copies[number] = claim
        self._errands[number] = errand

    # A transfer comes and goes

    def launch(self) -> list[OpenTurn]:
        """Send the copies that were asked for to the device, as one lease, one lease at a time.

        A device makes them one after another: of two, the second's deadline would run while the
        first is made.

        Returns:
            As :meth:`land`, where there is no device to send them to.
        """
        if not self.copies or self.flights:
            return []
        numbers = list(self.copies)
        step = self._new_step()
        lease = self._port.launch([self.copies.pop(number) for number in numbers], step=step)
        errands = tuple(self._errands.pop(number) for number in numbers)
        incarnation = self._system.incarnation_of(GPU_POOL)
        now, steps = self._system.now(), self._counters.steps
        flight = TransferFlight(lease, errands, incarnation, now, steps)
        self.flights.append(flight)
        if self._system.post(self._pool, LaunchTransfer(lease, step), SCHEDULER) is None:
            return []
        return self.land(flight, lease, StepFault("the GPU pool is not running"))

    def flight_of(self, lease: Lease) -> TransferFlight | None:
        """The transfer of a lease; ``None``: it isn't one of ours."""
        return next((flight for flight in self.flights if flight.lease is lease), None)

    def land(
        self,
        flight: TransferFlight,
        lease: Consume[Lease],
        report: StepReport | TransferReport,
    ) -> list[OpenTurn]:
        """Take a transfer's claims back, and hand each over or give it back.

        Returns:
            The preempted turns whose states it was to copy, copied or not.
        """
        self.flights.remove(flight)
        counters, errands = self._counters, flight.errands
        beside = counters.steps - flight.steps_before
        counters.steps_beside_a_copy = max(counters.steps_beside_a_copy, beside)
        images: tuple[StateImage | None, ...] = (None,) * len(errands)
        why = ""
        if isinstance(report, TransferDone) and len(report.images) == len(errands):
            images = report.images
            outcome: Absorbed | StepFailed = Absorbed((0,) * len(errands))
        else:
            why = report.why if isinstance(report, StepFault) else "it reported other rows"
            outcome = StepFailed(why)
        claims = self._port.land(lease, outcome)
        for errand, image, claim in zip(errands, images, claims, strict=True):
            if isinstance(errand, ReadState) or why:
                self._port.rollback(claim)
                self._tell(errand, image, why)
            elif isinstance(errand, ParkState):
                self._hand_over(errand.base, claim)
            elif errand.turn.state is TurnState.PARKING:
                self.parked[errand.turn.id] = claim
            else:
                self._port.rollback(claim)
        return [one.turn for one in errands if isinstance(one, ParkTurn)]

    def lose(self, incarnation: int, why: str) -> list[OpenTurn]:
        """A GPU pool died with these transfers; they land when the device is done.

        A state that was to be parked stays with its session: until then it would only drain.

        Returns:
            The preempted turns that were on their way to host memory.
        """
        lost = [flight for flight in self.flights if flight.pool_incarnation == incarnation]
        self.flights = [flight for flight in self.flights if flight not in lost]
        turns: list[OpenTurn] = []
        for errand in (errand for flight in lost for errand in flight.errands):
            if isinstance(errand, ParkTurn):
                turns.append(errand.turn)
            elif isinstance(errand, ParkState):
                self._gave_up(errand.base)
            else:
                self._tell(errand, None, why)
        return turns

    def _tell(self, errand: Errand, image: StateImage | None, why: str) -> None:
        if isinstance(errand, ReadState):
            self._answer(errand.session, StateRead(errand.base, image, why))
        elif isinstance(errand, ParkState):
            # The copy failed: the state has to go all the same, to the next tier.
            self.ask(errand.base)

    def ask(self, base: BaseName) -> None:
        """Ask a session for a state; what is answered at once, because it is gone, too."""
        message = GiveUp(base)
        if self._system.post(Address[SessionMessage](base.holder), message, SCHEDULER) is not None:
            self._gave_up(base)

    def _gave_up(self, base: BaseName) -> None:
        """Nobody is there to answer: answer in their place."""
        here = Address[SchedulerMessage](SCHEDULER)
        self._system.post(here, GaveUp(base, moved=False), SCHEDULER)

    def _hand_over(self, base: BaseName, claim: Consume[BatchOwned]) -> None:
        session = Address[Parked](base.holder)
        left = self._system.post(session, Parked(base, claim), SCHEDULER)
        if left is not None:
            self._port.rollback(left.claim)
            self._gave_up(base)

    def _answer(self, session: CustodianId, message: StateRead) -> None:
        self._system.post(Address[SessionMessage](session), message, SCHEDULER)
