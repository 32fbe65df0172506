"""A device that remembers: each slot and page holds the tokens that were absorbed into it.

It copies and writes where placements say, and poisons what was given back. A claim whose memory
does not hold its own history was aliased, missed a copy, or read what somebody else wrote.
"""

from collections.abc import Sequence

from ownership import CopyFrom, Ledger, Placement

POISON = -1
Step = Sequence[tuple[Placement, Sequence[int]]]


class Memory:
    """The arenas of a small model with both kinds of state."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        capacity = ledger.view.capacity
        self.page_size = capacity.page_size
        self.slots: dict[object, tuple[int, ...]] = {}
        self.cells = [[POISON] * self.page_size for _ in range(capacity.pages)]

    def poison_freed(self) -> None:
        slots, pages = self.ledger.drain_freed()
        for slot in slots:
            self.slots[slot] = (POISON,)
        for page in pages:
            self.cells[page] = [POISON] * self.page_size

    def run(self, step: Step, *, fails: bool = False) -> None:
        """Copy and clear, then write each row's tokens; a failing step leaves garbage."""
        for placement, _ in step:
            if isinstance(placement.initial, CopyFrom):
                self.slots[placement.slot] = self.slots[placement.initial.slot]
            elif placement.initial == "zeros":
                self.slots[placement.slot] = ()
            if placement.tail_copy is not None:
                source = self.cells[placement.tail_copy.source]
                self.cells[placement.tail_copy.target] = source.copy()
        for placement, tokens in step:
            written = [POISON] * len(tokens) if fails else tokens
            if isinstance(placement.slot, int):
                self.slots[placement.slot] += tuple(written)
            for position, token in enumerate(written, placement.position):
                if placement.pages:
                    page = placement.pages[position // self.page_size]
                    self.cells[page][position % self.page_size] = token

    def check(self, slot: object, pages: Sequence[int], history: Sequence[int]) -> None:
        """The memory of a claim holds its history, from both kinds of state."""
        if isinstance(slot, int):
            assert self.slots[slot] == tuple(history)
        if pages:
            cells = [cell for page in pages for cell in self.cells[page]]
            assert cells[: len(history)] == list(history)
