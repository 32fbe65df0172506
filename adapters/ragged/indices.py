"""Index tensors of one pass: what they mean, how they are built and moved."""

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["Array", "ChunkLayout", "IndexBatch", "SlotList", "chunk_arrays", "index_array"]

Array = npt.NDArray[np.int64]


@attrs.frozen(eq=False)
class SlotList:
    """The same slots twice: for code that walks rows on the host, and for the device."""

    host: list[int]
    index: Tensor
    """[rows] int64"""


@attrs.frozen(eq=False)
class ChunkLayout:
    """Where the tokens of the prefill rows lie: as tokens, in the stream, and in chunks.

    Rows come longest first. The *stream* holds for each row its ``taps - 1`` last inputs, then
    its new ones; so output ``o`` of the convolution reads stream positions ``o`` to
    ``o + taps - 1``, and the few outputs that span two rows are never selected. *Chunks* come turn
    by turn: the first chunk of every row, then the second of every row that has one, and so on.
    A padded cell repeats its own row's first token, so that nothing passes between rows.
    """

    size: int
    """Q: tokens in a chunk."""
    rows_by_turn: tuple[int, ...]
    """How many rows have a first, a second, ... chunk."""
    stream_from: Tensor
    """[stream] where in (histories, tokens) each stream position comes from"""
    tail_at: Tensor
    """[rows * (taps - 1)] stream positions of the last inputs"""
    output_of_cell: Tensor
    """[chunks * Q] the convolution's output that each cell holds"""
    token_of_cell: Tensor
    """[chunks * Q] the token that each cell holds"""
    cell_of_token: Tensor
    """[tokens] the cell that holds each token"""
    filled: Tensor
    """[chunks * Q] 1 where a cell holds a token, 0 where it is padding; compute type"""
    later: Tensor
    """[Q, Q] true where the second token comes after the first"""

    @property
    def chunks(self) -> int:
        return sum(self.rows_by_turn)


def index_array(values: Sequence[int]) -> Array:
    return np.array(values, dtype=np.int64)


def chunk_arrays(
    lengths: Sequence[int], size: int, taps: int
) -> tuple[tuple[int, ...], list[Array]]:
    """Rows by turn, and the arrays of a ``ChunkLayout`` in order of its fields.

    ``lengths``: tokens of each row, longest first.
    """
    length, kept = index_array(lengths), taps - 1
    rows, total = len(lengths), int(length.sum())
    start = np.cumsum(length) - length
    row = np.repeat(np.arange(rows), length)
    token = np.arange(total)
    output = token + row * kept

    turn, place = np.divmod(token - start[row], size)
    turns = -(-length // size)
    by_turn = [int(np.count_nonzero(turns > number)) for number in range(turns[0])]
    first_chunk = np.cumsum(by_turn) - index_array(by_turn)
    cell = (first_chunk[turn] + row) * size + place
    row_of_cell = np.concatenate([np.arange(n).repeat(size) for n in by_turn])

    token_of_cell = start[row_of_cell]
    output_of_cell = token_of_cell + row_of_cell * kept
    filled = np.zeros_like(token_of_cell)
    token_of_cell[cell], output_of_cell[cell], filled[cell] = token, output, 1

    history = np.arange(rows * kept).reshape(rows, kept)
    stream_start = (start + np.arange(rows) * kept)[:, None]
    stream_from = np.empty(total + rows * kept, dtype=np.int64)
    stream_from[stream_start + np.arange(kept)] = history
    stream_from[output + kept] = token + rows * kept
    tail_at = stream_start + length[:, None] + np.arange(kept)
    return tuple(by_turn), [
        stream_from,
        tail_at.ravel(),
        output_of_cell,
        token_of_cell,
        cell,
        filled,
    ]


class IndexBatch:
    """Arrays gathered on the host, then moved to the device in one transfer."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []

    def add(self, array: Array) -> int:
        """Take one array along; the result is its place among the moved tensors."""
        self._arrays.append(array)
        return len(self._arrays) - 1

    def move(self, device: torch.device) -> list[Tensor]:
        """All arrays as tensors, in order, each in its own shape."""
        flat = np.concatenate([array.ravel() for array in self._arrays])
        sizes = [array.size for array in self._arrays]
        parts = torch.split_with_sizes(torch.as_tensor(flat).to(device), sizes)
        return [part.view(array.shape) for part, array in zip(parts, self._arrays, strict=True)]
