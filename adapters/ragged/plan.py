"""One pass laid out for the device: rows ordered, index tensors built, masks made.

Rows of one token come first (decode, and a prefill piece that happens to be one token long: the
recurrence gives the same state), shortest history first, so that rows of like length read pages
together. Rows of many tokens follow, longest first, as ``ChunkLayout`` wants them.
"""

from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import Tensor

from adapters.ragged.attention_plan import AttentionPlan
from adapters.ragged.indices import (
    Array,
    ChunkLayout,
    IndexBatch,
    SlotList,
    chunk_arrays,
    index_array,
)
from adapters.ragged.passes import Piece
from adapters.ragged.reads import PageContext, plan_attention
from kernel.step import PromptScoring, RowSampling
from ownership import NoSlot

__all__ = ["PassPlan", "Sampled", "Scored", "plan_pass"]


Sampled = tuple[int, RowSampling]
"""Index of a row in the step, and how it draws."""


@attrs.frozen
class Scored:
    """A row whose tokens' log-probabilities are asked for, as far as this pass goes."""

    row: int
    """Index of the row in the step."""
    start: int
    """Index in the pass of the token that comes before the first target."""
    scoring: PromptScoring


@attrs.frozen(eq=False)
class PassPlan:
    """Everything that the layers need to know about one pass."""

    tokens: Tensor
    """[tokens] ids: first one of each decode row, then those of the prefill rows."""
    decode: SlotList
    prefill: SlotList
    layout: ChunkLayout | None
    """``None`` where no row has more than one token."""
    attention: AttentionPlan
    sample_at: Tensor
    """[sampled] the token after which each sampling row draws"""
    sampled: list[Sampled]
    scored: list[Scored]


def plan_pass(context: PageContext, pieces: Sequence[Piece], device: torch.device) -> PassPlan:
    """Lay out one pass; one transfer to the device."""
    decode = sorted((p for p in pieces if len(p.tokens) == 1), key=lambda p: p.kept)
    prefill = sorted((p for p in pieces if len(p.tokens) > 1), key=lambda p: -len(p.tokens))
    rows = decode + prefill
    sampled = [(i, p.row, p.sampling) for i, p in enumerate(rows) if p.sampling is not None]
    lengths = index_array([len(piece.tokens) for piece in rows])
    ends: Array = np.cumsum(lengths)

    batch = IndexBatch()
    tokens = batch.add(np.concatenate([index_array(piece.tokens) for piece in rows]))
    begins = index_array([piece.position for piece in rows])
    kept = index_array([piece.kept for piece in rows])
    where = np.arange(int(ends[-1])) + np.repeat(begins - (ends - lengths), lengths)
    positions = seen = batch.add(where)
    if not np.array_equal(begins, kept):
        seen = batch.add(where - np.repeat(begins - kept, lengths))
    sample_at = batch.add(index_array([ends[i] - 1 for i, _, _ in sampled]))
    slots = [_slots_of(part) for part in (decode, prefill)]
    slots_at = [batch.add(index_array(part)) for part in slots]
    recurrent = bool(context.shape.states)
    chunking = _Chunking.of(context, batch, prefill) if recurrent and prefill else None
    attention = plan_attention(context, batch, positions, seen, decode, prefill)

    moved = batch.move(device)
    return PassPlan(
        tokens=moved[tokens],
        decode=SlotList(slots[0], moved[slots_at[0]]),
        prefill=SlotList(slots[1], moved[slots_at[1]]),
        layout=chunking.layout(moved) if chunking else None,
        attention=attention(moved),
        sample_at=moved[sample_at],
        sampled=[(row, how) for _, row, how in sampled],
        scored=[
            Scored(piece.row, int(end) - len(piece.tokens) + piece.scoring.start, piece.scoring)
            for piece, end in zip(rows, ends, strict=True)
            if piece.scoring is not None
        ],
    )


def _slots_of(pieces: Sequence[Piece]) -> list[int]:
    """The slots of some pieces, in order; none where the model keeps no recurrent state."""
    return [piece.slot for piece in pieces if not isinstance(piece.slot, NoSlot)]


@attrs.frozen(eq=False)
class _Chunking:
    size: int
    rows_by_turn: tuple[int, ...]
    places: tuple[int, ...]
    """Of the layout's tensors among the moved ones."""
    compute: torch.dtype

    @classmethod
    def of(cls, context: PageContext, batch: IndexBatch, prefill: Sequence[Piece]) -> "_Chunking":
        lengths = [len(piece.tokens) for piece in prefill]
        shape = context.shape
        # Short rows would pay for whole chunks of padding.
        size = min(shape.chunk_size, 1 << (lengths[0] - 1).bit_length())
        rows_by_turn, arrays = chunk_arrays(lengths, size, shape.taps)
        places = tuple(batch.add(array) for array in arrays)
        return cls(size, rows_by_turn, places, context.compute)

    def layout(self, moved: list[Tensor]) -> ChunkLayout:
        stream, tail, output, token, cell, filled = (moved[place] for place in self.places)
        return ChunkLayout(
            size=self.size,
            rows_by_turn=self.rows_by_turn,
            stream_from=stream,
            tail_at=tail,
            output_of_cell=output,
            token_of_cell=token,
            cell_of_token=cell,
            filled=filled.to(self.compute),
            later=torch.ones(self.size, self.size, dtype=torch.bool, device=cell.device).triu_(1),
        )
