"""Rows that limit their candidates by rank: min-p, top-k, top-p, in this order (as vLLM).

Only the likeliest candidates are sorted: likeliest first, the lowest id first among equals.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from adapters.torch_device.sampling.arrays import column, indices, numbers, ranked
from adapters.torch_device.sampling.weights import floors, limits, look_up, weigh
from kernel.step import RowSampling

__all__ = ["draw_limited", "limited_weights"]

_FIRST_TRY = 64
"""Candidates looked at first for rows that limit the probability and not the number."""


def draw_limited(logits: Tensor, rows: Sequence[RowSampling], first: int = _FIRST_TRY) -> Tensor:
    """Draw among each row's candidates: one id per row.

    A row that bounds the probability and not the number may turn out to have more candidates than
    the ``first`` that were looked at; it is drawn again among more.
    """
    vocabulary = logits.shape[1]
    most = limits(rows, vocabulary)
    bounded = max((limit for limit in most if limit < vocabulary), default=0)
    tries = max(bounded, min(first, vocabulary)) if vocabulary in most else bounded
    weights, ids, lacking = limited_weights(logits, rows, tries)
    cumulative = weights.cumsum(-1)
    choice = look_up(cumulative, cumulative[:, -1:], rows)
    # Only logits that aren't numbers reach beyond.
    tokens = ids.gather(1, choice.clamp_(max=tries - 1))[:, 0]
    again = [place for place, lacks in enumerate(numbers(lacking)) if lacks]
    if again:
        at = indices(again, logits)
        tokens[at] = draw_limited(logits[at], [rows[place] for place in again], 16 * tries)
    return tokens


def limited_weights(
    logits: Tensor, rows: Sequence[RowSampling], tries: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights [rows, tries] of the candidates, 0 for the others; likeliest first, and their ids.

    Also whether a row's candidates reach beyond those that were looked at: [rows].
    """
    vocabulary = logits.shape[1]
    most = limits(rows, vocabulary)
    values, ids = ranked(logits, tries)
    top, floor = values[:, :1].double(), floors(rows, logits)
    weights = weigh(values, top, rows)
    limit = indices(most, logits)[:, None]
    reaches = limit > tries
    if floor is not None:
        reaches = reaches & (weights[:, -1:] >= floor)
        weights[weights < floor] = 0.0
    weights[torch.arange(tries, device=logits.device) >= limit] = 0.0
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:]
    if vocabulary in most:
        every = weigh(logits, top, rows)
        if floor is not None:
            every[every < floor] = 0.0
        total = torch.where(limit == vocabulary, every.sum(-1, keepdim=True), total)
    wanted = total * column([row.top_p for row in rows], logits)
    # A candidate is kept while those before it fall short of top-p; the first always is, though
    # the share wanted be so small that the processor takes it for 0.
    weights[:, 1:][cumulative[:, :-1] >= wanted] = 0.0
    return weights, ids, (reaches & (cumulative[:, -1:] < wanted))[:, 0]
