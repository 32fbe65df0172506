"""A device that remembers: each slot and page holds the tokens that were absorbed into it.

It copies and writes where placements say, in the memory of every place, and poisons what was given
back. A claim whose memory does not hold its own history was aliased, missed a copy, or read what
somebody else wrote.
"""

from collections.abc import Sequence

import attrs

from ownership import Capacity, ClaimView, CopyFrom, Ledger, Place, Placement

POISON = -1
Step = Sequence[tuple[Placement, Sequence[int]]]


@attrs.frozen(eq=False)
class Arena:
    """The memory of one place, numbered from 0."""

    slots: dict[object, tuple[int, ...]]
    cells: list[list[int]]

    @classmethod
    def of(cls, capacity: Capacity | None, page_size: int) -> "Arena":
        pages = 0 if capacity is None else capacity.pages
        return cls({}, [[POISON] * page_size for _ in range(pages)])


@attrs.frozen
class Image:
    """What was read into a file."""

    slot: tuple[int, ...] | None
    cells: tuple[int, ...] | None


class Memory:
    """The arenas of a small model with both kinds of state."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.capacity = ledger.view.capacity
        self.page_size = self.capacity.page_size
        self.arenas = {
            Place.DEVICE: Arena.of(self.capacity, self.page_size),
            Place.HOST: Arena.of(ledger.view.host_capacity, self.page_size),
        }

    def poison_freed(self) -> None:
        for place, arena in self.arenas.items():
            slots, pages = self.ledger.drain_freed(place)
            for slot in slots:
                arena.slots[slot] = (POISON,)
            for page in pages:
                arena.cells[page] = [POISON] * self.page_size

    def run(self, step: Step, *, fails: bool = False) -> list[Image | None]:
        """Copy and clear, then write each row's tokens; a failing step leaves garbage.

        Returns what was read out, by row.
        """
        images = [self._copy(placement) for placement, _ in step]
        for placement, tokens in step:
            if placement.place is not Place.FILE:
                self._write(placement, [POISON] * len(tokens) if fails else tokens)
        return images

    def _copy(self, row: Placement) -> Image | None:
        source = self.arenas[row.source]
        if row.place is Place.FILE:
            is_copy = isinstance(row.initial, CopyFrom)
            slot = source.slots[row.initial.slot] if isinstance(row.initial, CopyFrom) else None
            assert is_copy or not self.capacity.slots
            return Image(slot, self._cells(source, row.pages, row.position, row.first_page))
        target = self.arenas[row.place]
        if isinstance(row.initial, CopyFrom):
            target.slots[row.slot] = source.slots[row.initial.slot]
        elif row.initial == "zeros":
            target.slots[row.slot] = ()
        if row.tail_copy is not None:
            target.cells[row.tail_copy.target] = target.cells[row.tail_copy.source].copy()
        for copy in row.page_copies:
            target.cells[copy.target] = source.cells[copy.source].copy()
        return None

    def _write(self, row: Placement, tokens: Sequence[int]) -> None:
        arena = self.arenas[row.place]
        if isinstance(row.slot, int):
            arena.slots[row.slot] += tuple(tokens)
        for position, token in enumerate(tokens, row.position):
            number = position // self.page_size - row.first_page
            # What a window is loaded without is not written.
            if row.pages and number >= 0:
                arena.cells[row.pages[number]][position % self.page_size] = token

    def _cells(
        self, arena: Arena, pages: Sequence[int], position: int, first_page: int
    ) -> tuple[int, ...] | None:
        """The kept positions of a page table."""
        if not self.capacity.pages:
            return None
        cells = [cell for page in pages for cell in arena.cells[page]]
        return tuple(cells[: position - first_page * self.page_size])

    def check(self, claim: ClaimView, history: Sequence[int]) -> None:
        """The memory of a claim holds its history, from both kinds of state."""
        arena = self.arenas[claim.place]
        is_host = claim.place is Place.HOST
        slots, pages = (self.capacity.slots, self.capacity.pages) if is_host else (0, 0)
        if isinstance(claim.slot, int):
            assert arena.slots[claim.slot - slots] == tuple(history)
        table = [page - pages for page in claim.pages]
        cells = self._cells(arena, table, len(history), claim.first_page)
        self.check_image(Image(None, cells), history, claim.first_page)

    def check_image(self, image: Image, history: Sequence[int], first_page: int) -> None:
        """What was read holds the history."""
        assert image.slot is None or image.slot == tuple(history)
        if image.cells is not None:
            assert image.cells == tuple(history[first_page * self.page_size :])
