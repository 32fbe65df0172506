"""Weights of candidates and the look-up of a draw among them, in float64."""

from collections.abc import Sequence

from torch import Tensor, searchsorted

from adapters.torch_device.sampling.arrays import column
from adapters.torch_device.sampling.uniform import uniform
from kernel.step import RowSampling

__all__ = ["floors", "limits", "look_up", "weigh"]


def weigh(logits: Tensor, top: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    """Unnormalised probabilities; ``top`` [rows, 1] is each row's highest logit, of weight 1."""
    temperature = column([row.temperature for row in rows], logits)
    return (logits.double() - top).div_(temperature).exp_()


def look_up(cumulative: Tensor, total: Tensor, rows: Sequence[RowSampling]) -> Tensor:
    """First place where the cumulative weight exceeds the row's share of ``total``: [rows, 1]."""
    target = column([uniform(row.key, row.index) for row in rows], cumulative) * total
    return searchsorted(cumulative, target, right=True)


def limits(rows: Sequence[RowSampling], vocabulary: int) -> list[int]:
    """How many candidates each row keeps by number."""
    return [row.top_k if 0 < row.top_k < vocabulary else vocabulary for row in rows]


def floors(rows: Sequence[RowSampling], like: Tensor) -> Tensor | None:
    """[rows, 1]: the least weight of a candidate (min-p); ``None`` where no row sets one."""
    found = [0.0 if row.rules is None else row.rules.min_p for row in rows]
    return column(found, like) if any(found) else None
