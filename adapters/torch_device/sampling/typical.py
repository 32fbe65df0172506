"""Locally typical sampling (Meister et al. 2022): keep what is about as surprising as expected.

It comes after all other limits, as in transformers, and looks at what they left. Which tokens are
typical is no matter of their rank, so these rows are drawn in order of id.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from adapters.torch_device.sampling.arrays import column, indices, numbers
from adapters.torch_device.sampling.limited import limited_weights
from adapters.torch_device.sampling.weights import floors, look_up, weigh
from kernel.step import RowSampling

__all__ = ["draw_typical", "typical_weights"]

_FIRST_TRY = 64
"""Candidates looked at first for the edge of what is typical."""


def draw_typical(logits: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    """Draw one id per row; every row has ``typical_p`` below 1."""
    cumulative = typical_weights(logits, rows).cumsum(-1)
    found = look_up(cumulative, cumulative[:, -1:], rows)[:, 0]
    return found.clamp_(max=logits.shape[1] - 1)  # only logits that aren't numbers reach beyond


def typical_weights(logits: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    """Weights [rows, vocabulary] of the candidates in order of id, 0 for the others."""
    weights = _limit(logits, rows)
    chances = weights / weights.sum(-1, keepdim=True)
    surprise = -chances.log()
    expected = torch.where(chances > 0, chances * surprise, 0.0).sum(-1, keepdim=True)
    distance = torch.where(chances > 0, (surprise - expected).abs_(), torch.inf)
    mass = column([1.0 if row.rules is None else row.rules.typical_p for row in rows], logits)
    weights[distance > _edge(distance, chances, mass)] = 0.0
    return weights


def _edge(distance: Tensor, chances: Tensor, mass: Tensor, first: int = _FIRST_TRY) -> Tensor:
    """The distance up to which tokens are kept, so that their probability reaches the mass."""
    tries = min(first, distance.shape[1])
    nearest, ids = distance.topk(tries, largest=False)
    short = (chances.gather(1, ids).cumsum(-1) < mass).sum(-1, keepdim=True)
    edge = nearest.gather(1, short.clamp(max=tries - 1))
    again = [at for at, count in enumerate(numbers(short[:, 0])) if count == tries]
    if again and tries < distance.shape[1]:
        at = indices(again, distance)
        edge[at] = _edge(distance[at], chances[at], mass[at], 16 * first)
    return edge


def _limit(logits: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    """Weights after temperature, min-p, top-k and top-p, in order of id."""
    vocabulary = logits.shape[1]
    weights = weigh(logits, logits.amax(-1, keepdim=True).double(), rows)
    floor = floors(rows, logits)
    if floor is not None:
        weights[weights < floor] = 0.0
    by_rank = [at for at, row in enumerate(rows) if row.top_p < 1 or 0 < row.top_k < vocabulary]
    if by_rank:
        at = indices(by_rank, logits)
        kept, ids, _ = limited_weights(logits[at], [rows[at] for at in by_rank], vocabulary)
        weights[at] = torch.zeros_like(kept).scatter_(1, ids, kept)
    return weights
