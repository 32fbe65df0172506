"""The gated short convolution of LFM2 (Liquid AI 2025): recurrent state without a scan.

One projection gives ``B | C | x``; what ``B`` lets through of ``x`` is convolved causally over a
few taps, and ``C`` decides what leaves. The state is the last ``taps - 1`` inputs.
"""

import attrs
import torch
from torch import Tensor

from adapters.layers.linear import linear
from adapters.layers.mamba2 import conv_decode, conv_prefill
from adapters.ragged.run import Pass
from adapters.ragged.spec import StateSpec

__all__ = ["ShortConv", "short_conv_state"]

_CONV = "conv"


def short_conv_state(layers: int, taps: int, channels: int) -> StateSpec:
    """What a sequence keeps for so many short convolutions."""
    return StateSpec(_CONV, (taps - 1, channels), layers, "conv")


@attrs.frozen(eq=False, kw_only=True)
class ShortConv:
    """One gated short convolution; takes every row's last inputs on in place."""

    state_layer: int
    """Its place among the layers with recurrent state."""
    in_proj: Tensor
    """[3 * hidden, hidden]: B, then C, then x"""
    in_bias: Tensor | None = None
    conv_weight: Tensor
    """[taps, hidden]"""
    conv_bias: Tensor
    out_proj: Tensor
    out_bias: Tensor | None = None

    def __call__(self, x: Tensor, run: Pass) -> Tensor:
        """Shapes: x, result [tokens, hidden]."""
        let_in, let_out, values = linear(x, self.in_proj, self.in_bias).chunk(3, dim=-1)
        mixed = self._convolve(let_in * values, run)
        return linear(mixed.mul_(let_out), self.out_proj, self.out_bias)

    def _convolve(self, inputs: Tensor, run: Pass) -> Tensor:
        """Shapes: inputs, result [tokens, hidden]."""
        plan, rows = run.plan, run.decode_rows
        arena = run.arenas.states[_CONV][self.state_layer]
        weights = (self.conv_weight, self.conv_bias)
        parts: list[Tensor] = []
        if rows:
            parts.append(conv_decode(arena, plan.decode, inputs[:rows], *weights, activate=False))
        if plan.layout is not None:
            new = (plan.prefill, plan.layout, inputs[rows:])
            stream = conv_prefill(arena, *new, *weights, activate=False)
            output_of_token = plan.layout.output_of_cell.index_select(0, plan.layout.cell_of_token)
            parts.append(stream.index_select(0, output_of_token))
        return parts[0] if len(parts) == 1 else torch.cat(parts)
