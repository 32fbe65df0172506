"""Which slots and pages are in which place: all are numbered through, the device's first."""

from collections.abc import Iterable

import attrs

__all__ = ["DEVICE", "FILE", "HOST", "Places"]

DEVICE, HOST, FILE = "device", "host", "file"


@attrs.define(eq=False)
class Places:
    """The capacity of each place, by the opening of the log."""

    slots: int = 0
    """On the device; those of the host have the numbers after them."""
    pages: int = 0
    host_slots: int = 0
    host_pages: int = 0

    @property
    def has_host(self) -> bool:
        return self.host_slots + self.host_pages > 0

    def misplaced(
        self, place: str, slot: int | None, pages: Iterable[int]
    ) -> tuple[str, int] | None:
        """The first of a claim's slot and pages that is in another place; None: none is."""
        if place == FILE:
            held = [] if slot is None else [("slot", slot)]
            return next(iter(held + [("page", page) for page in pages]), None)
        if not self.has_host:
            return None
        if slot is not None and (slot < self.slots) != (place == DEVICE):
            return "slot", slot
        wrong = [page for page in pages if (page < self.pages) != (place == DEVICE)]
        return ("page", wrong[0]) if wrong else None
