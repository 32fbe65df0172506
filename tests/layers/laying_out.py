"""What every test of a recurrence needs: numbers, slots, and rows laid out in chunks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from adapters.ragged.indices import ChunkLayout, IndexBatch, SlotList, chunk_arrays

__all__ = ["layout_of", "numbers", "slot_list"]


def numbers(*shape: int, seed: int) -> Tensor:
    """Normal, float64; a function of the arguments alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slot_list(*slots: int) -> SlotList:
    return SlotList(list(slots), torch.tensor(slots))


def layout_of(lengths: Sequence[int], size: int, taps: int = 1) -> ChunkLayout:
    """Rows of these lengths, longest first, in chunks of ``size``."""
    by_turn, arrays = chunk_arrays(lengths, size, taps)
    batch = IndexBatch()
    for array in arrays:
        batch.add(array)
    stream, tail, output, token, cell, filled = batch.move(torch.device("cpu"))
    later = torch.ones(size, size, dtype=torch.bool).triu_(1)
    return ChunkLayout(size, by_turn, stream, tail, output, token, cell, filled, later)
