"""Where one pass writes keys and values, and which pages its queries read."""

from collections.abc import Callable, Sequence

import attrs
import numpy as np
import torch
from torch import Tensor

from adapters.ragged.attention_plan import (
    AttentionPlan,
    ChunkReads,
    DecodeReads,
    Rotation,
    causal_mask,
    rotation,
)
from adapters.ragged.indices import Array, IndexBatch, index_array
from adapters.ragged.passes import Piece
from adapters.ragged.spec import ModelShape

__all__ = ["PageContext", "plan_attention"]

_READ_NUMBERS = 1 << 20
"""Most numbers that a group of decode rows gathers of the keys, and as many of the values."""


@attrs.frozen(eq=False)
class PageContext:
    """What stays the same from pass to pass."""

    shape: ModelShape
    page_size: int
    padding_page: int
    compute: torch.dtype

    def pages_for(self, positions: int) -> int:
        return -(-positions // self.page_size)


AfterMove = Callable[[list[Tensor]], AttentionPlan]


def plan_attention(
    context: PageContext,
    batch: IndexBatch,
    positions: int,
    seen: int,
    decode: Sequence[Piece],
    chunks: Sequence[Piece],
) -> AfterMove:
    """Add the page indices to ``batch``; call the result with the moved tensors.

    A model without attention layers has no pages, and gets an empty plan.

    ``positions``: place in ``batch`` of the positions of the pass's tokens. ``seen``: the same,
    counted from the first position that a row keeps: its page table begins there, and a key keeps
    the rotation of its true position. ``decode``: rows of one token, the one that sees least
    first, before ``chunks``: rows of many tokens.
    """
    if context.shape.kv is None:
        return _no_reads
    tables = [index_array(p.pages[: context.pages_for(p.kept + len(p.tokens))]) for p in chunks]
    write_at = batch.add(_write_at(context, decode, chunks, tables))
    groups = _groups(context, decode)
    group_tables = [batch.add(_padded(context, decode[start:end])) for start, end in groups]
    chunk_tables = [batch.add(table) for table in tables]

    def after_move(moved: list[Tensor]) -> AttentionPlan:
        at = moved[seen]
        return AttentionPlan(
            rotation=rotation(moved[positions], context.shape.rope, context.compute),
            write_at=moved[write_at],
            decode=[
                _decode_reads(context, at[start:end], start, moved[table])
                for (start, end), table in zip(groups, group_tables, strict=True)
            ],
            chunks=_chunk_reads(context, at, len(decode), chunks, [moved[t] for t in chunk_tables]),
        )

    return after_move


def _no_reads(moved: list[Tensor]) -> AttentionPlan:
    nothing = moved[0][:0]
    return AttentionPlan(Rotation(nothing, nothing), nothing, decode=[], chunks=[])


def _write_at(
    context: PageContext, decode: Sequence[Piece], chunks: Sequence[Piece], tables: list[Array]
) -> Array:
    size = context.page_size
    parts = [index_array([p.pages[p.kept // size] * size + p.kept % size for p in decode])]
    for piece, table in zip(chunks, tables, strict=True):
        page, offset = np.divmod(np.arange(len(piece.tokens)) + piece.kept, size)
        parts.append(table[page] * size + offset)
    return np.concatenate(parts)


def _groups(context: PageContext, decode: Sequence[Piece]) -> list[tuple[int, int]]:
    """Cut decode rows, in their order, so that padding and temporaries stay small."""
    kv = context.shape.kv
    most = max(1, _READ_NUMBERS // (kv.kv_heads * kv.head_dim if kv else 1))
    groups: list[tuple[int, int]] = []
    start = 0
    for end, piece in enumerate(decode):
        first = decode[start].kept + 1
        too_uneven = piece.kept >= 2 * first + 16 * context.page_size
        if end > start and (too_uneven or (end + 1 - start) * (piece.kept + 1) > most):
            groups.append((start, end))
            start = end
    if decode:
        groups.append((start, len(decode)))
    return groups


def _padded(context: PageContext, rows: Sequence[Piece]) -> Array:
    """Page tables of equal length: [rows, pages]."""
    width = context.pages_for(rows[-1].kept + 1)
    table = np.full((len(rows), width), context.padding_page, dtype=np.int64)
    for line, piece in zip(table, rows, strict=True):
        used = context.pages_for(piece.kept + 1)
        line[:used] = piece.pages[:used]
    return table


def _decode_reads(context: PageContext, at: Tensor, start: int, pages: Tensor) -> DecodeReads:
    mask = causal_mask(at, pages.shape[1] * context.page_size, context.compute)
    return DecodeReads(start=start, pages=pages, mask=mask[:, None, None])


def _chunk_reads(
    context: PageContext,
    at: Tensor,
    start: int,
    pieces: Sequence[Piece],
    tables: list[Tensor],
) -> list[ChunkReads]:
    reads: list[ChunkReads] = []
    for piece, pages in zip(pieces, tables, strict=True):
        end = start + len(piece.tokens)
        mask = causal_mask(at[start:end], pages.shape[0] * context.page_size, context.compute)
        reads.append(ChunkReads(start=start, pages=pages, mask=mask))
        start = end
    return reads
