"""What happens to slots and pages before a step is computed: poison, load, zero, copy, clear."""

from collections.abc import Mapping, Sequence

import attrs

from adapters.image_check import ArrayKind, image_fault
from adapters.ragged.arenas import Arenas, StateArena
from adapters.ragged.images import load_image
from kernel.state_image import StateImage
from kernel.step import CopyOf, DeviceStep, PageCopy, RowFault, StepRow
from ownership import NoSlot, Place

__all__ = [
    "NewestStep",
    "StepRefused",
    "check_rows",
    "load_images",
    "poison_freed",
    "prepare_pages",
    "prepare_slots",
]


@attrs.define(eq=False)
class NewestStep:
    """The latest step of a device, whichever of its workers had it."""

    number: int = -1

    def reached(self, step: int) -> bool:
        """Whether this is the latest so far.

        One that a later one has overtaken, while its worker hung, would poison what others own by
        now.
        """
        if step < self.number:
            return False
        self.number = step
        return True


class StepRefused(RuntimeError):
    """The step contradicts itself; nothing was touched."""


def check_rows(rows: Sequence[StepRow]) -> None:
    """Refuse a step that would write one slot from two rows, or has nothing to do for one."""
    slots = [row.slot for row in rows if not isinstance(row.slot, NoSlot)]
    if len(set(slots)) != len(slots):
        raise StepRefused(f"two rows of one step name the same slot: {sorted(slots)}")
    if not all(row.tokens for row in rows):
        for row in rows:
            if not row.tokens and not isinstance(row.initial, StateImage):
                raise StepRefused("a row has no tokens, and no image to load")


def poison_freed(arenas: Arenas, step: DeviceStep) -> None:
    """Fill what was given back with NaN, so that a stale read shows."""
    if step.freed_slots:
        arenas.states.fill(step.freed_slots, float("nan"))
    if step.freed_pages:
        arenas.pages.fill(step.freed_pages, float("nan"))


def load_images(
    arenas: Arenas, kinds: Mapping[str, ArrayKind], rows: Sequence[StepRow]
) -> tuple[Sequence[StepRow], Mapping[int, RowFault]]:
    """Load the images that rows start from; all are looked at before anything is written.

    Returns:
        The rows to prepare and to compute, each at its place; a row whose image isn't one of this
        model's has nothing left to do, and a fault by its place.
    """
    loads = [(at, row) for at, row in enumerate(rows) if isinstance(row.initial, StateImage)]
    if not loads:
        return rows, {}
    left, faults = list(rows), dict[int, RowFault]()
    size = arenas.pages.page_size
    for at, row in loads:
        if isinstance(row.initial, StateImage):
            why = image_fault(row, row.initial, kinds, size)
            if why is not None:
                faults[at] = RowFault(why, is_undefined=True)
    for at, row in loads:
        if at in faults:
            left[at] = attrs.evolve(row, initial="kept", tokens=(), tail_copy=None, page_copies=())
        elif isinstance(row.initial, StateImage):
            load_image(arenas, kinds, row, row.initial)
    return left, faults


def prepare_slots(arenas: Arenas, rows: Sequence[StepRow]) -> None:
    """Zero and copy slots as the rows ask; a copy's source is never a row's own slot."""
    state: StateArena = arenas.states
    taken = [(row.slot, row.initial) for row in rows if not isinstance(row.slot, NoSlot)]
    zeroed = [slot for slot, initial in taken if initial == "zeros"]
    if zeroed:
        state.fill(zeroed, 0.0)
    for slot, initial in taken:
        if isinstance(initial, CopyOf):
            state.copy(initial.slot, slot, arenas.at(initial.place).states)


def prepare_pages(arenas: Arenas, rows: Sequence[StepRow]) -> None:
    """Copy pages, and clear those that this step begins (``attention`` says why)."""
    pages = arenas.pages
    size = pages.page_size
    begun: list[int] = []
    for row in rows:
        if row.tail_copy is not None:
            _copy(arenas, (row.tail_copy,))
        if row.page_copies:
            _copy(arenas, row.page_copies)
        start = row.position - row.first_page * size
        begun.extend(row.pages[-(-start // size) : -(-(start + len(row.tokens)) // size)])
    if begun:
        pages.fill(begun, 0.0)


def _copy(arenas: Arenas, copies: Sequence[PageCopy]) -> None:
    by_place: dict[Place, list[tuple[int, int]]] = {}
    for copy in copies:
        by_place.setdefault(copy.place, []).append((copy.source, copy.target))
    for place, pairs in by_place.items():
        arenas.pages.copy_all(pairs, arenas.at(place).pages)
