"""Small helpers between Python's numbers and tensors."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

__all__ = ["column", "floats", "indices", "numbers", "ranked", "table", "whole_table"]


def numbers(values: Tensor) -> list[int]:
    """The elements of a one-dimensional tensor; waits for the device."""
    # torch's stub leaves the type of the elements open.
    return cast(list[int], values.tolist())  # pyright: ignore[reportUnknownMemberType]


def floats(values: Tensor) -> list[float]:
    """The elements of a one-dimensional tensor; waits for the device."""
    return cast(list[float], values.tolist())  # pyright: ignore[reportUnknownMemberType]  as above


def table(values: Tensor) -> list[list[float]]:
    """The rows of a two-dimensional tensor; waits for the device."""
    return cast(list[list[float]], values.tolist())  # pyright: ignore[reportUnknownMemberType]  as above


def whole_table(values: Tensor) -> list[list[int]]:
    """The rows of a two-dimensional tensor of integers; waits for the device."""
    return cast(list[list[int]], values.tolist())  # pyright: ignore[reportUnknownMemberType]  as above


def column(values: Sequence[float], like: Tensor) -> Tensor:
    """[rows, 1] in float64, where ``like`` is."""
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]


def indices(values: Sequence[int], like: Tensor) -> Tensor:
    """One dimension of int64, where ``like`` is."""
    return torch.tensor(values, dtype=torch.int64, device=like.device)


def ranked(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest of each row, highest first, the lowest id first among equals."""
    if count >= logits.shape[1]:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        return values, ids
    values, ids = logits.topk(count + 1)
    edge, next_ = values[:, count - 1 : count], values[:, count:]
    ids = ids[:, :count]
    # topk leaves open which of equals it takes. They are common: bfloat16 has few numbers, and
    # what is banned is all alike; to sort such rows whole would take most of a step.
    tied = (edge == next_).nonzero()[:, 0]
    if tied.shape[0]:
        ids[tied] = _highest(logits[tied], edge[tied], count)
    ids = ids.sort(dim=-1).values
    values, order = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


def _highest(logits: Tensor, edge: Tensor, count: int) -> Tensor:
    """Ids of the ``count`` highest of each row, of which ``edge`` [rows, 1] is the lowest."""
    above, equal = ~(logits <= edge), logits == edge  # what is no number is above, as topk has it
    wanted = count - above.sum(-1, keepdim=True)
    kept = above | (equal & (equal.cumsum(-1, dtype=torch.int32) <= wanted))
    return kept.nonzero()[:, 1].view(-1, count)
