"""The fake device's transfers: copies to host memory, and states read into images.

A transfer may read only what holds something, may write a slot or a page of the host but once, and
must read a slot and pages of one and the same state: the last cell is a part of the slot's hash.
"""

from collections.abc import Sequence

import attrs

from adapters.fake_device.arenas import CELL_MASK, FakeArenas, PoisonRead
from adapters.fake_device.images import make_image, poisoned_page
from adapters.fake_device.memory import POISON
from adapters.fake_device.plan_checks import PlanFault
from kernel.state_image import StateImage
from kernel.step import CopyOut, ReadOut, TransferStep
from ownership import NoSlot, PageIndex, Place, SlotIndex

__all__ = ["FakeTransfers"]


@attrs.define(eq=False)
class FakeTransfers:
    """Runs transfers over the memory of one device."""

    arenas: FakeArenas
    _newest_step: int = attrs.field(default=-1, init=False)

    def run(self, step: TransferStep) -> tuple[StateImage | None, ...]:
        """Poison, then copy and read row by row; an image for each row that is read out.

        Raises:
            PlanFault: the plan can't be right; what its rows write is undefined.
        """
        self.poison_freed(step)
        self._check(step)
        images: list[StateImage | None] = []
        for row in step.rows:
            if isinstance(row, CopyOut):
                self._copy(step.step, row)
                images.append(None)
            else:
                images.append(self._read(step.step, row))
        return tuple(images)

    def poison_freed(self, step: TransferStep) -> None:
        """Poison what was given back of the host, unless a later transfer has overtaken it."""
        if step.step >= self._newest_step:
            self._newest_step = step.step
            self.arenas.host.poison(step.freed_slots, step.freed_pages)

    def poison_written(self, step: TransferStep) -> None:
        """Make undefined what a failed transfer may have written."""
        slots, pages = _targets(step)
        self.arenas.host.poison(slots, pages)

    def _check(self, step: TransferStep) -> None:
        slots, pages = _targets(step)
        if pages and not self.arenas.model.uses_pages:
            raise PlanFault("a transfer copies pages and the model has none")
        if len(set(slots)) != len(slots):
            raise PlanFault("two states are copied into one slot of the host")
        if len(set(pages)) != len(pages):
            raise PlanFault("two pages are copied into one of the host")
        host = self.arenas.host
        beyond: list[int] = [slot for slot in slots if slot not in host.slots]
        beyond += [page for page in pages if not 0 <= page < len(host.tops)]
        if beyond:
            raise PlanFault(f"{beyond} are no slots or pages of the host")
        for row in step.rows:
            if not isinstance(row, ReadOut) or row.place is not Place.HOST:
                continue
            if row.slot in slots or not set(pages).isdisjoint(row.pages):
                raise PlanFault("a state is read out by one row, written by another")

    def _copy(self, step: int, row: CopyOut) -> None:
        device, host = self.arenas.device, self.arenas.host
        if isinstance(row.source, NoSlot) != isinstance(row.target, NoSlot):
            raise PlanFault("a slot is copied from or to none")
        if not isinstance(row.target, NoSlot):
            state = device.slots[row.source]
            if state == POISON:
                self.arenas.poison_reads.append(PoisonRead(step, row, "slot", row.source))
            host.slots[row.target] = state
        for copy in row.pages:
            if not device.tops[copy.source]:
                self.arenas.poison_reads.append(PoisonRead(step, row, "page", copy.source))
            host.copy_page(copy.target, device, copy.source)

    def _read(self, step: int, row: ReadOut) -> StateImage:
        arenas = self.arenas
        memory = arenas.memory_of(row.place)
        first = row.first_page * memory.page_size
        state = memory.slots[row.slot]
        if state == POISON:
            arenas.poison_reads.append(PoisonRead(step, row, "slot", row.slot))
        cells: list[int] = []
        if arenas.model.uses_pages:
            cells = memory.read_cells(row.pages, row.position - first)
            self._check_cells(row, cells, first)
            page = poisoned_page(memory, row.pages, cells)
            if page is not None:
                arenas.poison_reads.append(PoisonRead(step, row, "page", page))
            elif arenas.model.uses_slots and cells[-1] != state & CELL_MASK:
                raise PlanFault(f"slot {row.slot} and pages {row.pages} are of different states")
        return make_image(
            arenas.kinds, state, cells, position=row.position, first_position=first if cells else 0
        )

    @staticmethod
    def _check_cells(row: ReadOut, cells: Sequence[int], first: int) -> None:
        if not cells or len(cells) != row.position - first:
            raise PlanFault(f"{len(row.pages)} pages from {first} on don't cover {row.position}")


def _targets(step: TransferStep) -> tuple[list[SlotIndex], list[PageIndex]]:
    """Slots and pages of the host that a transfer writes."""
    copies = [row for row in step.rows if isinstance(row, CopyOut)]
    slots = [row.target for row in copies if not isinstance(row.target, NoSlot)]
    return slots, [copy.target for row in copies for copy in row.pages]
