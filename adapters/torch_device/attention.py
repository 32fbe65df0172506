"""Grouped-query attention over pages.

New keys and values are written to their pages first; queries then read through page tables.
A position that a query may not see is masked; it must still hold a finite number (a page is
cleared before its first write, and the padding page holds zeros), since 0 times NaN is NaN.
"""

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.torch_device.arenas import PageArena

__all__ = [
    "AttentionPlan",
    "ChunkReads",
    "DecodeReads",
    "Rotation",
    "attend",
    "causal_mask",
    "rotation",
    "write",
]


@attrs.frozen(eq=False)
class Rotation:
    """Rotary factors of the tokens of a pass. Shapes: cos, sin [tokens, 1, head_dim / 2]."""

    cos: Tensor
    sin: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Rotate heads, halves paired. x: [tokens, heads, head_dim], result alike."""
        low, high = x.chunk(2, dim=-1)
        return torch.cat(
            (low * self.cos - high * self.sin, high * self.cos + low * self.sin), dim=-1
        )


def rotation(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> Rotation:
    """Factors for these positions; angles in float64, since they grow with the position."""
    half = head_dim // 2
    steps = torch.arange(half, dtype=torch.float64, device=positions.device) / half
    angles = (positions.to(torch.float64)[:, None] * theta**-steps)[:, None]
    return Rotation(cos=angles.cos().to(dtype), sin=angles.sin().to(dtype))


@attrs.frozen(eq=False)
class DecodeReads:
    """Rows of one query each, padded to the same number of pages."""

    start: int
    """Of the first row's token; the rows' tokens follow each other."""
    pages: Tensor
    """[rows, pages]"""
    mask: Tensor
    """[rows, 1, 1, positions], 0 or minus infinity, in the query's type"""


@attrs.frozen(eq=False)
class ChunkReads:
    """One row of many queries."""

    start: int
    pages: Tensor
    """[pages]"""
    mask: Tensor
    """[queries, positions]"""


@attrs.frozen(eq=False)
class AttentionPlan:
    """What the attention layers need to know about one pass."""

    rotation: Rotation
    write_at: Tensor
    """[tokens] where each token's key and value go: page * page_size + offset"""
    decode: list[DecodeReads]
    chunks: list[ChunkReads]


def causal_mask(positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """0 where a query at a position sees one of ``length`` positions, else minus infinity.

    Shapes: positions [...]; result [..., length].
    """
    hidden = torch.arange(length, device=positions.device) > positions[..., None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device)
    return mask.masked_fill_(hidden, float("-inf"))


def write(arena: PageArena, layer: int, at: Tensor, keys: Tensor, values: Tensor) -> None:
    """Store new keys and values, [tokens, kv_heads, head_dim], at ``at``: [tokens]."""
    for cache, new in ((arena.keys[layer], keys), (arena.values[layer], values)):
        cache.flatten(0, 1).index_copy_(0, at, new.to(cache.dtype))


def attend(arena: PageArena, layer: int, queries: Tensor, plan: AttentionPlan) -> Tensor:
    """Read the pages with every query. queries: [tokens, heads, head_dim], result alike."""
    keys, values = arena.keys[layer], arena.values[layer]
    result = torch.empty_like(queries)
    for group in plan.decode:
        rows = slice(group.start, group.start + group.pages.shape[0])
        result[rows] = _attend_decode(keys, values, queries[rows], group)
    for chunk in plan.chunks:
        rows = slice(chunk.start, chunk.start + chunk.mask.shape[0])
        result[rows] = _attend_chunk(keys, values, queries[rows], chunk)
    return result


def _attend_decode(keys: Tensor, values: Tensor, queries: Tensor, reads: DecodeReads) -> Tensor:
    rows, heads, width = queries.shape
    kv_heads = keys.shape[2]
    # The heads that share a key stand where SDPA expects the queries of a sequence.
    grouped = queries.view(rows, kv_heads, heads // kv_heads, width)

    def gather(cache: Tensor) -> Tensor:
        found = cache.index_select(0, reads.pages.view(-1)).to(queries.dtype)
        return found.view(rows, -1, kv_heads, width).transpose(1, 2)

    mixed = functional.scaled_dot_product_attention(
        grouped, gather(keys), gather(values), attn_mask=reads.mask
    )
    return mixed.reshape(rows, heads, width)


def _attend_chunk(keys: Tensor, values: Tensor, queries: Tensor, reads: ChunkReads) -> Tensor:
    tokens, heads, width = queries.shape
    kv_heads = keys.shape[2]
    each = heads // kv_heads
    grouped = queries.view(tokens, kv_heads, each, width).permute(1, 2, 0, 3)

    def gather(cache: Tensor) -> Tensor:
        found = cache.index_select(0, reads.pages).to(queries.dtype).flatten(0, 1)
        return found.transpose(0, 1)[:, None].expand(kv_heads, each, -1, width)

    mixed = functional.scaled_dot_product_attention(
        grouped, gather(keys), gather(values), attn_mask=reads.mask
    )
    return mixed.permute(2, 0, 1, 3).reshape(tokens, heads, width)
