"""What the attention layers need to know about one pass: rotary factors, places, tables, masks.

A position that a query may not see is masked; it must still hold a finite number (a page is
cleared before its first write, and the padding page holds zeros), since 0 times NaN is NaN.
"""

import attrs
import torch
from torch import Tensor

from adapters.ragged.spec import Rope

__all__ = [
    "AttentionPlan",
    "ChunkReads",
    "DecodeReads",
    "Rotation",
    "causal_mask",
    "rotation",
]


@attrs.frozen(eq=False)
class Rotation:
    """Rotary factors of the tokens of a pass. Shapes: cos, sin [tokens, 1, rope.width / 2]."""

    cos: Tensor
    sin: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Rotate heads, halves paired. x: [tokens, heads, head_dim], result alike.

        Channels beyond the rotary width stay as they are.
        """
        half = self.cos.shape[-1]
        if half == 0:
            return x
        low, high = x[..., :half], x[..., half : 2 * half]
        parts = (low * self.cos - high * self.sin, high * self.cos + low * self.sin)
        rest = () if x.shape[-1] == 2 * half else (x[..., 2 * half :],)
        return torch.cat((*parts, *rest), dim=-1)


def rotation(positions: Tensor, rope: Rope | None, dtype: torch.dtype) -> Rotation:
    """Factors for these positions; angles in float64, since they grow with the position."""
    frequencies = () if rope is None else rope.frequencies
    steps = torch.tensor(frequencies, dtype=torch.float64, device=positions.device)
    angles = (positions.to(torch.float64)[:, None] * steps)[:, None]
    factor = 1.0 if rope is None else rope.factor
    return Rotation(cos=(angles.cos() * factor).to(dtype), sin=(angles.sin() * factor).to(dtype))


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
