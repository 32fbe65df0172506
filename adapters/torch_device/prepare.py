"""What happens to slots and pages before a step is computed: poison, zero, copy, clear."""

from collections.abc import Sequence

from adapters.ragged.arenas import Arenas, PageArena, StateArena
from kernel.step import CopyOf, DeviceStep, StepRow
from ownership import NoSlot

__all__ = ["StepRefused", "check_rows", "poison_freed", "prepare_pages", "prepare_slots"]


class StepRefused(RuntimeError):
    """The step contradicts itself; nothing was touched."""


def check_rows(rows: Sequence[StepRow]) -> None:
    """Refuse a step that would write one slot from two rows."""
    slots = [row.slot for row in rows if not isinstance(row.slot, NoSlot)]
    if len(set(slots)) != len(slots):
        raise StepRefused(f"two rows of one step name the same slot: {sorted(slots)}")


def poison_freed(arenas: Arenas, step: DeviceStep) -> None:
    """Fill what was given back with NaN, so that a stale read shows."""
    if step.freed_slots:
        arenas.states.fill(step.freed_slots, float("nan"))
    if step.freed_pages:
        arenas.pages.fill(step.freed_pages, float("nan"))


def prepare_slots(state: StateArena, rows: Sequence[StepRow]) -> None:
    """Zero and copy slots as the rows ask; a copy's source is never a row's own slot."""
    taken = [(row.slot, row.initial) for row in rows if not isinstance(row.slot, NoSlot)]
    zeroed = [slot for slot, initial in taken if initial == "zeros"]
    if zeroed:
        state.fill(zeroed, 0.0)
    for slot, initial in taken:
        if isinstance(initial, CopyOf):
            state.copy(initial.slot, slot)


def prepare_pages(pages: PageArena, rows: Sequence[StepRow]) -> None:
    """Copy tails, and clear the pages that this step begins (``attention`` says why)."""
    size = pages.page_size
    begun: list[int] = []
    for row in rows:
        if row.tail_copy is not None:
            pages.copy(row.tail_copy.source, row.tail_copy.target)
        end = row.position + len(row.tokens)
        begun.extend(row.pages[-(-row.position // size) : -(-end // size)])
    if begun:
        pages.fill(begun, 0.0)
