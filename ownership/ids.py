"""Names of slots, pages, claims and custodians: one type each, and no integer that means none."""

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


class NoSlot(enum.Enum):
    """The type of :data:`NO_SLOT`."""

    NO_SLOT = "no slot"


NO_SLOT: Final = NoSlot.NO_SLOT
"""What stands in place of a slot when the model keeps no recurrent state."""

DEVICE: Final = CustodianId("device")
"""The custodian of every claim of a launched step; no port can be bound to it."""
