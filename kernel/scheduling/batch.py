"""One step out of the running turns: every decode row, then prefill chunks in order of rank."""

from collections.abc import Sequence

from kernel.step import DeviceLimits, PlannedRow
from kernel.turn import OpenTurn

__all__ = ["build_step"]


def build_step(
    running: Sequence[OpenTurn], limits: DeviceLimits
) -> tuple[list[OpenTurn], list[PlannedRow]]:
    """Choose whose rows are in the next step, and what each absorbs.

    Rows that need one token (decoding, or the last of a prompt) come first, since there are at
    most ``max_rows`` of them and the budget is never smaller; what is left of the budget goes to
    prefill chunks, the most senior turn first. So the most senior turn advances in every step.

    Args:
        running: turns that hold a claim, sorted by rank.
        limits: the largest step.

    Returns:
        The turns and their rows, in the same order; empty when nothing can run.
    """
    turns: list[OpenTurn] = []
    rows: list[PlannedRow] = []
    chunked: list[OpenTurn] = []
    budget = limits.max_step_tokens
    for turn in running:
        new = turn.new
        known = turn.history_len + len(new)
        if known > turn.covered and (turn.window is None or turn.position >= turn.covered):
            continue
        if turn.position + 1 == known and turn.draws:
            turns.append(turn)
            tokens = new[-1:] or turn.tokens(known - 1, known)
            image = turn.image if turn.is_loading else None
            rows.append(PlannedRow(tokens, turn.sampling(), None, image))
            budget -= 1
        else:
            chunked.append(turn)
    for turn in chunked:
        end = min(turn.target, turn.covered)
        size = min(turn.cache.row_end(turn.position, end) - turn.position, budget)
        if size > 0:
            turns.append(turn)
            rows.append(_row(turn, size))
            budget -= size
    return turns, rows


def _row(turn: OpenTurn, size: int) -> PlannedRow:
    end = turn.position + size
    sampling = turn.sampling() if turn.draws and end == turn.target else None
    scoring = None if turn.prompt_logprobs is None else turn.scoring(turn.position, end)
    image = turn.image if turn.is_loading else None
    return PlannedRow(turn.tokens(turn.position, end), sampling, scoring, image)
