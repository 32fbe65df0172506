"""The Mamba-2 mixer: projections around the kernels of ``mamba2``.

Layout of Dao and Gu (2024, https://arxiv.org/abs/2405.21060): one input projection gives
``z | x B C | dt``; a short causal convolution and SiLU over ``x B C``; the scan; a gated RMSNorm;
an output projection. Families differ in biases, in the norm's groups and place, and in scales.
"""

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers.linear import linear
from adapters.layers.mamba2 import conv_decode, conv_prefill, ssm_decode, ssm_prefill
from adapters.layers.norm import rms_norm
from adapters.ragged.indices import ChunkLayout
from adapters.ragged.run import Pass
from adapters.ragged.spec import StateSpec

__all__ = ["GatedNorm", "Mamba2", "Mamba2Sizes"]

CONV, SSM = "conv", "ssm"


@attrs.frozen(kw_only=True)
class Mamba2Sizes:
    """Dimensions of a Mamba-2 mixer."""

    hidden: int
    heads: int
    head_dim: int
    """Channels of a head (P)."""
    state: int
    """Numbers that each channel keeps (N)."""
    groups: int
    """Groups of heads that share B and C."""
    taps: int
    """Inputs that an output of the short convolution sees."""

    @property
    def inner(self) -> int:
        """Channels of x, and of the gate."""
        return self.heads * self.head_dim

    @property
    def conv(self) -> int:
        """Channels that the short convolution sees: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """Rows of the input projection: z, then x B C, then dt."""
        return self.inner + self.conv + self.heads

    def states(self, layers: int) -> tuple[StateSpec, ...]:
        """What a sequence keeps for so many such mixers."""
        return (
            StateSpec(CONV, (self.taps - 1, self.conv), layers, "conv"),
            StateSpec(SSM, (self.heads, self.head_dim, self.state), layers, "recurrent"),
        )

    def chunk_numbers(self, chunk_size: int) -> int:
        """Numbers of the largest temporary that the scan makes for one chunk."""
        return self.heads * max(self.head_dim * self.state, chunk_size**2)


@attrs.frozen(eq=False)
class GatedNorm:
    """RMSNorm per group of channels, with a SiLU gate before it (usual) or after it."""

    weight: Tensor
    """[groups, channels / groups]"""
    eps: float
    gate_first: bool = True

    def __call__(self, y: Tensor, gate: Tensor) -> Tensor:
        """Shapes: y (may be overwritten), gate, result [tokens, channels]."""
        gate = functional.silu(gate)
        if self.gate_first:
            y = y.mul_(gate)
        y = rms_norm(y.view(-1, *self.weight.shape), self.weight, self.eps).view(gate.shape)
        return y if self.gate_first else y.mul_(gate)


@attrs.frozen(eq=False, kw_only=True)
class Mamba2:
    """One Mamba-2 mixer; takes every row's conv and SSM state on in place."""

    state_layer: int
    """Its place among the layers with recurrent state."""
    sizes: Mamba2Sizes
    in_proj: Tensor
    in_bias: Tensor | None = None
    in_scale: Tensor | None = None
    """[rows of in_proj], multiplies what the projection gives (Falcon-H1)."""
    conv_weight: Tensor
    """[taps, channels]"""
    conv_bias: Tensor
    dt_bias: Tensor
    dt_limits: tuple[float, float] = (0.0, float("inf"))
    """Bounds of the step after its softplus."""
    a: Tensor
    """[heads], negative"""
    skip: Tensor
    """[heads, 1], the weight of x itself (D)"""
    norm: GatedNorm | None
    """``None``: the output is gated and not normed."""
    out_proj: Tensor
    out_bias: Tensor | None = None

    def __call__(self, x: Tensor, run: Pass) -> Tensor:
        """Shapes: x, result [tokens, hidden]."""
        sizes, plan = self.sizes, run.plan
        conv_arena = run.arenas.states[CONV][self.state_layer]
        ssm_arena = run.arenas.states[SSM][self.state_layer]
        projected = linear(x, self.in_proj, self.in_bias)
        if self.in_scale is not None:
            projected = projected * self.in_scale
        split = [sizes.inner, sizes.conv, sizes.heads]
        gate, mixed, dt = torch.split_with_sizes(projected, split, dim=-1)
        dt = self._step_sizes(dt)
        rows = run.decode_rows
        parts: list[Tensor] = []
        if rows:
            conv = conv_decode(
                conv_arena, plan.decode, mixed[:rows], self.conv_weight, self.conv_bias
            )
            values, b, c = self._split(conv)
            y = ssm_decode(ssm_arena, plan.decode, values, dt[:rows], self.a, b, c)
            parts.append(y.addcmul_(values, self.skip))
        if plan.layout is not None:
            inputs = (plan.prefill, plan.layout, mixed[rows:])
            conv = conv_prefill(conv_arena, *inputs, self.conv_weight, self.conv_bias)
            parts.append(self._scan_chunks(ssm_arena, run, plan.layout, conv, dt[rows:]))
        y = (parts[0] if len(parts) == 1 else torch.cat(parts)).view(-1, sizes.inner)
        y = self.norm(y, gate) if self.norm is not None else y.mul_(functional.silu(gate))
        return linear(y, self.out_proj, self.out_bias)

    def _step_sizes(self, dt: Tensor) -> Tensor:
        dt = functional.softplus(dt + self.dt_bias)
        return dt if self.dt_limits == (0.0, float("inf")) else dt.clamp_(*self.dt_limits)

    def _split(self, conv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convolved channels as x [..., heads, width] and B, C [..., groups, state]."""
        sizes = self.sizes
        shared = sizes.groups * sizes.state
        values, b, c = torch.split_with_sizes(conv, [sizes.inner, shared, shared], dim=-1)
        by_group = (*conv.shape[:-1], sizes.groups, sizes.state)
        by_head = (*conv.shape[:-1], sizes.heads, sizes.head_dim)
        return values.view(by_head), b.view(by_group), c.view(by_group)

    def _scan_chunks(
        self, arena: Tensor, run: Pass, layout: ChunkLayout, conv: Tensor, dt: Tensor
    ) -> Tensor:
        """Scan the prefill rows; result [tokens, heads, width] in token order."""
        shape = (layout.chunks, layout.size, -1)
        values, b, c = self._split(conv.index_select(0, layout.output_of_cell).view(shape))
        steps = (dt.index_select(0, layout.token_of_cell) * layout.filled[:, None]).view(shape)
        y = ssm_prefill(arena, run.plan.prefill, layout, values, steps, self.a, b, c)
        y.addcmul_(values, self.skip)
        return y.flatten(0, 1).index_select(0, layout.cell_of_token)
