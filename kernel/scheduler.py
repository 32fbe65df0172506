"""The scheduler: who runs next. It holds the working claims, and nothing that a session owns.

Its tick is one coalesced message to itself, so it has seen all its mail before it decides. In a
tick: give room in order of rank (growth and admission, :mod:`kernel.room`), then build one step of
decode rows and prefill chunks (:mod:`kernel.batch`) and launch it. A landing comes first, always:
the lease is landed whole, then each row is judged under its own guard.

Every way in which a turn leaves goes through one of ``_finish`` (its claim goes to the session),
``_drop`` (its claim is rolled back) or a launch.
"""

from collections.abc import Callable
from functools import partial
from typing import assert_never, final

import attrs

from kernel.actor import Actor, Address, System
from kernel.batch import build_step
from kernel.door import Door
from kernel.errors import EngineFault, StepError
from kernel.ids import GPU_POOL, SCHEDULER, TurnId
from kernel.messages import (
    Cancel,
    Continue,
    Down,
    EndReason,
    GaveUp,
    GiveUp,
    Interrupt,
    LaunchStep,
    PhaseAbsorbed,
    PoolMessage,
    Rested,
    SchedulerMessage,
    SessionMessage,
    StepLanded,
    StopFound,
    Submit,
    Tick,
    TurnEnded,
    TurnFailed,
    TurnFinished,
)
from kernel.policies import Policy, TurnFacts
from kernel.room import Room
from kernel.roster import Roster
from kernel.step import DeviceLimits, StepDone, StepReport
from kernel.turn import OpenTurn, TurnState
from ownership import (
    ZEROS,
    Absorbed,
    BaseName,
    BatchOwned,
    BatchPort,
    LandOutcome,
    Lease,
    LedgerView,
    Need,
    Owns,
    Refused,
    StepFailed,
)

__all__ = ["Counters", "Scheduler"]


@attrs.define(eq=False)
class Counters:
    """What the scheduler has done; read by ``Engine.stats``, outlives a scheduler."""

    steps: int = 0
    rows: int = 0
    absorbed_tokens: int = 0
    """Tokens put through the model, recomputed ones included."""
    generated_tokens: int = 0
    preemptions: int = 0
    rollbacks: int = 0
    forced_parks: int = 0
    recomputed_tokens: int = 0
    cached_tokens: int = 0
    last_landing_at: float = 0.0


@attrs.frozen
class Flight:
    """The step that the device has: whose rows, and how many tokens each absorbs."""

    lease: Lease
    step: int
    launched_at: float
    turns: tuple[OpenTurn, ...]
    absorbs: tuple[int, ...]


