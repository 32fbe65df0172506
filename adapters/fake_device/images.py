"""Images of the fake device's states: the hash of a slot, and one cell for each position."""

import struct
from collections.abc import Mapping, Sequence

from adapters.fake_device.memory import POISON, FakeMemory
from adapters.image_check import ArrayKind
from kernel.state_image import ImageArray, StateImage
from kernel.step import ModelSpec, StepRow
from ownership import NoSlot, PageIndex

__all__ = ["array_kinds", "load_image", "make_image"]

_WORD_BYTES = 8
_SLOT, _CELLS = "hash", "cells"


def array_kinds(model: ModelSpec) -> Mapping[str, ArrayKind]:
    """The arrays of an image, by name."""
    kinds: dict[str, ArrayKind] = {}
    if model.uses_slots:
        kinds[_SLOT] = ArrayKind("I64", _WORD_BYTES, (1, 1))
    if model.uses_pages:
        kinds[_CELLS] = ArrayKind("I64", _WORD_BYTES, (1, 1, 1), by_position=True)
    return kinds


def make_image(
    kinds: Mapping[str, ArrayKind],
    state: int,
    cells: Sequence[int],
    *,
    position: int,
    first_position: int,
) -> StateImage:
    """An image of a slot's hash and of the cells from ``first_position`` on."""
    values = {_SLOT: (state,), _CELLS: cells}
    arrays = {
        name: ImageArray(kind.dtype, kind.shape_at(len(cells)), _packed(values[name]))
        for name, kind in kinds.items()
    }
    return StateImage(position, arrays, first_position)


def load_image(memory: FakeMemory, row: StepRow, image: StateImage) -> None:
    """Write an image, checked before, into a row's slot and pages."""
    if not isinstance(row.slot, NoSlot):
        (memory.slots[row.slot],) = _unpacked(image.arrays[_SLOT])
    if _CELLS not in image.arrays:
        return
    size = memory.page_size
    begin = row.first_page * size
    cells = _unpacked(image.arrays[_CELLS])[begin - image.first_position :]
    for number, start in enumerate(range(0, len(cells), size)):
        memory.fill_page(row.pages[number], cells[start : start + size])


def poisoned_page(
    memory: FakeMemory, pages: Sequence[PageIndex], cells: Sequence[int]
) -> PageIndex | None:
    """The first page whose part of these cells holds nothing."""
    at = next((at for at, cell in enumerate(cells) if cell >= POISON), None)
    return None if at is None else pages[at // memory.page_size]


def _packed(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _unpacked(array: ImageArray) -> tuple[int, ...]:
    return struct.unpack(f"<{len(array.data) // _WORD_BYTES}q", array.data)
