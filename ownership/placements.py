"""Where each row of a launched step reads and writes, as the device counts slots and pages."""

from typing import Literal

import attrs

from ownership.claims import ZEROED, ClaimRecord
from ownership.ids import NO_SLOT, NoSlot, PageIndex, Place, SlotIndex

__all__ = ["CopyFrom", "Placement", "TailCopy", "placement"]


@attrs.frozen
class CopyFrom:
    """The slot starts as a copy of this one, in ``Placement.source``."""

    slot: SlotIndex


@attrs.frozen
class TailCopy:
    """Page ``target`` starts as a copy of ``source``, a page of the base."""

    source: PageIndex
    target: PageIndex


Initial = CopyFrom | Literal["zeros", "kept"]


@attrs.define
class Placement:
    """Where one row of a launched step reads and writes; lent until the lease lands.

    Slots and pages are numbered as a device does it: from 0 in each place.
    """

    # Not frozen: one is made for each row of each step, and freezing it doubles what it costs.
    slot: SlotIndex | NoSlot
    initial: Initial
    """``"kept"`` also for a claim without a slot that starts from a base: nothing to copy."""
    position: int
    pages: list[PageIndex]
    """The claim's own page table, not a copy: it does not change while the claim is leased. For a
    claim in a file, that of its base."""
    tail_copy: TailCopy | None
    page_copies: tuple[TailCopy, ...] = ()
    """Whole pages to copy from another place, or from behind what was dropped; the tail is one."""
    place: Place = Place.DEVICE
    source: Place = Place.DEVICE
    """Where the base is, of which slot and pages are copied."""
    first_page: int = 0
    """Pages that were dropped before the first of ``pages``."""


def placement(record: ClaimRecord, page_size: int) -> Placement:
    """Tell one row of a launched step where it reads and writes."""
    position, table, base, slot = record.position, record.page_table, record.base, record.slot
    initial: Initial = "kept"
    tail: TailCopy | None = None
    if base is not None and base.pool is record.pool and base.first_page == record.first_page:
        if base.slot is not NO_SLOT:
            initial = CopyFrom(base.slot)
        if table and position % page_size:
            full = position // page_size - record.first_page
            tail = TailCopy(base.page_table[full], table[full])
    elif base is not None:
        return _moving(record, base, page_size)
    elif record.content is ZEROED:
        initial = "zeros"
    if record.pool.place is not Place.DEVICE:
        return _elsewhere(record, initial, tail)
    return Placement(slot, initial, position, table, tail, first_page=record.first_page)


def _elsewhere(record: ClaimRecord, initial: Initial, tail: TailCopy | None) -> Placement:
    """A claim that is copied, if at all, within host memory."""
    pool = record.pool
    slot = record.slot if record.slot is NO_SLOT else pool.local_slot(record.slot)
    if isinstance(initial, CopyFrom):
        initial = CopyFrom(pool.local_slot(initial.slot))
    if tail is not None:
        tail = TailCopy(*pool.local_pages((tail.source, tail.target)))
    pages = pool.local_pages(record.page_table)
    return Placement(
        slot,
        initial,
        record.position,
        pages,
        tail,
        place=pool.place,
        source=pool.place,
        first_page=record.first_page,
    )


def _moving(record: ClaimRecord, base: ClaimRecord, page_size: int) -> Placement:
    """A claim whose first step copies whole pages: out of another place, or behind a drop."""
    pool, there = record.pool, base.pool
    slot = record.slot if record.slot is NO_SLOT else pool.local_slot(record.slot)
    initial: Initial = "kept"
    if base.slot is not NO_SLOT:
        initial = CopyFrom(there.local_slot(base.slot))
    sources = there.local_pages(base.page_table)
    copies: tuple[TailCopy, ...] = ()
    pages = sources
    if pool.place is not Place.FILE:
        pages = pool.local_pages(record.page_table)
        end = -(-record.position // page_size) - record.first_page
        skipped = record.first_page - base.first_page
        copies = tuple(
            TailCopy(sources[at + skipped], pages[at])
            for at in range(record.shared_pages, end if pages else 0)
        )
    return Placement(
        slot,
        initial,
        record.position,
        pages,
        None,
        copies,
        pool.place,
        there.place,
        base.first_page if pool.place is Place.FILE else record.first_page,
    )