@final
class Scheduler(Actor[SchedulerMessage]):
    """Runs turns in continuous batches, one step at a time."""

    claims: Owns[dict[TurnId, BatchOwned]]

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
    ) -> None:
        super().__init__(SCHEDULER, system, mail_bound=mail_bound)
        self._port = port
        self._view = view
        self._limits = limits
        self._policy = policy
        self._door = door
        self._counters = counters
        self._new_step = new_step
        self._pool: Address[PoolMessage] = Address(GPU_POOL)
        self.roster = Roster()
        self.room = Room(view, self.roster, max_rows=limits.max_rows)
        self.claims = {}
        self._grows: dict[TurnId, OpenTurn] = {}
        self.flight: Flight | None = None
        self._tick_posted = False
        self._arrivals = 0

    def handle(self, message: SchedulerMessage, /) -> None:
        """Take one message; decide nothing until the tick that follows it."""
        match message:
            case StepLanded():
                self._land(message.lease, message.report)
            case Tick():
                self._tick_posted = False
                self._give_room()
                if self.flight is None:
                    self._launch()
                return
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
                self.room.asked.discard(message.base)
                self._counters.forced_parks += message.moved
            case Down():
                self._down(message)
            case _:
                assert_never(message)
        self._request_tick()

    def refuse(self, message: SchedulerMessage, error: BaseException, /) -> None:
        """A turn that never arrived has failed."""
        if isinstance(message, Submit):
            self._tell(message.turn, TurnFailed(message.turn.id, error))

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
        self.roster.add(turn)

    def _cancel(self, turn_id: TurnId) -> None:
        turn = self.roster.get(turn_id)
        if turn is None:
            return
        if turn.in_flight:
            turn.cancelled = True
        else:
            self._drop(turn)

    def _interrupt(self, turn_id: TurnId, keep: int | None, reason: EndReason) -> None:
        turn = self.roster.get(turn_id)
        if turn is None or turn.cancelled:
            return
        turn.interrupt_keep = turn.generated if keep is None and not turn.in_flight else keep
        turn.interrupt_reason = reason
        if not turn.in_flight and turn.state is not TurnState.COMMITTING:
            self._end_interrupted(turn)

    def _end_interrupted(self, turn: OpenTurn) -> None:
        keep = turn.interrupt_keep
        kept = turn.generated if keep is None else min(keep, turn.generated)
        if turn.state is TurnState.RUNNING and turn.has_landed:
            self._finish(turn, turn.interrupt_reason or "interrupt", None, kept)
        else:
            self._drop(turn)
            self._tell(turn, TurnEnded(turn.id, kept))

    def _continue(self, message: Continue) -> None:
        turn = self.roster.get(message.turn)
        if turn is None:
            return
        turn.base = message.base
        turn.absorb_first = False
        self.roster.wait(turn)
        if turn.interrupt_reason is not None:
            self._end_interrupted(turn)

    def _finish(self, turn: OpenTurn, reason: EndReason, stop_token: int | None, kept: int) -> None:
        claim = self.claims.pop(turn.id)
        self._end(turn)
        message = TurnFinished(turn.id, reason, stop_token, kept, claim)
        left = self.system.post(Address[SessionMessage](turn.session), message, self.name)
        if left is not None:
            self._port.rollback(message.claim)
            self._counters.rollbacks += 1

    def _drop(self, turn: OpenTurn) -> None:
        """Roll a turn's claim back, if it has one, and forget the turn."""
        claim = self.claims.pop(turn.id, None)
        self._end(turn)
        if claim is not None:
            self._port.rollback(claim)
            self._counters.rollbacks += 1

    def _end(self, turn: OpenTurn) -> None:
        self._grows.pop(turn.id, None)
        self._door.leave(turn.id)
        self.roster.end(turn)

    def _fail(self, turn: OpenTurn, error: BaseException) -> None:
        self._drop(turn)
        self._tell(turn, TurnFailed(turn.id, error))

    def _tell(self, turn: OpenTurn, message: TurnEnded | TurnFailed) -> None:
        # A session that is gone has told its caller itself.
        self.system.post(Address[SessionMessage](turn.session), message, self.name)

    def _down(self, message: Down) -> None:
        if message.name == GPU_POOL:
            self._lose_flight(message.why)
            return
        for base in [base for base in self.room.asked if base.holder == message.name]:
            self.room.asked.discard(base)
        for turn in self.roster.of_session(message.name):
            self._cancel(turn.id)

    def _lose_flight(self, why: str) -> None:
        """The pool died with our lease: its turns fail now, it lands when the device is done."""
        flight, self.flight = self.flight, None
        if flight is None:
            return
        for turn in flight.turns:
            turn.in_flight = False
            self._fail(turn, EngineFault(actor=GPU_POOL, why=why))

    # Landing

    def _land(self, lease: Lease, report: StepReport) -> None:
        flight = self.flight
        if flight is None or flight.lease is not lease:
            # Launched by a former life, or lost with a pool: nobody waits for these rows.
            for claim in self._port.land(lease, StepFailed("nobody waits for this step")):
                self._port.rollback(claim)
            return
        self.flight = None
        self._counters.last_landing_at = self.system.now()
        if isinstance(report, StepDone):
            self._take_back(flight, Absorbed(flight.absorbs))
            self._counters.generated_tokens += sum(token is not None for token in report.tokens)
            for turn, absorbed, token in zip(
                flight.turns, flight.absorbs, report.tokens, strict=True
            ):
                try:
                    self._judge(turn, absorbed, token)
                except Exception as error:
                    self._fail_row(turn, error)
        else:
            self._take_back(flight, StepFailed(report.why))
            for turn in flight.turns:
                self._fail_row(turn, StepError(step=flight.step, why=report.why))

    def _take_back(self, flight: Flight, outcome: LandOutcome) -> None:
        """Land the whole lease before any of its rows is judged."""
        for turn, claim in zip(flight.turns, self._port.land(flight.lease, outcome), strict=True):
            turn.in_flight = False
            self.claims[turn.id] = claim

    def _fail_row(self, turn: OpenTurn, error: BaseException) -> None:
        if turn.cancelled:
            self._drop(turn)
        elif turn.state is not TurnState.ENDED:
            self._fail(turn, error)

    def _judge(self, turn: OpenTurn, absorbed: int, token: int | None) -> None:
        self._count_absorbed(turn, absorbed)
        turn.has_landed = True
        if turn.cancelled:
            self._drop(turn)
            return
        if token is not None and self._take_token(turn, token):
            return
        if turn.interrupt_reason is not None:
            self._end_interrupted(turn)
        elif token is None and turn.position == turn.target and not turn.draws:
            self._reach_target(turn)

    def _count_absorbed(self, turn: OpenTurn, absorbed: int) -> None:
        start = turn.position
        turn.position = position = start + absorbed
        if start < turn.absorbed_before:
            again = min(position, turn.absorbed_before) - start
            turn.output.recomputed_tokens += again
            self._counters.recomputed_tokens += again
        turn.absorbed_before = max(turn.absorbed_before, position)

    def _take_token(self, turn: OpenTurn, token: int) -> bool:
        """Append a drawn token; True when it ended the turn."""
        new, output = turn.new, turn.output
        new.append(token)
        is_stop = token in turn.stop_ids
        output.push(token, hidden=is_stop)
        if output.decode_early:
            self.system.at_the_edge(partial(self._look_for_stop, turn))
        generated = len(new) - turn.input_len
        if turn.interrupt_reason is None and (is_stop or generated >= turn.max_tokens):
            if is_stop:
                self._finish(turn, "stop", token, generated)
            else:
                self._finish(turn, "length", None, generated)
            return True
        if turn.history_len + len(new) > turn.covered:
            self._grows[turn.id] = turn
        return False

    def _look_for_stop(self, turn: OpenTurn) -> None:
        """At the edge: the tokenizer is not ours."""
        address = Address[SessionMessage](turn.session)
        try:
            if turn.output.decode() is not None:
                self.system.post(address, StopFound(turn.id), self.name)
        except Exception as error:
            self.system.post(address, StopFound(turn.id, error), self.name)

    def _reach_target(self, turn: OpenTurn) -> None:
        if not turn.absorb_first:
            self._finish(turn, "length", None, 0)
            return
        message = PhaseAbsorbed(turn.id, self.claims.pop(turn.id))
        self.roster.commit(turn)
        left = self.system.post(Address[SessionMessage](turn.session), message, self.name)
        if left is not None:
            self._port.rollback(message.claim)
            self._counters.rollbacks += 1
            self._end(turn)

    # Room

    def _give_room(self) -> None:
        """Grow and admit in order of rank, until a turn has to wait for room."""
        if self.flight is not None or not (self._grows or self.roster.waiting):
            return
        wishes = sorted([*self._grows.values(), *self.roster.waiting], key=lambda turn: turn.rank)
        for turn in wishes:
            if turn.state is TurnState.ENDED:
                continue
            if turn.state is TurnState.RUNNING:
                has_room = turn.id not in self._grows or self._try(turn, self._grow)
            else:
                has_room = self._try(turn, self._admit)
            if not has_room:
                return

    def _try(self, turn: OpenTurn, attempt: Callable[[OpenTurn], bool]) -> bool:
        if attempt(turn):
            return True
        need = Need(turn.known_len)
        if not self.room.can_ever_fit(need):
            self._fail(turn, _no_room())
            return True
        moves = self.room.moves_for(turn, need, self.claims)
        if moves is None:
            return False
        for victim in moves.victims:
            self._preempt(victim)
        for base in moves.asks:
            self._ask(base)
        return attempt(turn)

    def _ask(self, base: BaseName) -> None:
        self.room.asked.add(base)
        left = self.system.post(Address[SessionMessage](base.holder), GiveUp(base), self.name)
        if left is not None:
            self.room.asked.discard(base)

    def _admit(self, turn: OpenTurn) -> bool:
        if not self.room.has_row():
            return False
        need = Need(turn.known_len)
        claim = self._port.reserve(need, turn.base, turn=turn.id)
        if isinstance(claim, Refused) and claim.reason == "base":
            turn.base = ZEROS
            turn.absorb_first = False
            claim = self._port.reserve(need, ZEROS, turn=turn.id)
        if isinstance(claim, Refused):
            return False
        turn.position = self._view.position(claim)
        turn.has_landed = False
        self._set_covered(turn)
        self.claims[turn.id] = claim
        self.roster.run(turn)
        self._policy.admitted(turn.rank)
        if not turn.was_admitted:
            turn.was_admitted = True
            self._door.leave(turn.id)
            turn.output.admitted_at = self.system.now()
            turn.output.cached_tokens = turn.position
            self._counters.cached_tokens += turn.position
        return True

    def _grow(self, turn: OpenTurn) -> bool:
        if isinstance(self._port.grow(self.claims[turn.id], Need(turn.known_len)), Refused):
            return False
        self._set_covered(turn)
        return True

    def _set_covered(self, turn: OpenTurn) -> None:
        page = self._limits.page_size
        has_pages = self._limits.num_pages > 0
        turn.covered = -(-turn.known_len // page) * page if has_pages else self._unlimited
        self._grows.pop(turn.id, None)

    _unlimited = 1 << 62

    def _preempt(self, turn: OpenTurn) -> None:
        """Take a turn's room; it waits again, with all that it has streamed."""
        self._port.rollback(self.claims.pop(turn.id))
        self._grows.pop(turn.id, None)
        turn.position = 0
        turn.output.preemptions += 1
        self._counters.preemptions += 1
        self._counters.rollbacks += 1
        self.roster.wait(turn)

    # Launch

    def _launch(self) -> None:
        turns, rows = build_step(self.roster.running, self._limits)
        if not turns:
            return
        step = self._new_step()
        absorbs = tuple(len(row.tokens) for row in rows)
        lease = self._port.launch([self.claims.pop(turn.id) for turn in turns], step=step)
        for turn in turns:
            turn.in_flight = True
        self.flight = Flight(lease, step, self.system.now(), tuple(turns), absorbs)
        self._counters.steps += 1
        self._counters.rows += len(rows)
        self._counters.absorbed_tokens += sum(absorbs)
        left = self.system.post(self._pool, LaunchStep(lease, step, tuple(rows)), self.name)
        if left is not None:
            flight, self.flight = self.flight, None
            self._take_back(flight, StepFailed("the step was never started"))
            for turn in turns:
                self._fail(turn, EngineFault(actor=GPU_POOL, why="it is not running"))

    def _request_tick(self) -> None:
        if not self._tick_posted:
            self._tick_posted = True
            self.system.post(Address[SchedulerMessage](self.name), Tick(), self.name)


def _no_room() -> EngineFault:
    why = "a hanging step keeps so much of the pool in quarantine that the turn can't fit"
    return EngineFault(actor=GPU_POOL, why=why)
