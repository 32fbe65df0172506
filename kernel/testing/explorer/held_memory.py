"""What a device's memory must hold, in plain tokens: by slot, and by cell of each page.

A state that does not hold exactly its own history is seen at once, not when it draws a wrong
token. An image is known again by its bytes, wherever it has been meanwhile.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import cast

import attrs

from kernel.state_image import StateImage
from kernel.step import (
    CopyOf,
    CopyOut,
    DeviceStep,
    PageCopy,
    RowFault,
    StepDone,
    StepReport,
    StepRow,
    TransferDone,
    TransferReport,
    TransferStep,
)
from ownership import NoSlot, Place

__all__ = ["Memory", "Tokens", "Touched", "touched"]

Tokens = tuple[int, ...]
_Slots = dict[int, Tokens | None]
_Cells = dict[tuple[int, int], Tokens | None]


@attrs.define(eq=False)
class Memory:
    """What the slots and pages hold, as tokens; ``None`` where nobody knows."""

    page_size: int = 1
    slots: _Slots = attrs.field(factory=_Slots)
    cells: _Cells = attrs.field(factory=_Cells)
    """By page and place in it: all tokens up to the one that stands there."""
    host_slots: _Slots = attrs.field(factory=_Slots)
    host_cells: _Cells = attrs.field(factory=_Cells)
    images: dict[Hashable, Tokens | None] = attrs.field(factory=dict[Hashable, "Tokens | None"])
    """Histories of the states that were read out."""
    wrong: list[str] = attrs.field(factory=list[str])
    """Rows that started from something else than what they were said to start from."""

    def run(self, step: DeviceStep) -> None:
        """Follow a step that the device has computed."""
        self._run(step, step.rows)

    def follow(self, step: DeviceStep | TransferStep, report: StepReport | TransferReport) -> None:
        """Follow a step or a transfer that has not failed."""
        if isinstance(step, TransferStep):
            if isinstance(report, TransferDone):
                self._copy(step, report)
            return
        outcomes = report.tokens if isinstance(report, StepDone) else ()
        refused = [
            row
            for row, outcome in zip(step.rows, outcomes, strict=True)
            if isinstance(outcome, RowFault) and outcome.is_undefined
        ]
        for row in refused:
            self._lose(row)
        lost = {id(row) for row in refused}
        self._run(step, [row for row in step.rows if id(row) not in lost])

    def lose(self, step: DeviceStep | TransferStep) -> None:
        """Follow one that has failed: what it may have written is unknown."""
        if isinstance(step, DeviceStep):
            for row in step.rows:
                self._lose(row)
            return
        host = touched(step, Place.HOST, self.page_size)
        for slot in host.slots:
            self.host_slots[slot] = None
        for page in host.written_pages:
            for place in range(self.page_size):
                self.host_cells[page, place] = None

    def of(self, place: Place) -> tuple[_Slots, _Cells]:
        """What a place holds."""
        if place is Place.HOST:
            return self.host_slots, self.host_cells
        return self.slots, self.cells

    def prefix(
        self,
        pages: Sequence[int],
        length: int,
        place: Place = Place.DEVICE,
        *,
        first_page: int = 0,
    ) -> Tokens | None:
        """What the positions of a page table hold below ``length``, if all of it is one history."""
        _, cells = self.of(place)
        start = first_page * self.page_size
        found: Tokens | None = () if not start else None
        for position in range(start, length):
            page = pages[position // self.page_size - first_page]
            cell = cells.get((page, position % self.page_size))
            if cell is None or len(cell) != position + 1:
                return None
            if found is not None and cell[:-1] != found:
                return None
            found = cell
        return found

    def image_of(self, image: StateImage) -> Tokens | None:
        """The history of a state that was read out."""
        return self.images.get(_key(image))

    def _lose(self, row: StepRow) -> None:
        if not isinstance(row.slot, NoSlot):
            self.slots[row.slot] = None
        for page in _written(row, self.page_size):
            for place in range(self.page_size):
                self.cells[page, place] = None

    def _run(self, step: DeviceStep, rows: Sequence[StepRow]) -> None:
        for row in rows:
            self._prepare(row)
        for row in rows:
            self._absorb(step.step, row)

    def _prepare(self, row: StepRow) -> None:
        initial = row.initial
        if isinstance(initial, StateImage):
            self._load(row, initial)
        elif isinstance(initial, CopyOf):
            slots, _ = self.of(initial.place)
            self.slots[cast("int", row.slot)] = slots.get(initial.slot)
        elif initial == "zeros":
            self.slots[cast("int", row.slot)] = ()
        for copy in _copies(row):
            _, cells = self.of(copy.place)
            for place in range(self.page_size):
                self.cells[copy.target, place] = cells.get((copy.source, place))

    def _load(self, row: StepRow, image: StateImage) -> None:
        tokens = self.images.get(_key(image))
        if not isinstance(row.slot, NoSlot):
            self.slots[row.slot] = tokens
        size = self.page_size
        start = row.first_page * size
        for position in range(start, image.position if row.pages else start):
            page = row.pages[position // size - row.first_page]
            self.cells[page, position % size] = tokens and tokens[: position + 1]

    def _absorb(self, step: int, row: StepRow) -> None:
        if isinstance(row.slot, NoSlot):
            before = self._read_pages(row)
        else:
            before = self.slots.get(row.slot)
        if before is None or len(before) != row.position:
            what = "nothing known" if before is None else f"{len(before)} tokens"
            self.wrong.append(f"step {step}: slot {row.slot} held {what} at {row.position}")
            before = (-1,) * row.position
        tokens = list(before)
        for token in row.tokens:
            tokens.append(token)
            if row.pages:
                position = len(tokens) - 1
                page = row.pages[position // self.page_size - row.first_page]
                self.cells[page, position % self.page_size] = tuple(tokens)
        if not isinstance(row.slot, NoSlot):
            self.slots[row.slot] = tuple(tokens)

    def _read_pages(self, row: StepRow) -> Tokens | None:
        if not row.position:
            return ()
        last = row.position - 1
        page = row.pages[last // self.page_size - row.first_page]
        return self.cells.get((page, last % self.page_size))

    def _copy(self, step: TransferStep, report: TransferDone) -> None:
        for row, image in zip(step.rows, report.images, strict=True):
            if isinstance(row, CopyOut):
                if not isinstance(row.source, NoSlot) and not isinstance(row.target, NoSlot):
                    self.host_slots[row.target] = self.slots.get(row.source)
                for copy in row.pages:
                    for place in range(self.page_size):
                        cell = self.cells.get((copy.source, place))
                        self.host_cells[copy.target, place] = cell
                continue
            slots, _ = self.of(row.place)
            if isinstance(row.slot, NoSlot):
                held = self.prefix(row.pages, row.position, row.place, first_page=row.first_page)
            else:
                held = slots.get(row.slot)
            if held is None or len(held) != row.position:
                what = "nothing known" if held is None else f"{len(held)} tokens"
                self.wrong.append(f"transfer {step.step}: {what} was read out at {row.position}")
            if image is not None:
                self.images[_key(image)] = held


def _key(image: StateImage) -> Hashable:
    arrays = tuple(sorted((name, array.data) for name, array in image.arrays.items()))
    return (image.position, image.first_position, arrays)


def _copies(row: StepRow) -> Iterator[PageCopy]:
    if row.tail_copy is not None:
        yield row.tail_copy
    yield from row.page_copies


def _written(row: StepRow, page_size: int) -> set[int]:
    if not row.pages:
        return set()
    end = -(-(row.position + len(row.tokens)) // page_size) - row.first_page
    if isinstance(row.initial, StateImage):
        return set(row.pages[:end])
    own = row.pages[row.position // page_size - row.first_page : end]
    return {*own, *(copy.target for copy in row.page_copies)}


@attrs.frozen
class Touched:
    """What a step or a transfer may touch in one place until it has ended."""

    slots: set[int]
    """Read or written."""
    written_pages: set[int]


def touched(step: DeviceStep | TransferStep, place: Place, page_size: int) -> Touched:
    """What it may touch in a place."""
    slots: set[int] = set()
    pages: set[int] = set()
    for row in step.rows:
        if isinstance(row, StepRow):
            used = [row.slot] if place is Place.DEVICE else []
            if isinstance(row.initial, CopyOf) and row.initial.place is place:
                used.append(row.initial.slot)
            if place is Place.DEVICE:
                pages |= _written(row, page_size)
        elif isinstance(row, CopyOut):
            used = [row.target if place is Place.HOST else row.source]
            if place is Place.HOST:
                pages.update(copy.target for copy in row.pages)
        else:
            used = [row.slot] if row.place is place else []
        slots.update(int(slot) for slot in used if not isinstance(slot, NoSlot))
    return Touched(slots, pages)
