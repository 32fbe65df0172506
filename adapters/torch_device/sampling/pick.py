"""Pick one token per row, each by its own kind of draw; rows never influence each other.

Greedy rows take the likeliest token. Rows without a limit are drawn in order of id, without
sorting. What limits candidates by rank is in :mod:`~adapters.torch_device.sampling.limited`, by
surprise in :mod:`~adapters.torch_device.sampling.typical`.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from adapters.torch_device.sampling.arrays import indices, numbers
from adapters.torch_device.sampling.limited import draw_limited
from adapters.torch_device.sampling.typical import draw_typical
from adapters.torch_device.sampling.weights import look_up, weigh
from kernel.step import RowSampling

__all__ = ["pick"]

_Kind = Callable[[Tensor, Sequence[RowSampling]], Tensor]
"""Draws one id per row from logits [rows, vocabulary]."""


def pick(logits: Tensor, rows: Sequence[RowSampling]) -> list[int]:
    """One token per row. logits: [rows, vocabulary], what is banned at minus infinity."""
    vocabulary = logits.shape[1]
    places: dict[_Kind, list[int]] = {}
    for at, row in enumerate(rows):
        places.setdefault(_kind(row, vocabulary), []).append(at)
    drawn = [0] * len(rows)
    for kind, found in places.items():
        chosen = logits if len(found) == len(rows) else logits[indices(found, logits)]
        tokens = kind(chosen, [rows[at] for at in found])
        for at, token in zip(found, numbers(tokens), strict=True):
            drawn[at] = token
    return drawn


def _kind(row: RowSampling, vocabulary: int) -> _Kind:
    if row.temperature == 0:
        return _draw_greedy
    rules = row.rules
    if rules is not None and rules.typical_p < 1:
        return draw_typical
    if row.top_p < 1 or 0 < row.top_k < vocabulary or (rules is not None and rules.min_p > 0):
        return draw_limited
    return _draw_whole


def _draw_greedy(logits: Tensor, _rows: Sequence[RowSampling]) -> Tensor:
    return logits.argmax(-1)  # the first of equals


def _draw_whole(logits: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    top = logits.amax(-1, keepdim=True).double()
    cumulative = weigh(logits, top, rows).cumsum(-1)
    found = look_up(cumulative, cumulative[:, -1:], rows)[:, 0]
    return found.clamp_(max=logits.shape[1] - 1)  # only logits that aren't numbers reach beyond
