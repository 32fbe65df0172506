"""Names of slots, pages, places and custodians: one type each, and no integer that means none."""

import enum
from typing import Final, NewType

__all__ = [
    "DEVICE",
    "NO_SLOT",
    "ClaimId",
    "CustodianId",
    "LeaseId",
    "NoSlot",
    "PageIndex",
    "Place",
    "RunId",
    "SlotIndex",
]

SlotIndex = NewType("SlotIndex", int)
"""One row of every recurrent-state tensor: ``0 <= slot < Capacity.slots``."""

PageIndex = NewType("PageIndex", int)
"""A fixed run of token positions of every key/value cache: ``0 <= page < Capacity.pages``."""

ClaimId = NewType("ClaimId", int)
"""Numbers a claim for ever: kept across commit and admit, never used again in a ledger."""

LeaseId = NewType("LeaseId", int)
"""Numbers a launched step for ever."""

RunId = NewType("RunId", int)
"""Numbers a run of frozen pages for ever."""

CustodianId = NewType("CustodianId", str)
"""Who holds a handle right now: an actor, a mailbox, or the device."""


class Place(enum.Enum):
    """Where a claim lives: a value, and no part of who owns it."""

    DEVICE = "device"
    """Memory that steps compute in."""
    HOST = "host"
    """Memory that steps only copy to and from."""
    FILE = "file"
    """Nowhere in the ledger: a claim there takes no slot and no page. All that it holds is the pin
    on its base, while that is read out; a file is neither owned nor freed."""


class NoSlot(enum.Enum):
    """The type of :data:`NO_SLOT`."""

    NO_SLOT = "no slot"


NO_SLOT: Final = NoSlot.NO_SLOT
"""What stands in place of a slot when the model keeps no recurrent state."""

DEVICE: Final = CustodianId("device")
"""The custodian of every claim of a launched step; no port can be bound to it."""
