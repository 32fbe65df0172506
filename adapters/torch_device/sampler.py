"""Draw one token per row from logits, every row with its own parameters.

A draw is a function of (key, index, logits) alone: a counter-based hash gives a uniform number,
which is looked up in the row's cumulative distribution. Rows never influence each other, so
batching doesn't change a draw. Order: banned ids, temperature, top-k, top-p (as vLLM).

Rows that keep the whole vocabulary are drawn in order of id, without sorting; the others among
their candidates, likeliest first, the lowest id first among equals.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from kernel.step import RowSampling

__all__ = ["draw", "uniform"]

_MASK = (1 << 64) - 1
_FIRST_TRY = 64
"""Candidates looked at first for rows that limit the probability and not the number."""


def _mix(z: int) -> int:
    """The finaliser of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(key: int, index: int) -> float:
    """A number in [0, 1) for the turn's ``index``-th draw: splitmix64 seeded by the mixed key.

    50 bits, so that the product with a float64 total stays below that total.
    """
    z = _mix((_mix(key & _MASK) + (index + 1) * 0x9E3779B97F4A7C15) & _MASK)
    return (z >> 14) * 2.0**-50


def draw(logits: Tensor, rows: Sequence[RowSampling]) -> list[int]:
    """Draw one token per row. logits: [rows, vocabulary], changed where ids are banned."""
    _ban(logits, rows)
    vocabulary = logits.shape[1]
    greedy: list[int] = []
    whole: list[int] = []
    limited: list[int] = []
    for at, row in enumerate(rows):
        if row.temperature == 0:
            greedy.append(at)
        elif row.top_p >= 1 and not 0 < row.top_k < vocabulary:
            whole.append(at)
        else:
            limited.append(at)
    drawn = [0] * len(rows)
    kinds = ((greedy, _greedy), (whole, _whole), (limited, _limited))
    for places, kind in kinds:
        if places:
            every = len(places) == len(rows)
            chosen = logits if every else logits[torch.tensor(places, device=logits.device)]
            tokens = kind(chosen, [rows[at] for at in places])
            for at, token in zip(places, _numbers(tokens), strict=True):
                drawn[at] = token
    return drawn


def _numbers(values: Tensor) -> list[int]:
    # torch's stub leaves the type of the elements open.
    return cast(list[int], values.tolist())  # pyright: ignore[reportUnknownMemberType]


def _ban(logits: Tensor, rows: Sequence[RowSampling]) -> None:
    pairs = [(at, token) for at, row in enumerate(rows) if row.banned for token in row.banned]
    if pairs:
        at, token = torch.tensor(pairs, device=logits.device).unbind(1)
        logits[at, token] = float("-inf")


def _greedy(logits: Tensor, _rows: Sequence[RowSampling]) -> Tensor:
    return logits.argmax(-1)  # the first of equals


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]


def _weights(logits: Tensor, top: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    """Unnormalised probabilities in float64; ``top`` [rows, 1] is each row's highest logit."""
    temperature = _column([row.temperature for row in rows], logits)
    return (logits.double() - top).div_(temperature).exp_()


def _look_up(cumulative: Tensor, total: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    """First place where the cumulative weight exceeds the row's share of ``total``: [rows, 1]."""
    target = _column([uniform(row.key, row.index) for row in rows], cumulative) * total
    return torch.searchsorted(cumulative, target, right=True)


def _whole(logits: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    top = logits.amax(-1, keepdim=True).double()
    cumulative = _weights(logits, top, rows).cumsum(-1)
    found = _look_up(cumulative, cumulative[:, -1:], rows)[:, 0]
    return found.clamp_(max=logits.shape[1] - 1)  # only logits that aren't numbers reach beyond


def _limited(logits: Tensor, rows: Sequence[RowSampling], first: int = _FIRST_TRY) -> Tensor:
    """Draw among each row's candidates, of which only the likeliest are sorted.

    A row that bounds the probability and not the number may turn out to have more candidates than
    the ``first`` that were looked at; it is drawn again among more.
    """
    vocabulary = logits.shape[1]
    limits = [row.top_k if 0 < row.top_k < vocabulary else vocabulary for row in rows]
    bounded = max((limit for limit in limits if limit < vocabulary), default=0)
    tries = max(bounded, min(first, vocabulary)) if vocabulary in limits else bounded
    tokens, lacking = _among(logits, rows, limits, tries)
    again = [place for place, lacks in enumerate(_numbers(lacking)) if lacks]
    if again:
        at = torch.tensor(again, device=logits.device)
        tokens[at] = _limited(logits[at], [rows[place] for place in again], 16 * tries)
    return tokens


def _among(
    logits: Tensor, rows: Sequence[RowSampling], limits: Sequence[int], tries: int
) -> tuple[Tensor, Tensor]:
    """Draw among the ``tries`` likeliest; also whether a row's candidates reach beyond them."""
    ranked, ids = _ranked(logits, tries)
    weights = _weights(ranked, ranked[:, :1].double(), rows)
    limit = torch.tensor(limits, device=logits.device)[:, None]
    weights[torch.arange(tries, device=logits.device) >= limit] = 0.0
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:]
    if logits.shape[1] in limits:
        every = _weights(logits, ranked[:, :1].double(), rows).sum(-1, keepdim=True)
        total = torch.where(limit == logits.shape[1], every, total)
    wanted = total * _column([row.top_p for row in rows], logits)
    # A candidate is kept while those before it fall short of top-p; the first always is.
    before = functional.pad(cumulative[:, :-1], (1, 0))
    kept = (before < wanted).logical_and_(weights > 0)
    last = (kept.sum(-1, keepdim=True) - 1).clamp_(min=0)
    choice = _look_up(cumulative, cumulative.gather(1, last), rows)
    lacking = (limit > tries) & (cumulative[:, -1:] < wanted)
    return ids.gather(1, torch.minimum(choice, last))[:, 0], lacking[:, 0]


def _ranked(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest logits, highest first, the lowest id first among equals."""
    if count == logits.shape[1]:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        return values, ids
    values, ids = logits.topk(count + 1)
    # topk leaves the order of equals open; they are rare enough to sort such a row whole.
    tied = (values[:, 1:] == values[:, :-1]).any(-1).nonzero()[:, 0]
    if tied.shape[0]:
        sorted_values, sorted_ids = logits[tied].sort(dim=-1, descending=True, stable=True)
        values[tied], ids[tied] = sorted_values[:, : count + 1], sorted_ids[:, : count + 1]
    return values[:, :count], ids[:, :count]
