"""What a landed row means for its turn's counts and its output; no claim is touched here."""

from collections import Counter
from collections.abc import Sequence

from kernel.errors import SamplingError
from kernel.flight import Counters
from kernel.step import (
    RowFault,
    RowOutcome,
    RowScores,
    StepFault,
    StepReport,
    TransferDone,
    TransferReport,
)
from kernel.turn import OpenTurn

__all__ = ["count_absorbed", "draw_error", "fault_of", "num_drawn", "take_scores"]


def fault_of(report: StepReport | TransferReport, rows: int) -> str | None:
    """Why a step of so many rows has failed as a whole; ``None``: it has not."""
    if isinstance(report, TransferDone):
        return "the device reported a transfer for a step"
    if isinstance(report, StepFault):
        return report.why
    told = len(report.tokens)
    return None if told == rows else f"the device reported {told} outcomes for {rows} rows"


def num_drawn(outcomes: Sequence[RowOutcome]) -> int:
    """How many tokens the rows of a step have drawn."""
    kinds = Counter(map(type, outcomes))
    scored = [one for one in outcomes if isinstance(one, RowScores)] if kinds[RowScores] else ()
    return kinds[int] + sum(one.token is not None for one in scored)


def count_absorbed(turn: OpenTurn, absorbed: int, counters: Counters) -> None:
    """Advance a turn, and count what some state of its session had absorbed before."""
    start = turn.position
    turn.position = position = start + absorbed
    if start < turn.absorbed_before:
        again = min(position, turn.absorbed_before) - start
        turn.output.recomputed_tokens += again
        counters.recomputed_tokens += again
    turn.absorbed_before = max(turn.absorbed_before, position)


def take_scores(turn: OpenTurn, start: int, row: RowScores) -> int | None:
    """Write a row's log-probabilities to the output; returns the token drawn.

    Args:
        start: the row's first position.
    """
    turn.output.push_scores(row.drawn)
    if row.prompt:
        turn.output.score_prompt(turn.first_scored(start) - turn.history_len, row.prompt)
    return row.token


def draw_error(turn: OpenTurn, row: RowFault) -> SamplingError:
    """Why a turn could draw nothing, as its caller is told."""
    error = SamplingError(request_id=turn.id, why=row.why)
    error.__cause__ = row.error
    return error
