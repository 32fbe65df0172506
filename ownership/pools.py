"""What there is to own in each place: its free lists, and what was given back since last asked.

Slots and pages are numbered through all places, device first, so that a number names one thing
for ever and every table of the ledger stays one table. Devices count from 0 in each place: the
view and ``drain`` convert.
"""

from collections.abc import Iterable, Sequence

import attrs

from ownership.ids import PageIndex, Place, SlotIndex
from ownership.values import Capacity

__all__ = ["Freed", "Pool", "pools_of"]


@attrs.define(eq=False, weakref_slot=False)
class Freed:
    """What was given back since it was last asked for; bounded by the capacity."""

    slots: dict[SlotIndex, None] = attrs.field(init=False, factory=dict[SlotIndex, None])
    pages: dict[PageIndex, None] = attrs.field(init=False, factory=dict[PageIndex, None])


@attrs.define(eq=False, weakref_slot=False)
class Pool:
    """The slots and pages of one place."""

    place: Place
    num_slots: int
    num_pages: int
    first_slot: int
    first_page: int
    freed: Freed | None
    free_slots: list[SlotIndex] = attrs.field(init=False)
    free_pages: list[PageIndex] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # Given out from the end: what was given back last is used first, which is warm in the
        # cache and shows a stale user soonest.
        self.free_slots = [SlotIndex(slot) for slot in reversed(self.slots)]
        self.free_pages = [PageIndex(page) for page in reversed(self.pages)]

    @property
    def slots(self) -> range:
        """Every slot of this place."""
        return range(self.first_slot, self.first_slot + self.num_slots)

    @property
    def pages(self) -> range:
        """Every page of this place."""
        return range(self.first_page, self.first_page + self.num_pages)

    def give_back_pages(self, pages: Sequence[PageIndex]) -> None:
        """Put pages that nobody has any more on the free list."""
        self.free_pages.extend(pages)
        if self.freed is not None:
            self.freed.pages.update(dict.fromkeys(pages))

    def local_slot(self, slot: SlotIndex) -> SlotIndex:
        """The slot as a device counts it."""
        return SlotIndex(slot - self.first_slot)

    def local_pages(self, pages: Iterable[PageIndex]) -> list[PageIndex]:
        """The pages as a device counts them."""
        first = self.first_page
        return [PageIndex(page - first) for page in pages]


def pools_of(device: Capacity, host: Capacity | None, *, track_freed: bool) -> dict[Place, Pool]:
    """Lay the places out one after another."""

    def freed() -> Freed | None:
        return Freed() if track_freed else None

    pools = {Place.DEVICE: Pool(Place.DEVICE, device.slots, device.pages, 0, 0, freed())}
    slots, pages = (0, 0) if host is None else (host.slots, host.pages)
    pools[Place.HOST] = Pool(Place.HOST, slots, pages, device.slots, device.pages, freed())
    end = device.slots + slots, device.pages + pages
    pools[Place.FILE] = Pool(Place.FILE, 0, 0, *end, None)
    return pools
