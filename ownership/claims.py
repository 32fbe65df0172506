"""What the ledger keeps of a claim; the handle that stands for it knows nothing of all this."""

import enum
import sys
import weakref
from typing import Final

import attrs

from ownership.ids import (
    DEVICE,
    NO_SLOT,
    ClaimId,
    CustodianId,
    LeaseId,
    NoSlot,
    PageIndex,
    Place,
    SlotIndex,
)
from ownership.pools import Pool
from ownership.runs import Run
from ownership.values import BaseName

__all__ = [
    "BATCH",
    "CACHE",
    "COPY",
    "DRAINING",
    "ENDED",
    "NO_LIMIT",
    "SESSION",
    "TRAIL_LENGTH",
    "UNDEFINED",
    "VALID",
    "ZEROED",
    "ClaimRecord",
    "Content",
    "Holder",
    "Kind",
    "Move",
    "Step",
]

TRAIL_LENGTH: Final = 8
"""A claim remembers at least half as many of its last moves, and never more."""

NO_LIMIT: Final = sys.maxsize
"""Positions covered by the pages of a claim that needs none."""


Move = tuple[int, CustodianId, CustodianId, str]
"""A change of custody: transition number, from, to, and the static site that asked for it."""


class Kind(enum.Enum):
    """Who owns a claim."""

    BATCH = "batch"
    SESSION = "session"
    CACHE = "cache"
    DRAINING = "draining"
    """Nobody: closed while pinned, readable by the copies under way, free at the last unpin."""
    ENDED = "ended"


BATCH: Final = Kind.BATCH
SESSION: Final = Kind.SESSION
CACHE: Final = Kind.CACHE
DRAINING: Final = Kind.DRAINING
ENDED: Final = Kind.ENDED
# A member looked up on its class costs as much as a call; a module's constant costs nothing.


class Content(enum.Enum):
    """What a claim's slot and tail hold; none of these is written as ``None``, -1 or 0."""

    ZEROS = "zeros"
    """To be cleared by the first step."""
    COPY = "copy of base"
    """To be copied from the base by the first step."""
    VALID = "valid"
    """The state at the claim's position."""
    UNDEFINED = "undefined"
    """A step failed half-way, or its base was read into a file: may only be rolled back."""


ZEROED: Final = Content.ZEROS
COPY: Final = Content.COPY
VALID: Final = Content.VALID
UNDEFINED: Final = Content.UNDEFINED


@attrs.define(eq=False)
class Holder:
    """Counts the states that a custodian has committed or admitted.

    Alive as long as a port or a named state of that custodian is. Its successor begins above all
    names that were given by then, so no name is ever given twice.
    """

    custodian: CustodianId
    version: int = 0


@attrs.define(eq=False, weakref_slot=False)
class Step:
    """A launched step, as the claims in it know it."""

    lease: LeaseId
    number: int
    quarantined: bool = False


@attrs.define(eq=False, weakref_slot=False)
class ClaimRecord:
    """One claim: at most one slot, the pages taken since its base, and the tip of a shared run."""

    number: ClaimId
    pool: Pool
    """The place where it lives; never changes."""
    custodian: CustodianId
    turn: str
    slot: SlotIndex | NoSlot
    generation: int
    """Counts the handles that this slot (without one: this claim) has had."""
    exclusive: list[PageIndex]
    """Pages that steps of this claim may write, in order of position, after those of ``tip``."""
    page_table: list[PageIndex]
    """All pages in order of position: the chain of ``tip``, then ``exclusive``."""
    covered: int
    """Positions that ``page_table`` covers, those before ``first_page`` included."""
    next_full: int
    """Position at which a landing has to freeze pages again."""
    trail: list[Move]
    """The last moves."""
    first_page: int = 0
    """Pages before this one were dropped; ``page_table`` begins with it."""
    position: int = 0
    """Tokens that the state has absorbed; changes only when a lease lands."""
    content: Content = ZEROED
    tip: Run | None = None
    base: "ClaimRecord | None" = None
    """The base that is pinned until the first step has landed."""
    origin: BaseName | None = None
    """The state at rest that this one started from, itself or by way of other working claims. By
    name, so that it is still the same one after it has moved to another place."""
    kind: Kind = BATCH
    pins: int = 0
    """Working claims that have yet to copy out of this one."""
    step: Step | None = None
    """The step that it is in."""
    name: BaseName | None = None
    """What a turn may ask for as its base; kept after the end, for messages."""
    holder: Holder | None = None
    """Keeps the count of versions alive as long as this claim can be asked for by its name."""
    fate: str = ""
    """The verb that spent the last handle."""
    handle: weakref.ref[object] | None = None
    """The live handle; None when nobody owns the claim."""

    @property
    def ledger(self) -> object:
        """The ledger that made it, by identity."""
        return self.pool.ledger

    def place(self) -> str:
        """Name the claim for an error."""
        where = "" if self.pool.place is Place.DEVICE else f"{self.pool.place.value} "
        if self.slot is NO_SLOT:
            return f"{where}claim {self.number} (no slot, generation {self.generation})"
        return f"{where}slot {self.slot} (generation {self.generation})"

    @property
    def shared_pages(self) -> int:
        """Pages of its table that are frozen."""
        return len(self.page_table) - len(self.exclusive)

    def copies_pages_of(self, base: "ClaimRecord") -> bool:
        """Whether its first step copies whole pages of its base, instead of sharing them."""
        return self.pool is not base.pool or self.first_page != base.first_page

    def is_leased(self) -> bool:
        """Whether the device has it."""
        return self.custodian == DEVICE
