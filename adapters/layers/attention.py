"""Grouped-query attention over pages.

New keys and values are written to their pages first; queries then read through page tables.
"""

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers.linear import linear
from adapters.layers.norm import RmsNorm
from adapters.ragged.arenas import PageArena
from adapters.ragged.attention_plan import AttentionPlan, ChunkReads, DecodeReads
from adapters.ragged.run import Pass

__all__ = ["Attention", "attend", "write"]


@attrs.frozen(eq=False, kw_only=True)
class Attention:
    """One attention mixer: grouped queries, and what families add to them."""

    kv_layer: int
    """Its place among the attention layers."""
    heads: int
    kv_heads: int
    width: int
    """Channels of a head."""
    qkv_proj: Tensor
    """Queries, then keys, then values, stacked. A gated layer's queries come as twice as many
    rows: each head's query, then its gate."""
    qkv_bias: Tensor | None = None
    o_proj: Tensor
    o_bias: Tensor | None = None
    query_norm: RmsNorm | None = None
    """Over the channels of each head, before the rotation."""
    key_norm: RmsNorm | None = None
    scale: float | None = None
    """Of the scores; ``None``: one over the root of the width."""
    key_scale: float = 1.0
    """Multiplies the keys, before norm and rotation (Falcon-H1)."""
    rotates: bool = True
    gated: bool = False
    """Multiply the heads' output by the sigmoid of their gate (Qwen3-Next)."""

    def __call__(self, x: Tensor, run: Pass) -> Tensor:
        """Write the tokens' keys and values, then read. x, result: [tokens, hidden]."""
        return self.mix(linear(x, self.qkv_proj, self.qkv_bias), run)

    def mix(self, projected: Tensor, run: Pass) -> Tensor:
        """The same from queries, keys and values: [tokens, rows of qkv_proj]."""
        tokens, plan = projected.shape[0], run.plan.attention
        queries, gates = self._queries(projected)
        rest = projected[:, -2 * self.kv_heads * self.width :]
        keys, values = rest.view(tokens, 2, self.kv_heads, self.width).unbind(1)
        if self.key_scale != 1.0:
            keys = keys * self.key_scale
        if self.query_norm is not None:
            queries = self.query_norm(queries)
        if self.key_norm is not None:
            keys = self.key_norm(keys)
        if self.rotates:
            queries, keys = plan.rotation.apply(queries), plan.rotation.apply(keys)
        write(run.arenas.pages, self.kv_layer, plan.write_at, keys, values)
        mixed = attend(run.arenas.pages, self.kv_layer, queries, plan, self.scale)
        if gates is not None:
            mixed = mixed * torch.sigmoid(gates)
        return linear(mixed.flatten(1), self.o_proj, self.o_bias)

    def _queries(self, projected: Tensor) -> tuple[Tensor, Tensor | None]:
        each = 2 * self.width if self.gated else self.width
        heads = projected[:, : self.heads * each].view(-1, self.heads, each)
        if not self.gated:
            return heads, None
        queries, gates = heads.chunk(2, dim=-1)
        return queries, gates


def write(arena: PageArena, layer: int, at: Tensor, keys: Tensor, values: Tensor) -> None:
    """Store new keys and values, [tokens, kv_heads, head_dim], at ``at``: [tokens]."""
    for cache, new in ((arena.keys[layer], keys), (arena.values[layer], values)):
        cache.flatten(0, 1).index_copy_(0, at, new.to(cache.dtype))


def attend(
    arena: PageArena,
    layer: int,
    queries: Tensor,
    plan: AttentionPlan,
    scale: float | None = None,
) -> Tensor:
    """Read the pages with every query. queries: [tokens, heads, head_dim], result alike."""
    keys, values = arena.keys[layer], arena.values[layer]
    result = torch.empty_like(queries)
    for group in plan.decode:
        rows = slice(group.start, group.start + group.pages.shape[0])
        result[rows] = _attend_decode(keys, values, queries[rows], group, scale)
    for chunk in plan.chunks:
        rows = slice(chunk.start, chunk.start + chunk.mask.shape[0])
        result[rows] = _attend_chunk(keys, values, queries[rows], chunk, scale)
    return result


def _attend_decode(
    keys: Tensor, values: Tensor, queries: Tensor, reads: DecodeReads, scale: float | None
) -> Tensor:
    rows, heads, width = queries.shape
    kv_heads = keys.shape[2]
    # The heads that share a key stand where SDPA expects the queries of a sequence.
    grouped = queries.reshape(rows, kv_heads, heads // kv_heads, width)

    def gather(cache: Tensor) -> Tensor:
        found = cache.index_select(0, reads.pages.view(-1)).to(queries.dtype)
        return found.view(rows, -1, kv_heads, width).transpose(1, 2)

    mixed = functional.scaled_dot_product_attention(
        grouped, gather(keys), gather(values), attn_mask=reads.mask, scale=scale
    )
    return mixed.reshape(rows, heads, width)


def _attend_chunk(
    keys: Tensor, values: Tensor, queries: Tensor, reads: ChunkReads, scale: float | None
) -> Tensor:
    tokens, heads, width = queries.shape
    kv_heads = keys.shape[2]
    each = heads // kv_heads
    grouped = queries.reshape(tokens, kv_heads, each, width).permute(1, 2, 0, 3)

    def gather(cache: Tensor) -> Tensor:
        found = cache.index_select(0, reads.pages).to(queries.dtype).flatten(0, 1)
        return found.transpose(0, 1)[:, None].expand(kv_heads, each, -1, width)

    mixed = functional.scaled_dot_product_attention(
        grouped, gather(keys), gather(values), attn_mask=reads.mask, scale=scale
    )
    return mixed.permute(2, 0, 1, 3).reshape(tokens, heads, width)
