"""Slots and pages of the fake device in one place: hashes, cells, and poison where there is none.

What a slot and a cell hold is said in :mod:`adapters.fake_device.arenas`. Memory that was never
written or was given back is poison.
"""

from collections.abc import Sequence
from typing import Self

import attrs

from ownership import NoSlot, PageIndex, SlotIndex

__all__ = ["NO_SLOT_STATE", "POISON", "ZEROS", "FakeMemory"]

ZEROS = 0x7E0
"""Hash of a cleared slot."""
NO_SLOT_STATE = 0xA77
"""Stands for the slot where the model has none; each cell then depends on its own token alone."""
POISON = 1 << 50
"""In a slot or a cell. More than 2**18 cells together, so a page's sum tells whether it is there.
"""


@attrs.frozen(eq=False)
class FakeMemory:
    """All slots and pages of one place; a step works on the lists themselves."""

    page_size: int
    slots: dict[SlotIndex | NoSlot, int]
    """By slot: the running hash, or poison; a model without slots has one constant."""
    cells: list[int]
    """By page, then position in the page: what the token left behind, or poison."""
    sums: list[int]
    """By page: the sum of its cells, kept up by each write."""
    tops: list[int]
    """By page: all cells from this one on are poison."""

    @classmethod
    def of(cls, slots: int, pages: int, page_size: int, *, uses_slots: bool) -> Self:
        """Memory that holds nothing yet."""
        states: dict[SlotIndex | NoSlot, int] = {SlotIndex(slot): POISON for slot in range(slots)}
        if not uses_slots:
            states[NoSlot.NO_SLOT] = NO_SLOT_STATE
        return cls(
            page_size,
            states,
            [POISON] * (pages * page_size),
            [POISON * page_size] * pages,
            [0] * pages,
        )

    def poison(self, slots: Sequence[SlotIndex], pages: Sequence[PageIndex]) -> None:
        """Make the content of slots and pages unusable."""
        size = self.page_size
        for slot in slots:
            self.slots[slot] = POISON
        for page in pages:
            self.cells[page * size : (page + 1) * size] = [POISON] * size
            self.sums[page] = POISON * size
            self.tops[page] = 0

    def copy_page(self, page: PageIndex, source: "FakeMemory", source_page: PageIndex) -> None:
        """Make a page what a page there is, poison included."""
        size = self.page_size
        start = source_page * size
        self.cells[page * size : (page + 1) * size] = source.cells[start : start + size]
        self.sums[page] = source.sums[source_page]
        self.tops[page] = source.tops[source_page]

    def fill_page(self, page: PageIndex, values: Sequence[int]) -> None:
        """Make a page hold these cells and nothing beyond them."""
        size, count = self.page_size, len(values)
        self.cells[page * size : (page + 1) * size] = [*values, *[POISON] * (size - count)]
        self.sums[page] = sum(values) + POISON * (size - count)
        self.tops[page] = count

    def read_cells(self, pages: Sequence[PageIndex], count: int) -> list[int]:
        """The first ``count`` cells of these pages, in their order."""
        size = self.page_size
        found: list[int] = []
        for page in pages[: -(-count // size)]:
            found += self.cells[page * size : (page + 1) * size]
        return found[:count]
