"""Gated DeltaNet: projections around the kernels of ``delta_rule``.

Layout of Yang, Kautz and Hatamizadeh (2024, https://arxiv.org/abs/2412.06464): a short causal
convolution and SiLU over queries, keys and values; queries and keys scaled to length one; a decay
and a correction rate for each value head and token; a norm over each head, gated after it; an
output projection.
"""

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers.delta_rule import delta_decode, delta_prefill
from adapters.layers.linear import linear
from adapters.layers.mamba2 import conv_decode, conv_prefill
from adapters.layers.mamba2_mixer import GatedNorm
from adapters.ragged.indices import ChunkLayout
from adapters.ragged.run import Pass
from adapters.ragged.spec import StateSpec

__all__ = ["DeltaNetSizes", "GatedDeltaNet"]

CONV, DELTA = "conv", "delta"
_LENGTH_EPS = 1e-6
"""Added to the squared length of queries and keys before they are divided by it."""


@attrs.frozen(kw_only=True)
class DeltaNetSizes:
    """Dimensions of a Gated DeltaNet mixer."""

    hidden: int
    key_heads: int
    """Of queries and of keys."""
    value_heads: int
    """A multiple of ``key_heads``; consecutive ones share a key head."""
    key_width: int
    """Channels of a key head."""
    value_width: int
    taps: int
    """Inputs that an output of the short convolution sees."""

    @property
    def keys(self) -> int:
        """Channels of all keys; the queries have as many."""
        return self.key_heads * self.key_width

    @property
    def values(self) -> int:
        """Channels of all values; the gate has as many."""
        return self.value_heads * self.value_width

    @property
    def conv(self) -> int:
        """Channels that the short convolution sees: queries, keys and values."""
        return 2 * self.keys + self.values

    @property
    def projected(self) -> int:
        """Rows of the input projection: queries, keys, values, gate, rates, decays."""
        return self.conv + self.values + 2 * self.value_heads

    def states(self, layers: int) -> tuple[StateSpec, ...]:
        """What a sequence keeps for so many such mixers."""
        delta = (self.value_heads, self.key_width, self.value_width)
        return (
            StateSpec(CONV, (self.taps - 1, self.conv), layers, "conv"),
            StateSpec(DELTA, delta, layers, "recurrent"),
        )

    def chunk_numbers(self, chunk_size: int) -> int:
        """Numbers of the largest temporary that the kernels make for one chunk."""
        read = 2 * chunk_size * max(self.key_width, self.value_width, chunk_size)
        return self.value_heads * max(self.key_width * self.value_width, read)


@attrs.frozen(eq=False, kw_only=True)
class GatedDeltaNet:
    """One Gated DeltaNet mixer; takes every row's conv and delta state on in place."""

    state_layer: int
    """Its place among the layers with recurrent state."""
    sizes: DeltaNetSizes
    in_proj: Tensor
    """Rows of queries, keys, values, gate, rates and decays, in this order."""
    conv_weight: Tensor
    """[taps, channels]"""
    conv_bias: Tensor
    dt_bias: Tensor
    a: Tensor
    """[value heads], negative"""
    norm: GatedNorm
    """Over each head, its gate after it."""
    out_proj: Tensor

    def __call__(self, x: Tensor, run: Pass) -> Tensor:
        """Shapes: x, result [tokens, hidden]."""
        sizes, plan = self.sizes, run.plan
        conv_arena = run.arenas.states[CONV][self.state_layer]
        delta_arena = run.arenas.states[DELTA][self.state_layer]
        split = [sizes.conv, sizes.values, sizes.value_heads, sizes.value_heads]
        mixed, gate, rate, step = torch.split_with_sizes(linear(x, self.in_proj), split, dim=-1)
        g, beta = self.a * functional.softplus(step + self.dt_bias), rate.sigmoid()
        rows = run.decode_rows
        parts: list[Tensor] = []
        if rows:
            conv = conv_decode(
                conv_arena, plan.decode, mixed[:rows], self.conv_weight, self.conv_bias
            )
            q, k, v = self._split(conv)
            parts.append(delta_decode(delta_arena, plan.decode, q, k, v, g[:rows], beta[:rows]))
        if plan.layout is not None:
            inputs = (plan.prefill, plan.layout, mixed[rows:])
            conv = conv_prefill(conv_arena, *inputs, self.conv_weight, self.conv_bias)
            parts.append(
                self._walk_chunks(delta_arena, run, plan.layout, conv, g[rows:], beta[rows:])
            )
        y = (parts[0] if len(parts) == 1 else torch.cat(parts)).view(-1, sizes.values)
        return linear(self.norm(y, gate), self.out_proj)

    def _split(self, conv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convolved channels as q, k [..., key heads, width] and v [..., value heads, width]."""
        sizes = self.sizes
        both, values = torch.split_with_sizes(conv, [2 * sizes.keys, sizes.values], dim=-1)
        both = both.view(*conv.shape[:-1], 2 * sizes.key_heads, sizes.key_width)
        # Each head to length one, as a norm that leaves it at the root of its width.
        both = functional.rms_norm(both, both.shape[-1:], eps=_LENGTH_EPS / sizes.key_width)
        q, k = both.chunk(2, dim=-2)
        v = values.view(*conv.shape[:-1], sizes.value_heads, sizes.value_width)
        return q * (1 / sizes.key_width), k * sizes.key_width**-0.5, v

    def _walk_chunks(
        self,
        arena: Tensor,
        run: Pass,
        layout: ChunkLayout,
        conv: Tensor,
        g: Tensor,
        beta: Tensor,
    ) -> Tensor:
        """Take the prefill rows on; result [tokens, value heads, width] in token order."""
        shape = (layout.chunks, layout.size, -1)
        q, k, v = self._split(conv.index_select(0, layout.output_of_cell).view(shape))
        g, beta = (
            (x.index_select(0, layout.token_of_cell) * layout.filled[:, None]).view(shape)
            for x in (g, beta)
        )
        y = delta_prefill(arena, run.plan.prefill, layout, q, k, v, g, beta)
        return y.flatten(0, 1).index_select(0, layout.cell_of_token)
