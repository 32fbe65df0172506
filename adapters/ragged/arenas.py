"""The memory that steps read and write: recurrent state by slot, keys and values by page.

Every arena has one row more than the kernel may name, its last: the padding slot and the padding
page. They hold zeros for ever; what pads a table points there.
"""

from collections.abc import Mapping, Sequence

import attrs
import torch
from torch import Tensor

from adapters.ragged.spec import ModelShape
from kernel.step import DeviceLimits

__all__ = ["Arenas", "PageArena", "StateArena", "allocate_arenas"]


@attrs.frozen(eq=False)
class StateArena:
    """Recurrent state of every slot, by the name of its :class:`StateSpec`.

    Shapes: [layers, slots + 1, *shape] each.
    """

    tensors: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def fill(self, slots: Sequence[int], value: float) -> None:
        """Set all numbers of these slots; 0 is the state of a sequence of no tokens."""
        for tensor in self.tensors.values():
            tensor.index_fill_(1, torch.tensor(slots, device=tensor.device), value)

    def copy(self, source: int, target: int) -> None:
        """Make ``target`` a bit-exact copy of ``source``."""
        # One slot at a time: indexing by a list would gather all sources into a temporary.
        for tensor in self.tensors.values():
            tensor[:, target] = tensor[:, source]


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

    states: StateArena
    pages: PageArena


def allocate_arenas(
    shape: ModelShape,
    limits: DeviceLimits,
    *,
    state_dtype: torch.dtype,
    page_dtype: torch.dtype,
    device: torch.device,
) -> Arenas:
    """Allocate zeroed arenas; a model without a kind of layer gets empty ones of that kind."""

    def zeros(dtype: torch.dtype, *size: int) -> Tensor:
        return torch.zeros(size, dtype=dtype, device=device)

    slots, pages = limits.num_slots + 1, limits.num_pages + 1
    kv = shape.kv
    page = (0, pages, limits.page_size, 1, 1)
    if kv is not None:
        page = (kv.layers, pages, limits.page_size, kv.kv_heads, kv.head_dim)
    return Arenas(
        states=StateArena(
            {
                state.name: zeros(state_dtype, state.layers, slots, *state.shape)
                for state in shape.states
            }
        ),
        pages=PageArena(keys=zeros(page_dtype, *page), values=zeros(page_dtype, *page)),
    )
