"""A transformer block that several layers share, each with low-rank additions of its own (Zamba2).

Glorioso et al. 2024 (https://arxiv.org/abs/2411.15242): attention and a gated block, without
residual connections, over the hidden state beside the embedding.
"""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from adapters.layers.attention import Attention
from adapters.layers.linear import linear
from adapters.layers.mlp import GatedMlp
from adapters.layers.norm import RmsNorm
from adapters.ragged.run import Pass

__all__ = ["Adapter", "SharedBlock", "SharedBlockUse"]


@attrs.frozen(eq=False)
class Adapter:
    """A product with a matrix of low rank, kept as its two factors."""

    down: Tensor
    """[rank, channels]"""
    up: Tensor
    """[rows, rank]"""

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x [tokens, channels], result [tokens, rows]."""
        return linear(linear(x, self.down), self.up)


@attrs.frozen(eq=False)
class SharedBlock:
    """The weights that layers share."""

    norm: RmsNorm
    attention: Attention
    """Over twice the model's channels; its place among attention layers is of no account."""
    mlp_norm: RmsNorm
    mlp: GatedMlp


@attrs.frozen(eq=False, kw_only=True)
class SharedBlockUse:
    """One layer's use of a shared block: its own keys and values, and its own additions."""

    block: SharedBlock
    kv_layer: int
    attention_adapters: Sequence[Adapter] = ()
    """Of queries, keys and values, or none."""
    mlp_adapter: Adapter

    def __call__(self, x: Tensor, embedded: Tensor, run: Pass) -> Tensor:
        """Shapes: x, embedded, result [tokens, hidden]."""
        shared = self.block
        x = shared.norm(torch.cat((x, embedded), dim=-1))
        attention = attrs.evolve(shared.attention, kv_layer=self.kv_layer)
        projected = linear(x, attention.qkv_proj)
        if self.attention_adapters:
            projected = projected + torch.cat([each(x) for each in self.attention_adapters], dim=-1)
        x = shared.mlp_norm(attention.mix(projected, run))
        widened = linear(x, shared.mlp.gate_up_proj, shared.mlp.gate_up_bias)
        return shared.mlp.narrow(widened + self.mlp_adapter(x))
