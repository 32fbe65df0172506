"""How the fake device draws a token: from one number that stands for the whole distribution."""

import attrs

from adapters.fake_device.plan_checks import PlanFault
from adapters.fake_device.sampling import draw_ruled, score_prompt
from kernel.step import RowOutcome, RowSampling, RowScores, StepRow

__all__ = ["draw", "draw_scored"]


def draw_scored(logits: int, row: StepRow, vocab_size: int) -> RowOutcome:
    """What a row comes to whose prompt's log-probabilities are asked for."""
    outcome = None if row.sampling is None else draw(logits, row.sampling, vocab_size)
    if row.scoring is None:
        return outcome
    scores = score_prompt(row, row.scoring, vocab_size)
    if outcome is None:
        return scores
    if isinstance(outcome, RowScores):
        return attrs.evolve(outcome, prompt=scores.prompt)
    return attrs.evolve(scores, token=outcome) if isinstance(outcome, int) else outcome


def draw(logits: int, sampling: RowSampling, vocab_size: int) -> RowOutcome:
    """Draw a token; ``logits`` stands for the whole distribution.

    Candidates in order of likelihood are a hash of (logits, rank). Greedy takes the first that is
    not banned; else the rank is a hash of (key, index) among the top k.
    """
    if sampling.rules is not None:
        return draw_ruled(logits, sampling, sampling.rules, vocab_size)
    rank = 0
    if sampling.temperature:
        kept = min(sampling.top_k or vocab_size, vocab_size)
        kept = max(1, int(kept * sampling.top_p))
        rank = hash((sampling.key, sampling.index)) % kept
    token = hash((logits, rank)) % vocab_size
    if sampling.banned:
        if len(set(sampling.banned)) >= vocab_size:
            raise PlanFault("every token is banned")
        while token in sampling.banned:
            rank += vocab_size
            token = hash((logits, rank)) % vocab_size
    return token
