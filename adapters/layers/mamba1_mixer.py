"""The Mamba-1 mixer: projections around the kernels of ``mamba1``.

Layout of Gu and Dao (2023, https://arxiv.org/abs/2312.00752): one input projection gives
``x | z``; a short causal convolution and SiLU over x; a second projection, of x, gives
``dt | B | C``, dt of low rank and widened by a third; the scan; a gate; an output projection.
Jamba and Falcon Mamba norm dt, B and C.
"""

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers.linear import linear
from adapters.layers.mamba1 import scan_decode, scan_prefill
from adapters.layers.mamba2 import conv_decode, conv_prefill
from adapters.layers.norm import RmsNorm
from adapters.ragged.indices import ChunkLayout
from adapters.ragged.run import Pass
from adapters.ragged.spec import StateSpec

__all__ = ["Mamba1", "Mamba1Norms", "Mamba1Sizes"]

CONV, SSM = "conv", "ssm"


@attrs.frozen(kw_only=True)
class Mamba1Sizes:
    """Dimensions of a Mamba-1 mixer."""

    hidden: int
    inner: int
    """Channels of x, and of the gate."""
    state: int
    """Numbers that each channel keeps."""
    rank: int
    """Of the step's projection."""
    taps: int
    """Inputs that an output of the short convolution sees."""

    @property
    def selected(self) -> int:
        """Rows of the second projection: dt, then B, then C."""
        return self.rank + 2 * self.state

    @property
    def token_numbers(self) -> int:
        """Numbers of the widest temporary for one token."""
        return max(2 * self.inner, self.selected)

    def states(self, layers: int) -> tuple[StateSpec, ...]:
        """What a sequence keeps for so many such mixers."""
        return (
            StateSpec(CONV, (self.taps - 1, self.inner), layers, "conv"),
            StateSpec(SSM, (self.state, self.inner), layers, "recurrent"),
        )

    def chunk_numbers(self, chunk_size: int) -> int:
        """Numbers of the largest temporary that the scan makes for one chunk."""
        return self.inner * max(self.state, chunk_size)


@attrs.frozen(eq=False, kw_only=True)
class Mamba1Norms:
    """Over what the second projection gives."""

    dt: RmsNorm
    """Over the rank, before dt is widened."""
    b: RmsNorm
    c: RmsNorm


@attrs.frozen(eq=False, kw_only=True)
class Mamba1:
    """One Mamba-1 mixer; takes every row's conv and SSM state on in place."""

    state_layer: int
    """Its place among the layers with recurrent state."""
    sizes: Mamba1Sizes
    in_proj: Tensor
    in_bias: Tensor | None = None
    conv_weight: Tensor
    """[taps, channels]"""
    conv_bias: Tensor
    x_proj: Tensor
    norms: Mamba1Norms | None = None
    dt_proj: Tensor
    """[channels, rank]"""
    dt_bias: Tensor
    a: Tensor
    """[state, channels], negative"""
    skip: Tensor
    """[channels], the weight of x itself (D)"""
    out_proj: Tensor
    out_bias: Tensor | None = None

    def __call__(self, x: Tensor, run: Pass) -> Tensor:
        """Shapes: x, result [tokens, hidden]."""
        arena = run.arenas.states[SSM][self.state_layer]
        inputs, gate = linear(x, self.in_proj, self.in_bias).chunk(2, dim=-1)
        values = self._convolve(inputs, run)
        dt, b, c = self._select(values)
        rows, plan = run.decode_rows, run.plan
        parts: list[Tensor] = []
        if rows:
            now = (values[:rows], dt[:rows], self.a, b[:rows], c[:rows])
            parts.append(scan_decode(arena, plan.decode, *now))
        if plan.layout is not None:
            cells = _Cells(plan.layout)
            steps = cells.of(dt[rows:]) * plan.layout.filled.view(*cells.shape, 1)
            now = (cells.of(values[rows:]), steps, self.a, cells.of(b[rows:]), cells.of(c[rows:]))
            parts.append(cells.tokens(scan_prefill(arena, plan.prefill, plan.layout, *now)))
        y = parts[0] if len(parts) == 1 else torch.cat(parts)
        y.addcmul_(values, self.skip).mul_(functional.silu(gate))
        return linear(y, self.out_proj, self.out_bias)

    def _convolve(self, inputs: Tensor, run: Pass) -> Tensor:
        """Shapes: inputs, result [tokens, channels]."""
        arena, plan = run.arenas.states[CONV][self.state_layer], run.plan
        rows = run.decode_rows
        parts: list[Tensor] = []
        if rows:
            now = inputs[:rows]
            parts.append(conv_decode(arena, plan.decode, now, self.conv_weight, self.conv_bias))
        if plan.layout is not None:
            many = (plan.prefill, plan.layout, inputs[rows:])
            stream = conv_prefill(arena, *many, self.conv_weight, self.conv_bias)
            at = plan.layout.output_of_cell.index_select(0, plan.layout.cell_of_token)
            parts.append(stream.index_select(0, at))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _select(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Steps [tokens, channels] after softplus, and B, C [tokens, state]."""
        sizes = self.sizes
        split = [sizes.rank, sizes.state, sizes.state]
        dt, b, c = torch.split_with_sizes(linear(values, self.x_proj), split, dim=-1)
        if self.norms is not None:
            dt, b, c = self.norms.dt(dt), self.norms.b(b), self.norms.c(c)
        return functional.softplus(linear(dt, self.dt_proj) + self.dt_bias), b, c


@attrs.frozen(eq=False)
class _Cells:
    """Between tokens and the cells of chunks."""

    layout: ChunkLayout

    @property
    def shape(self) -> tuple[int, int]:
        return (self.layout.chunks, self.layout.size)

    def of(self, tokens: Tensor) -> Tensor:
        """[tokens, channels] as [chunks, Q, channels]; padding repeats its row's first token."""
        return tokens.index_select(0, self.layout.token_of_cell).view(*self.shape, -1)

    def tokens(self, cells: Tensor) -> Tensor:
        """[chunks, Q, channels] as [tokens, channels]."""
        return cells.flatten(0, 1).index_select(0, self.layout.cell_of_token)
