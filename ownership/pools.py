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

    ledger: object
    """Whose it is, by identity."""
    place: Place
    num_slots: int
    num_pages: int
    page_size: int
    first_slot: int
    first_page: int
    has_slots: bool
    """Whether a claim here takes a slot, though all may be taken, and none there at all."""
    has_pages: bool
    freed: Freed | None
    at_rest: int = attrs.field(init=False, default=0)
    """Sessions' states here."""
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


def pools_of(
    ledger: object, device: Capacity, host: Capacity | None, *, track_freed: bool
) -> dict[Place, Pool]:
    """Lay the places out one after another."""

    def pool(place: Place, capacity: Capacity | None, after: Pool | None) -> Pool:
        is_memory = place is not Place.FILE
        return Pool(
            ledger,
            place,
            capacity.slots if capacity else 0,
            capacity.pages if capacity else 0,
            device.page_size,
            after.slots.stop if after else 0,
            after.pages.stop if after else 0,
            is_memory and device.slots > 0,
            is_memory and device.pages > 0,
            Freed() if track_freed and is_memory else None,
        )

    on_device = pool(Place.DEVICE, device, None)
    in_host = pool(Place.HOST, host, on_device)
    in_files = pool(Place.FILE, None, in_host)
    return {one.place: one for one in (on_device, in_host, in_files)}
