"""The scheduler: who runs next. It holds the working claims, and nothing that a session owns.

Its tick is one coalesced message to itself, so it has seen all its mail before it decides. In a
tick: give room in order of rank (:mod:`kernel.scheduling.admission`), then build one step of
decode rows and prefill chunks (:mod:`kernel.scheduling.batch`) and launch it. A landing comes
first, always: the lease is landed whole, then each row is judged under its own guard
(:mod:`kernel.scheduling.row_judge`). The claims themselves, and every way in which one leaves,
are in :mod:`kernel.scheduling.workload`.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import assert_never, final

from kernel.actors.actor import Actor, Address, System
from kernel.actors.door import Door
from kernel.errors import EngineFault, StepError
from kernel.flight import Counters, Flight
from kernel.ids import GPU_POOL, SCHEDULER, TurnId
from kernel.messages import (
    Cancel,
    ClearCache,
    Continue,
    Down,
    EndReason,
    GaveUp,
    Interrupt,
    LaunchStep,
    PoolMessage,
    ReadOutState,
    Rested,
    SchedulerMessage,
    StepLanded,
    Submit,
    Tick,
    TurnFailed,
)
from kernel.policies import Policy, TurnFacts
from kernel.prefixes.cache import PrefixCache
from kernel.prefixes.turn_prefixes import NO_PREFIXES, Prefixes
from kernel.scheduling.admission import Admission
from kernel.scheduling.batch import build_step
from kernel.scheduling.landing import fault_of, num_drawn
from kernel.scheduling.parking import Parking
from kernel.scheduling.publishing import publish_reached
from kernel.scheduling.roster import Roster
from kernel.scheduling.row_judge import RowJudge
from kernel.scheduling.workload import Workload
from kernel.step import (
    DeviceLimits,
    StepDone,
    StepReport,
    TransferReport,
)
from kernel.turn import OpenTurn, TurnState
from ownership import (
    Absorbed,
    BatchOwned,
    BatchPort,
    Consume,
    Lease,
    LedgerView,
    StepFailed,
)

__all__ = ["Scheduler"]


@final
class Scheduler(Actor[SchedulerMessage]):
    """Runs turns in continuous batches, one step at a time."""

    def __init__(
        self,
        system: System,
        port: BatchPort,
        view: LedgerView,
        limits: DeviceLimits,
        policy: Policy,
        door: Door,
        counters: Counters,
        new_step: Callable[[], int],
        mail_bound: int,
        prefixes: Prefixes = NO_PREFIXES,
    ) -> None:
        super().__init__(SCHEDULER, system, mail_bound=mail_bound)
        self.parking = Parking(system, port, view, counters, new_step)
        self._work = Workload(system, port, door, counters, self.parking, prefixes)
        self._rows = RowJudge(system, self._work, self.parking, counters)
        self._admission = Admission(system, self._work, view, limits, policy, prefixes)
        self._view = view
        self._limits = limits
        self._policy = policy
        self._counters = counters
        self._new_step = new_step
        self._pool: Address[PoolMessage] = Address(GPU_POOL)
        self.flight: Flight | None = None
        self._tick_posted = False
        self._arrivals = 0

    @property
    def roster(self) -> Roster:
        """The open turns, by rank."""
        return self._work.roster

    @property
    def cache(self) -> PrefixCache | None:
        """The prefix cache; only to be looked at."""
        return self._work.prefixes.cache

    @property
    def claims(self) -> Mapping[TurnId, BatchOwned]:
        """The working claims that are here; only to be looked at."""
        return self._work.claims

    def handle(self, message: SchedulerMessage, /) -> None:  # noqa: C901  one case a message
        """Take one message; decide nothing until the tick that follows it."""
        match message:
            case StepLanded():
                self._land(message.lease, message.report)
            case Tick():
                self._tick_posted = False
                if self.flight is None:
                    self._admission.give_room()
                    self._publish()
                    self._launch()
                stranded = self.parking.launch()
                if not stranded:
                    return
                self._unload(stranded)
            case Submit():
                self._submit(message.turn)
            case Rested():
                pass
            case Cancel():
                self._cancel(message.turn)
            case Interrupt():
                self._interrupt(message.turn, message.keep, message.reason)
            case Continue():
                self._continue(message)
            case GaveUp():
                self._admission.room.asked.discard(message.base)
                self.parking.asked.discard(message.base)
                self._counters.forced_parks += message.moved
            case ClearCache():
                self._clear_cache(forever=message.forever)
            case ReadOutState():
                self.parking.read_out(message)
            case Down():
                self._down(message)
            case _:
                assert_never(message)
        self._request_tick()

    def refuse(self, message: SchedulerMessage, error: BaseException, /) -> None:
        """A turn that never arrived has failed."""
        if isinstance(message, Submit):
            self._work.door.leave(message.turn.id)
            self._work.tell(message.turn, TurnFailed(message.turn.id, error))
        elif isinstance(message, ReadOutState):
            self.parking.refuse(message, str(error))

    def abandon(self, _error: BaseException, /) -> None:
        """Stop counting the turns that were here, those that nobody waits for any more included."""
        for turn in self._work.roster:
            self._work.door.leave(turn.id)

    # Arrivals and departures

    def _submit(self, turn: OpenTurn) -> None:
        self._arrivals += 1
        facts = TurnFacts(
            arrival_s=self.system.now(),
            arrival_number=self._arrivals,
            priority=turn.priority,
            tenant=turn.tenant,
            deadline_s=turn.deadline_s,
            cost_tokens=turn.known_len + turn.max_tokens,
        )
        turn.rank = self._policy.rank(facts)
        self._work.roster.add(turn)

    def _cancel(self, turn_id: TurnId) -> None:
        turn = self._work.roster.get(turn_id)
        if turn is None:
            return
        if turn.in_flight:
            turn.cancelled = True
            # Not only at the landing, which may never come: till then it drains.
            self.parking.give_back_parked(turn)
        else:
            self._work.drop(turn)

    def _interrupt(self, turn_id: TurnId, keep: int | None, reason: EndReason) -> None:
        turn = self._work.roster.get(turn_id)
        if turn is None or turn.cancelled:
            return
        turn.interrupt_keep = turn.generated if keep is None and not turn.in_flight else keep
        turn.interrupt_reason = reason
        if not turn.in_flight and turn.state is not TurnState.COMMITTING:
            self._rows.end_interrupted(turn)

    def _continue(self, message: Continue) -> None:
        turn = self._work.roster.get(message.turn)
        if turn is None:
            return
        turn.base = message.base
        turn.absorb_first = False
        turn.cache.is_planned = False
        self._work.roster.wait(turn)
        if turn.interrupt_reason is not None:
            self._rows.end_interrupted(turn)

    def _down(self, message: Down) -> None:
        if message.name == GPU_POOL:
            if self.flight is not None and self.flight.pool_incarnation == message.incarnation:
                self._lose_flight(message.why)
            self._unload(self.parking.lose(message.incarnation, message.why))
            return
        for asked in (self._admission.room.asked, self.parking.asked):
            asked -= {base for base in asked if base.holder == message.name}
        for turn in self._work.roster.of_session(message.name):
            self._cancel(turn.id)

    def _lose_flight(self, why: str) -> None:
        """The pool died with our lease: its turns fail now, it lands when the device is done."""
        flight, self.flight = self.flight, None
        if flight is None:
            return
        for turn in flight.turns:
            turn.in_flight = False
            self._work.fail(turn, EngineFault(actor=GPU_POOL, why=why))

    # Landing

    def _unload(self, turns: Sequence[OpenTurn]) -> None:
        """Turns whose states are in host memory now, or can't get there, wait again."""
        for turn in turns:
            if turn.state is TurnState.PARKING:
                self._work.unload(turn)

    def _land(self, lease: Consume[Lease], report: StepReport | TransferReport) -> None:
        transfer = self.parking.flight_of(lease)
        if transfer is not None:
            self._unload(self.parking.land(transfer, lease, report))
            self.parking.make_host_room({turn.base for turn in self._work.roster})
            return
        flight = self.flight
        if flight is None or flight.lease is not lease:
            # Launched by a former life, or lost with a pool: nobody waits for these rows.
            for claim in self._work.port.land(lease, StepFailed("nobody waits for this step")):
                self._work.port.rollback(claim)
            return
        self.flight = None
        why = fault_of(report, len(flight.turns))
        if isinstance(report, StepDone) and why is None:
            self._work.take_back(flight, Absorbed(flight.advances))
            self._counters.generated_tokens += num_drawn(report.tokens)
            for turn, absorbed, outcome in zip(
                flight.turns, flight.absorbs, report.tokens, strict=True
            ):
                try:
                    self._rows.judge(turn, absorbed, outcome)
                except Exception as error:
                    fault = EngineFault(actor=SCHEDULER, why=repr(error))
                    fault.__cause__ = error
                    self._rows.fail(turn, fault)
        else:
            why = why or "it failed without a reason"
            self._work.take_back(flight, StepFailed(why))
            for turn in flight.turns:
                self._rows.fail(turn, StepError(step=flight.step, why=why))

    # Launch

    def _publish(self) -> None:
        """Leave states in the prefix cache; after admission, since copies have no rank."""
        may_evict = not self._work.is_short
        publish_reached(self._work, self._work.prefixes, self._view, may_evict=may_evict)

    def _clear_cache(self, *, forever: bool) -> None:
        cache = self._work.prefixes.cache
        if cache is not None:
            cache.clear(forever=forever)

    def _launch(self) -> None:
        turns, rows = build_step(self._work.roster.running, self._limits)
        if not turns:
            return
        step = self._new_step()
        absorbs = tuple(len(row.tokens) for row in rows)
        images = [0 if row.image is None else row.image.position for row in rows]
        advances = tuple(map(add, absorbs, images)) if any(images) else absorbs
        lease = self._work.launch(turns, step)
        pool = self.system.incarnation_of(GPU_POOL)
        now = self.system.now()
        self.flight = Flight(lease, step, now, tuple(turns), absorbs, advances, pool)
        self._counters.steps += 1
        self._counters.rows += len(rows)
        self._counters.absorbed_tokens += sum(absorbs)
        left = self.system.post(self._pool, LaunchStep(lease, step, tuple(rows)), self.name)
        if left is not None:
            flight, self.flight = self.flight, None
            self._work.take_back(flight, StepFailed("the step was never started"))
            for turn in turns:
                self._work.fail(turn, EngineFault(actor=GPU_POOL, why="it is not running"))

    def _request_tick(self) -> None:
        if not self._tick_posted:
            self._tick_posted = True
            self.system.post(Address[SchedulerMessage](self.name), Tick(), self.name)
