"""The fake device's memory: one running hash per slot, one cell per token position of each page.

A slot's hash is folded in place by each absorbed token, with its position. A cell holds what that
token left behind. The token that a row draws is a function of its slot's hash and of the cells
that it reads through its page table: nothing else, above all not the plan's history. So an
aliased slot or page, a missed copy, a stale page table or a wrong position changes tokens, as it
would on real hardware, where such bugs show up as text that is a little odd.

Memory that was never written or was given back is poison: reading it changes tokens and is noted
in ``poison_reads``. ``hash`` of a tuple of ints is not salted, so runs are alike in every process
of one CPython version.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import attrs

from adapters.fake_sampling import draw_ruled, score_prompt
from kernel.step import (
    CopyOf,
    DeviceLimits,
    DeviceStep,
    ModelSpec,
    RowOutcome,
    RowSampling,
    RowScores,
    StepRow,
)
from ownership import NoSlot, PageIndex, SlotIndex

__all__ = ["FakeArenas", "PlanFault", "PoisonRead"]

_ZEROS = 0x7E0
"""Hash of a cleared slot."""
_NO_SLOT = 0xA77
"""Stands for the slot where the model has none; each cell then depends on its own token alone."""
_CELL_MASK = (1 << 32) - 1
_POISON = 1 << 50
"""In a slot or a cell. More than 2**18 cells together, so a page's sum tells whether it is there.
"""


class PlanFault(Exception):
    """The step's plan can't be right: two writers, a reader of what is written, out of bounds."""


@attrs.frozen
class PoisonRead:
    """A row read memory that holds nothing."""

    step: int
    row: StepRow
    what: Literal["slot", "page"]
    index: SlotIndex | NoSlot | PageIndex


@attrs.define(eq=False)
class FakeArenas:
    """Slots and pages of one device, and the arithmetic of a step over them."""

    model: ModelSpec
    limits: DeviceLimits
    _newest_step: int = attrs.field(default=-1, init=False)
    poison_reads: list[PoisonRead] = attrs.field(factory=list[PoisonRead])
    _slots: dict[SlotIndex | NoSlot, int] = attrs.field(init=False)
    """By slot: the running hash, or poison; a model without slots has one constant."""
    _cells: list[int] = attrs.field(init=False)
    """By page, then position in the page: what the token left behind, or poison."""
    _sums: list[int] = attrs.field(init=False)
    """By page: the sum of its cells, kept up by each write."""
    _tops: list[int] = attrs.field(init=False)
    """By page: all cells from this one on are poison."""
    _written_pages: set[int] = attrs.field(factory=set[int], init=False)
    """Pages that a row of the step that runs writes into."""
    _sum_of: Callable[[int], int] = attrs.field(init=False)
    _uses_slots: bool = attrs.field(init=False)
    _uses_pages: bool = attrs.field(init=False)
    _page_size: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._uses_slots, self._uses_pages = self.model.uses_slots, self.model.uses_pages
        self._page_size = size = self.limits.page_size
        self._slots = {SlotIndex(slot): _POISON for slot in range(self.limits.num_slots)}
        if not self._uses_slots:
            self._slots[NoSlot.NO_SLOT] = _NO_SLOT
        self._cells = [_POISON] * (self.limits.num_pages * size)
        self._sums = [_POISON * size] * self.limits.num_pages
        self._tops = [0] * self.limits.num_pages
        self._sum_of = self._sums.__getitem__

    def run(self, step: DeviceStep) -> tuple[RowOutcome, ...]:
        """Poison, zero and copy, absorb, draw; returns the outcome of each row.

        Raises:
            PlanFault: the plan can't be right; what its rows write is undefined.
        """
        self.poison_freed(step)
        rows = step.rows
        for row in self._check(rows):
            self._prepare(row)
        return tuple([self._absorb(step, row) for row in rows])

    def poison_freed(self, step: DeviceStep) -> None:
        """Poison what was given back before this step, unless a later step has overtaken it."""
        if step.step >= self._newest_step:
            self._newest_step = step.step
            self.poison(step.freed_slots, step.freed_pages)

    def poison(self, slots: Sequence[SlotIndex], pages: Sequence[PageIndex]) -> None:
        """Make the content of slots and pages unusable."""
        size = self._page_size
        for slot in slots:
            self._slots[slot] = _POISON
        for page in pages:
            self._cells[page * size : (page + 1) * size] = [_POISON] * size
            self._sums[page] = _POISON * size
            self._tops[page] = 0

    def poison_written(self, step: DeviceStep) -> None:
        """Make undefined what a failed step may have written: its rows' slots and last pages."""
        size = self._page_size
        for row in step.rows:
            if not isinstance(row.slot, NoSlot):
                self.poison((row.slot,), ())
            end = row.position + len(row.tokens)
            if self._uses_pages:
                self.poison((), row.pages[row.position // size : -(-end // size)])

    def _check(self, rows: Sequence[StepRow]) -> list[StepRow]:
        """Refuse two writers and overlong steps; returns the rows that need zeros or copies."""
        uses_pages, size = self._uses_pages, self._page_size
        fresh: list[StepRow] = []
        slots: set[object] = set()
        pages: set[int] = set()
        num_tokens = num_pages = 0
        for row in rows:
            count = len(row.tokens)
            if not count:
                raise PlanFault("a row has no tokens")
            num_tokens += count
            slots.add(row.slot)
            if row.initial != "kept" or row.tail_copy is not None:
                fresh.append(row)
            if uses_pages:
                first, last = row.position // size, (row.position + count - 1) // size
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
        self._check_sources(fresh, slots)
        return fresh

    def _check_slots(self, rows: Sequence[StepRow], slots: set[object]) -> None:
        if not self._uses_slots:
            if slots - {NoSlot.NO_SLOT}:
                raise PlanFault("a row names a slot and the model has none")
        elif NoSlot.NO_SLOT in slots:
            raise PlanFault("a row has no slot")
        elif len(slots) != len(rows):
            raise PlanFault("two rows write one slot")

    def _check_sources(self, fresh: Sequence[StepRow], slots: set[object]) -> None:
        for row in fresh:
            if isinstance(row.initial, CopyOf) and row.initial.slot in slots:
                raise PlanFault(f"slot {row.initial.slot} is copied by one row, written by another")
            if row.tail_copy is not None and row.tail_copy.source in self._written_pages:
                raise PlanFault("the source of a tail copy is written by a row")

    def _prepare(self, row: StepRow) -> None:
        if not isinstance(row.slot, NoSlot):
            if isinstance(row.initial, CopyOf):
                self._slots[row.slot] = self._slots[row.initial.slot]
            elif row.initial == "zeros":
                self._slots[row.slot] = _ZEROS
        if row.tail_copy is not None:
            source, target = row.tail_copy.source, row.tail_copy.target
            size = self.limits.page_size
            self._cells[target * size : (target + 1) * size] = self._cells[
                source * size : (source + 1) * size
            ]
            self._sums[target] = self._sums[source]
            self._tops[target] = self._tops[source]

    def _absorb(self, step: DeviceStep, row: StepRow) -> RowOutcome:
        slot, pages, position = row.slot, row.pages, row.position
        uses_slots, uses_pages = self._uses_slots, self._uses_pages
        vocab_size = self.model.vocab_size
        cells, sums, tops, size = self._cells, self._sums, self._tops, self._page_size
        before = state = self._slots[slot]
        if before == _POISON:
            self.poison_reads.append(PoisonRead(step.step, row, "slot", slot))
        for token in row.tokens:
            if not 0 <= token < vocab_size:
                raise PlanFault(f"token {token} is not in the vocabulary of {vocab_size}")
            state = hash((state if uses_slots else before, token, position))
            if uses_pages:
                page, offset = pages[position // size], position % size
                place = page * size + offset
                cell = state & _CELL_MASK
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
            return _scored(state, row, vocab_size)
        return None if sampling is None else _draw(state, sampling, vocab_size)

    def _read(self, step: DeviceStep, row: StepRow, end: int) -> tuple[int, ...]:
        """Sum up the cells at positions below ``end``, page by page, in the page table's order."""
        pages, size = row.pages, self._page_size
        number = row.position // size
        frozen = pages[:number]
        if not self._written_pages.isdisjoint(frozen):
            raise PlanFault("a page is read by one row, written by another")
        last = (end - 1) // size
        full = frozen if last == number else pages[:last]
        read = (self._sum_below(pages[last], end - last * size), *map(self._sum_of, full))
        if max(read) >= _POISON:
            for page, total in zip((pages[last], *full), read, strict=True):
                if total >= _POISON:
                    self.poison_reads.append(PoisonRead(step.step, row, "page", page))
        return read

    def _sum_below(self, page: PageIndex, end: int) -> int:
        """Sum up the page's first ``end`` cells; at once where nothing lies beyond them."""
        size = self._page_size
        if self._tops[page] == end:
            return self._sums[page] - (size - end) * _POISON
        return sum(self._cells[page * size : page * size + end])


def _scored(logits: int, row: StepRow, vocab_size: int) -> RowOutcome:
    """What a row comes to whose prompt's log-probabilities are asked for."""
    outcome = None if row.sampling is None else _draw(logits, row.sampling, vocab_size)
    if row.scoring is None:
        return outcome
    scores = score_prompt(row, row.scoring, vocab_size)
    if outcome is None:
        return scores
    if isinstance(outcome, RowScores):
        return attrs.evolve(outcome, prompt=scores.prompt)
    return attrs.evolve(scores, token=outcome) if isinstance(outcome, int) else outcome


def _draw(logits: int, sampling: RowSampling, vocab_size: int) -> RowOutcome:
    """Draw a token; ``logits`` stands for the whole distribution.

    Candidates in order of likelihood are a hash of (logits, rank). Greedy takes the first that is
    not banned; else the rank is a hash of (key, index) among the top k.
    """
    if sampling.rules is not None:
        return draw_ruled(logits, sampling, sampling.rules, vocab_size)
    rank = 0
    if sampling.temperature:
        kept = min(sampling.top_k or vocab_size, vocab_size)
        kept = max(1, int(kept * sampling.top_p))
        rank = hash((sampling.key, sampling.index)) % kept
    token = hash((logits, rank)) % vocab_size
    if sampling.banned:
        if len(set(sampling.banned)) >= vocab_size:
            raise PlanFault("every token is banned")
        while token in sampling.banned:
            rank += vocab_size
            token = hash((logits, rank)) % vocab_size
    return token
