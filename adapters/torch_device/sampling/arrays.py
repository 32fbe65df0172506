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
    # topk leaves the order of equals open; they are rare enough to sort such a row whole.
    tied = (values[:, 1:] == values[:, :-1]).any(-1).nonzero()[:, 0]
    if tied.shape[0]:
        sorted_values, sorted_ids = logits[tied].sort(dim=-1, descending=True, stable=True)
        values[tied], ids[tied] = sorted_values[:, : count + 1], sorted_ids[:, : count + 1]
    return values[:, :count], ids[:, :count]
