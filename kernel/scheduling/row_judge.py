"""What becomes of a turn whose row has landed: it goes on, has its end, or is unloaded.

Each row is judged alone, under a guard of its own; the lease as a whole has landed before.
"""

from functools import partial
from typing import final

from kernel.actors.actor import Address, System
from kernel.errors import SamplingError
from kernel.flight import Counters
from kernel.foreign_code import failure_of
from kernel.ids import SCHEDULER
from kernel.messages import SessionMessage, StopFound, TurnEnded
from kernel.scheduling.landing import count_absorbed, draw_error, take_scores
from kernel.scheduling.parking import Parking
from kernel.scheduling.workload import Workload
from kernel.step import RowFault, RowOutcome, RowScores
from kernel.turn import OpenTurn, TurnState

__all__ = ["RowJudge"]


@final
class RowJudge:
    """Judges rows inside the scheduler's handler.

    Args:
        work: the turns and their claims.
        parking: keeps what a turn was parked with until its first row has landed.
        counters: told what was absorbed again.
    """

    __slots__ = ("_counters", "_parking", "_system", "_work")

    def __init__(
        self, system: System, work: Workload, parking: Parking, counters: Counters
    ) -> None:
        self._system = system
        self._work = work
        self._parking = parking
        self._counters = counters

    def judge(self, turn: OpenTurn, absorbed: int, outcome: RowOutcome) -> None:
        """Take in what a row has absorbed and drawn, and do what follows from that."""
        start = turn.position
        is_undefined = isinstance(outcome, RowFault) and outcome.is_undefined
        if not is_undefined:
            turn.has_computed = True
            count_absorbed(turn, absorbed, self._counters)
        token: int | None = None
        is_last = False
        if outcome is None or isinstance(outcome, int):
            token = outcome
        elif isinstance(outcome, RowScores):
            token, is_last = take_scores(turn, start, outcome), outcome.is_last
        turn.is_loading = turn.is_sliding = False
        turn.has_landed = True
        self._parking.give_back_parked(turn)
        if turn.cancelled:
            self._work.drop(turn)
            return
        if is_undefined:
            self._lose_image(turn)
            return
        if token is not None and self._take_token(turn, token, is_last):
            return
        if turn.interrupt_reason is not None:
            self.end_interrupted(turn)
        elif token is None:
            if isinstance(outcome, RowFault):
                self._work.fail(turn, draw_error(turn, outcome))
            elif turn.position == turn.target:
                self._reach_target(turn)
            elif turn.position >= turn.covered:
                self._work.grows[turn.id] = turn

    def fail(self, turn: OpenTurn, error: BaseException) -> None:
        """A row can't be judged, or its step has failed."""
        if turn.cancelled:
            self._work.drop(turn)
        elif turn.state is not TurnState.ENDED:
            self._work.fail(turn, error)

    def end_interrupted(self, turn: OpenTurn) -> None:
        """An interrupted turn that no step runs comes to its end."""
        keep = turn.interrupt_keep
        kept = turn.generated if keep is None else min(keep, turn.generated)
        reason = turn.interrupt_reason or "interrupt"
        has_state = turn.state is TurnState.RUNNING and turn.has_landed
        if has_state or turn.state is TurnState.PARKING:
            self._work.finish(turn, reason, None, kept)
        elif not self._work.finish_parked(turn, reason, kept):
            self._work.drop(turn)
            self._work.tell(turn, TurnEnded(turn.id, kept))

    def _lose_image(self, turn: OpenTurn) -> None:
        """The device can't take the state that was read from outside; the log says the same."""
        turn.image = None
        # What it finds instead is what it is told to have found.
        self._counters.cached_tokens -= turn.output.cached_tokens
        turn.output.cached_tokens = 0
        turn.was_admitted = False
        self._work.unload(turn)
        if turn.interrupt_reason is not None:
            self.end_interrupted(turn)

    def _take_token(self, turn: OpenTurn, token: int, is_last: bool) -> bool:
        """Append a drawn token; True when it ended the turn."""
        new, output = turn.new, turn.output
        new.append(token)
        is_stop = token in turn.stop_ids
        output.push(token, hidden=is_stop)
        if output.decode_early:
            self._system.at_the_edge(partial(self._look_for_stop, turn))
        generated = len(new) - turn.input_len
        if turn.interrupt_reason is None and (is_stop or is_last or generated >= turn.max_tokens):
            if is_stop or is_last:
                self._work.finish(turn, "stop", token if is_stop else None, generated)
            else:
                self._work.finish(turn, "length", None, generated)
            return True
        if turn.history_len + len(new) > turn.covered:
            self._work.grows[turn.id] = turn
        return False

    def _look_for_stop(self, turn: OpenTurn) -> None:
        """At the edge: the tokenizer is not ours."""
        address = Address[SessionMessage](turn.session)
        error = failure_of(turn.output.decode, "the tokenizer")
        if error is not None or turn.output.stop_hit is not None:
            self._system.post(address, StopFound(turn.id, error), SCHEDULER)

    def _reach_target(self, turn: OpenTurn) -> None:
        if turn.draws:
            # Else it would wait for ever: there is nothing left that a row of it could absorb.
            error = SamplingError(request_id=turn.id, why="the device has reported no token")
            self._work.fail(turn, error)
        elif turn.absorb_first:
            self._work.give_phase(turn)
        else:
            self._work.finish(turn, "length", None, 0)
