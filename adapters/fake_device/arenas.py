"""The fake device's memory: one running hash per slot, one cell per token position of each page.

A slot's hash is folded in place by each absorbed token, with its position. A cell holds what that
token left behind. The token that a row draws is a function of its slot's hash and of the cells
that it reads through its page table: nothing else, above all not the plan's history. So an
aliased slot or page, a missed copy, a stale page table or a wrong position changes tokens, as it
would on real hardware, where such bugs show up as text that is a little odd.

Memory that was never written or was given back is poison: reading it changes tokens and is noted
in ``poison_reads``. Host memory is the same, and no row computes in it. ``hash`` of a tuple of
ints is not salted, so runs are alike in every process of one CPython version.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs

from adapters.fake_device.drawing import draw, draw_scored
from adapters.fake_device.images import array_kinds, load_image
from adapters.fake_device.memory import POISON, ZEROS, FakeMemory
from adapters.fake_device.plan_checks import PlanFault, check_sources, check_targets
from adapters.image_check import ArrayKind, image_fault
from kernel.state_image import StateImage
from kernel.step import (
    CopyOf,
    DeviceLimits,
    DeviceStep,
    ModelSpec,
    RowFault,
    RowOutcome,
    StepRow,
    TransferRow,
)
from ownership import NoSlot, PageIndex, Place, SlotIndex

__all__ = ["CELL_MASK", "FakeArenas", "PlanFault", "PoisonRead"]

CELL_MASK = (1 << 32) - 1


@attrs.frozen
class PoisonRead:
    """A row read memory that holds nothing."""

    step: int
    row: StepRow | TransferRow
    what: Literal["slot", "page"]
    index: SlotIndex | NoSlot | PageIndex


@attrs.define(eq=False)
class FakeArenas:
    """Slots and pages of one device, and the arithmetic of a step over them."""

    model: ModelSpec
    limits: DeviceLimits
    _newest_step: int = attrs.field(default=-1, init=False)
    poison_reads: list[PoisonRead] = attrs.field(factory=list[PoisonRead])
    device: FakeMemory = attrs.field(init=False)
    host: FakeMemory = attrs.field(init=False)
    kinds: Mapping[str, ArrayKind] = attrs.field(init=False)
    """The arrays of an image."""
    _slots: dict[SlotIndex | NoSlot, int] = attrs.field(init=False)
    _cells: list[int] = attrs.field(init=False)
    _sums: list[int] = attrs.field(init=False)
    _tops: list[int] = attrs.field(init=False)
    _written_pages: set[int] = attrs.field(factory=set[int], init=False)
    """Pages that a row of the step that runs writes into."""
    _sum_of: Callable[[int], int] = attrs.field(init=False)
    _uses_slots: bool = attrs.field(init=False)
    _uses_pages: bool = attrs.field(init=False)
    _page_size: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._uses_slots, self._uses_pages = self.model.uses_slots, self.model.uses_pages
        self._page_size = size = self.limits.page_size
        limits, uses_slots = self.limits, self._uses_slots
        self.device = memory = FakeMemory.of(
            limits.num_slots, limits.num_pages, size, uses_slots=uses_slots
        )
        self.host = FakeMemory.of(limits.host_slots, limits.host_pages, size, uses_slots=uses_slots)
        self.kinds = array_kinds(self.model)
        self._slots, self._cells = memory.slots, memory.cells
        self._sums, self._tops = memory.sums, memory.tops
        self._sum_of = self._sums.__getitem__

    def run(self, step: DeviceStep) -> tuple[RowOutcome, ...]:
        """Poison, zero and copy, absorb, draw; returns the outcome of each row.

        Raises:
            PlanFault: the plan can't be right; what its rows write is undefined.
        """
        self.poison_freed(step)
        rows = step.rows
        fresh = self._check(rows)
        refused = {id(row): fault for row in fresh if (fault := self._refusal(row)) is not None}
        if not refused:
            for row in fresh:
                self._prepare(row)
            return tuple([self._absorb(step, row) for row in rows])
        for row in fresh:
            if id(row) not in refused:
                self._prepare(row)
        self._poison_rows([row for row in fresh if id(row) in refused])
        return tuple([refused.get(id(row)) or self._absorb(step, row) for row in rows])

    def memory_of(self, place: Place) -> FakeMemory:
        """The memory of a place."""
        return self.host if place is Place.HOST else self.device

    def poison_freed(self, step: DeviceStep) -> None:
        """Poison what was given back before this step, unless a later step has overtaken it."""
        if step.step >= self._newest_step:
            self._newest_step = step.step
            self.poison(step.freed_slots, step.freed_pages)

    def poison(self, slots: Sequence[SlotIndex], pages: Sequence[PageIndex]) -> None:
        """Make the content of slots and pages of the device unusable."""
        self.device.poison(slots, pages)

    def poison_written(self, step: DeviceStep) -> None:
        """Make undefined what a failed step may have written: its rows' slots and last pages."""
        self._poison_rows(step.rows)

    def _poison_rows(self, rows: Sequence[StepRow]) -> None:
        for row in rows:
            if not isinstance(row.slot, NoSlot):
                self.poison((row.slot,), ())
            if self._uses_pages:
                self.poison((), self._pages_written(row))

    def _pages_written(self, row: StepRow) -> Sequence[PageIndex]:
        """Pages that a row writes, those included that it copies or loads first."""
        size, first = self._page_size, row.first_page
        end = -(-(row.position + len(row.tokens)) // size) - first
        if isinstance(row.initial, StateImage):
            return row.pages[:end]
        own = row.pages[row.position // size - first : end]
        if not row.page_copies:
            return own
        return [*own, *{copy.target for copy in row.page_copies}.difference(own)]

    def _refusal(self, row: StepRow) -> RowFault | None:
        """Why the row's image isn't one of this model's; nothing of the row is computed then."""
        if not isinstance(row.initial, StateImage):
            return None
        why = image_fault(row, row.initial, self.kinds, self._page_size)
        return None if why is None else RowFault(why, is_undefined=True)

    def _check(self, rows: Sequence[StepRow]) -> list[StepRow]:
        """Refuse two writers and overlong steps; returns the rows that need zeros or copies."""
        uses_pages, size = self._uses_pages, self._page_size
        fresh: list[StepRow] = []
        slots: set[object] = set()
        pages: set[int] = set()
        num_tokens = num_pages = 0
        for row in rows:
            count = len(row.tokens)
            if not count and not isinstance(row.initial, StateImage):
                raise PlanFault("a row has no tokens")
            num_tokens += count
            slots.add(row.slot)
            if row.initial != "kept" or row.tail_copy is not None or row.page_copies:
                fresh.append(row)
                if uses_pages:
                    if row.first_page + len(row.pages) < -(-(row.position + count) // size):
                        raise PlanFault("a page table does not cover its row")
                    own = self._pages_written(row)
                    num_pages += len(own)
                    pages.update(own)
            elif uses_pages:
                first = row.position // size - row.first_page
                last = (row.position + count - 1) // size - row.first_page
                num_pages += last + 1 - first
                if first == last:
                    pages.add(row.pages[first])
                else:
                    pages.update(row.pages[first : last + 1])
        if len(pages) != num_pages:
            raise PlanFault("two rows write one page, or a page table does not cover its row")
        if len(rows) > self.limits.max_rows or num_tokens > self.limits.max_step_tokens:
            raise PlanFault(f"{len(rows)} rows of {num_tokens} tokens are beyond {self.limits}")
        self._written_pages = pages
        self._check_slots(rows, slots)
        check_sources(fresh, slots, pages)
        check_targets(fresh)
        return fresh

    def _check_slots(self, rows: Sequence[StepRow], slots: set[object]) -> None:
        if not self._uses_slots:
            if slots - {NoSlot.NO_SLOT}:
                raise PlanFault("a row names a slot and the model has none")
        elif NoSlot.NO_SLOT in slots:
            raise PlanFault("a row has no slot")
        elif len(slots) != len(rows):
            raise PlanFault("two rows write one slot")

    def _prepare(self, row: StepRow) -> None:
        initial, memory = row.initial, self.device
        if isinstance(initial, StateImage):
            load_image(memory, row, initial)
        elif isinstance(row.slot, NoSlot):
            pass
        elif isinstance(initial, CopyOf):
            self._slots[row.slot] = self.memory_of(initial.place).slots[initial.slot]
        elif initial == "zeros":
            self._slots[row.slot] = ZEROS
        if row.tail_copy is not None:
            tail = row.tail_copy
            memory.copy_page(tail.target, self.memory_of(tail.place), tail.source)
        for copy in row.page_copies:
            memory.copy_page(copy.target, self.memory_of(copy.place), copy.source)

    def _absorb(self, step: DeviceStep, row: StepRow) -> RowOutcome:
        slot, pages, position = row.slot, row.pages, row.position
        uses_slots, uses_pages = self._uses_slots, self._uses_pages
        vocab_size = self.model.vocab_size
        cells, sums, tops, size = self._cells, self._sums, self._tops, self._page_size
        skipped = row.first_page * size
        before = state = self._slots[slot]
        if before == POISON:
            self.poison_reads.append(PoisonRead(step.step, row, "slot", slot))
        for token in row.tokens:
            if not 0 <= token < vocab_size:
                raise PlanFault(f"token {token} is not in the vocabulary of {vocab_size}")
            state = hash((state if uses_slots else before, token, position))
            if uses_pages:
                page, offset = pages[(position - skipped) // size], position % size
                place = page * size + offset
                cell = state & CELL_MASK
                sums[page] += cell - cells[place]
                cells[place] = cell
                if tops[page] <= offset:
                    tops[page] = offset + 1
            position += 1
        if uses_slots:
            self._slots[slot] = state
        if uses_pages:
            read = self._read(step, row, position)
            state = hash((state if uses_slots else before, read))
        sampling = row.sampling
        if row.scoring is not None:
            return draw_scored(state, row, vocab_size)
        return None if sampling is None else draw(state, sampling, vocab_size)

    def _read(self, step: DeviceStep, row: StepRow, end: int) -> tuple[int, ...]:
        """Sum up the cells at positions below ``end``, page by page, in the page table's order."""
        pages, size = row.pages, self._page_size
        end -= row.first_page * size
        number = row.position // size - row.first_page
        frozen = pages[:number]
        written = self._written_pages.intersection(frozen)
        if written and not written.issubset(self._pages_written(row)):
            raise PlanFault("a page is read by one row, written by another")
        last = (end - 1) // size
        full = frozen if last == number else pages[:last]
        read = (self._sum_below(pages[last], end - last * size), *map(self._sum_of, full))
        if max(read) >= POISON:
            for page, total in zip((pages[last], *full), read, strict=True):
                if total >= POISON:
                    self.poison_reads.append(PoisonRead(step.step, row, "page", page))
        return read

    def _sum_below(self, page: PageIndex, end: int) -> int:
        """Sum up the page's first ``end`` cells; at once where nothing lies beyond them."""
        size = self._page_size
        if self._tops[page] == end:
            return self._sums[page] - (size - end) * POISON
        return sum(self._cells[page * size : page * size + end])
