"""The memory that steps read and write: recurrent state by slot, keys and values by page.

Every arena has one row more than the kernel may name, its last: the padding slot and the padding
page. They hold zeros for ever; what pads a table points there.
"""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from adapters.models.hybrid import HybridConfig
from kernel.step import DeviceLimits

__all__ = ["Arenas", "PageArena", "StateArena", "allocate_arenas"]


@attrs.frozen(eq=False)
class StateArena:
    """Recurrent state of every slot, all recurrent layers.

    Shapes: conv [layers, slots + 1, conv_kernel - 1, conv_size], the newest input last;
    ssm [layers, slots + 1, heads, head_dim, state_size]. float32, or float64 for a float64 model.
    """

    conv: Tensor
    ssm: Tensor

    def fill(self, slots: Sequence[int], value: float) -> None:
        """Set all numbers of these slots; 0 is the state of a sequence of no tokens."""
        at = torch.tensor(slots, device=self.ssm.device)
        self.conv.index_fill_(1, at, value)
        self.ssm.index_fill_(1, at, value)

    def copy(self, source: int, target: int) -> None:
        """Make ``target`` a bit-exact copy of ``source``."""
        # One slot at a time: indexing by a list would gather all sources into a temporary.
        self.conv[:, target] = self.conv[:, source]
        self.ssm[:, target] = self.ssm[:, source]


@attrs.frozen(eq=False)
class PageArena:
    """Keys (rotated) and values of every page, all attention layers.

    Shapes: keys, values [layers, pages + 1, page_size, kv_heads, head_dim].
    """

    keys: Tensor
    values: Tensor

    @property
    def padding(self) -> int:
        """The padding page."""
        return self.keys.shape[1] - 1

    @property
    def page_size(self) -> int:
        return self.keys.shape[2]

    def fill(self, pages: Sequence[int], value: float) -> None:
        """Set all numbers of these pages."""
        at = torch.tensor(pages, device=self.keys.device)
        self.keys.index_fill_(1, at, value)
        self.values.index_fill_(1, at, value)

    def copy(self, source: int, target: int) -> None:
        """Make ``target`` a bit-exact copy of ``source``."""
        self.keys[:, target] = self.keys[:, source]
        self.values[:, target] = self.values[:, source]


@attrs.frozen(eq=False)
class Arenas:
    """All device memory of one engine; it outlives every worker."""

    state: StateArena
    pages: PageArena


def allocate_arenas(
    config: HybridConfig,
    limits: DeviceLimits,
    *,
    state_dtype: torch.dtype,
    page_dtype: torch.dtype,
    device: torch.device,
) -> Arenas:
    """Allocate zeroed arenas; a model without a kind of layer gets empty ones of that kind."""

    def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    recurrent, slots = len(config.mamba_layers), limits.num_slots + 1
    attention, pages = len(config.attention_layers), limits.num_pages + 1
    page = (limits.page_size, config.num_kv_heads, config.attn_head_dim)
    state = (config.num_mamba_heads, config.head_dim, config.state_size)
    return Arenas(
        state=StateArena(
            conv=zeros(state_dtype, recurrent, slots, config.conv_kernel - 1, config.conv_size),
            ssm=zeros(state_dtype, recurrent, slots, *state),
        ),
        pages=PageArena(
            keys=zeros(page_dtype, attention, pages, *page),
            values=zeros(page_dtype, attention, pages, *page),
        ),
    )
