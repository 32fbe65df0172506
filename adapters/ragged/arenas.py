"""The memory that steps read and write: recurrent state by slot, keys and values by page.

Every arena of the device has one row more than the kernel may name, its last: the padding slot and
the padding page. They hold zeros for ever; what pads a table points there. Host memory has the
same shapes without these, and nothing computes in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import torch
from torch import Tensor

from adapters.ragged.spec import ModelShape
from kernel.step import DeviceLimits
from ownership import Place

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

    def copy(self, source: int, target: int, origin: "StateArena | None" = None) -> None:
        """Make ``target`` a bit-exact copy of ``source``, of this arena or of another place's.

        Between an accelerator and the host it may still be under way when this returns.
        """
        # One slot at a time: indexing by a list would gather all sources into a temporary.
        for name, tensor in self.tensors.items():
            there = tensor if origin is None else origin.tensors[name]
            tensor[:, target].copy_(there[:, source], non_blocking=True)


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
        self.copy_all([(source, target)], self)

    def copy_all(self, pairs: Sequence[tuple[int, int]], origin: "PageArena") -> None:
        """Make pages bit-exact copies of others, of this arena or of another place's.

        Between an accelerator and the host they may still be under way when this returns.

        Args:
            pairs: source and target of each copy; no page is both.
            origin: where the sources are.
        """
        for source, target, count in _stretches(pairs):
            here_at, there_at = slice(target, target + count), slice(source, source + count)
            self.keys[:, here_at].copy_(origin.keys[:, there_at], non_blocking=True)
            self.values[:, here_at].copy_(origin.values[:, there_at], non_blocking=True)


def _stretches(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Source, target and length of what can be copied at once: pages that follow each other."""
    begin = previous = (-2, -2)
    count = 0
    for source, target in sorted(pairs):
        if (source - 1, target - 1) == previous:
            count += 1
        else:
            if count:
                yield begin[0], begin[1], count
            begin, count = (source, target), 1
        previous = source, target
    if count:
        yield begin[0], begin[1], count


@attrs.frozen(eq=False)
class Arenas:
    """All memory of one engine; it outlives every worker."""

    states: StateArena
    pages: PageArena
    host: "Arenas | None" = None
    """``None``: none was asked for."""

    def at(self, place: Place) -> "Arenas":
        """The arenas of a place."""
        if place is Place.DEVICE:
            return self
        if place is not Place.HOST or self.host is None:
            raise ValueError(f"this engine has no memory in place {place.value!r}")
        return self.host


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

    def on_host(dtype: torch.dtype, layers: int, rows: int, *size: int) -> Tensor:
        # Not cleared, so that it takes no memory before it is used. Row by row and not layer by
        # layer, so that each row is one piece: of what is touched, and of a copy to a device.
        rows_first = (rows, layers, *size)
        pinned = device.type != "cpu"
        return torch.empty(rows_first, dtype=dtype, pin_memory=pinned).transpose(0, 1)

    def arenas(
        allocate: Callable[..., Tensor], slots: int, pages: int
    ) -> tuple[StateArena, Tensor, Tensor]:
        kv = shape.kv
        page = (0, pages, limits.page_size, 1, 1)
        if kv is not None:
            page = (kv.layers, pages, limits.page_size, kv.kv_heads, kv.head_dim)
        states = {
            state.name: allocate(state_dtype, state.layers, slots, *state.shape)
            for state in shape.states
        }
        return StateArena(states), allocate(page_dtype, *page), allocate(page_dtype, *page)

    host: Arenas | None = None
    if limits.host_slots or limits.host_pages:
        states, keys, values = arenas(on_host, limits.host_slots, limits.host_pages)
        host = Arenas(states, PageArena(keys, values))
    states, keys, values = arenas(zeros, limits.num_slots + 1, limits.num_pages + 1)
    return Arenas(states, PageArena(keys, values), host)
