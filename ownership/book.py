"""The one table: every slot, page, claim and lease of an engine, and how it is looked up.

Only the modules of this package see a :class:`Book`; everybody else has a port or the view. The
verbs are functions over it (``admission``, ``stepping``, ``endings``): checks first, then changes,
then the event, so that a verb that raises has changed nothing.

Validity is identity. ``live`` maps the ``id`` of each live handle to its claim; a handle that dies
is taken out by its weak reference before its ``id`` can be used again. So a lookup proves that the
caller holds the very object that was issued, and nothing that a handle says of itself is trusted.
"""

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import cast

import attrs

from ownership.claims import ClaimRecord, Holder, Step
from ownership.handles import BatchOwned
from ownership.ids import ClaimId, CustodianId, LeaseId, PageIndex, Place, SlotIndex
from ownership.observer import Observer
from ownership.pools import Pool, pools_of
from ownership.runs import RunTable
from ownership.values import Capacity

__all__ = ["Book", "LeaseRecord", "Violation"]

_VIOLATIONS_KEPT = 256


@attrs.frozen
class Violation:
    """One use of a handle that was refused, or one handle that was lost."""

    kind: str
    """Name of the error's class, or ``"lost"``."""
    message: str


@attrs.define(eq=False, weakref_slot=False)
class LeaseRecord:
    """A launched step: its handles are kept here, alive, until it lands."""

    step: Step
    claims: tuple[ClaimRecord, ...]
    handles: tuple[BatchOwned, ...]
    handle: weakref.ref[object] | None = None


@attrs.define(eq=False)
class Book:
    """All that the ledger knows. Not thread-safe: it belongs to the dispatcher's thread."""

    capacity: Capacity
    """Of the device's memory; its page size is that of every place."""
    host_capacity: Capacity | None = None
    track_freed: bool = False
    observer: Observer | None = None
    seq: int = attrs.field(init=False, default=0)
    """Number of the next event."""

    device: Pool = attrs.field(init=False)
    pools: dict[Place, Pool] = attrs.field(init=False)
    generations: list[int] = attrs.field(init=False)
    """By slot, those of the host included; empty when the model keeps no recurrent state."""
    runs: RunTable = attrs.field(init=False, factory=RunTable)

    claims: dict[ClaimId, ClaimRecord] = attrs.field(init=False, factory=dict[ClaimId, ClaimRecord])
    """Every claim that holds something, draining ones included."""
    live: dict[int, ClaimRecord] = attrs.field(init=False, factory=dict[int, ClaimRecord])
    leases: dict[LeaseId, LeaseRecord] = attrs.field(init=False, factory=dict[LeaseId, LeaseRecord])
    live_leases: dict[int, LeaseRecord] = attrs.field(init=False, factory=dict[int, LeaseRecord])
    names: dict[tuple[CustodianId, int], ClaimRecord] = attrs.field(
        init=False, factory=dict[tuple[CustodianId, int], ClaimRecord]
    )
    """States that can be a base, in the order in which they were committed."""
    moving: dict[ClaimId, ClaimRecord] = attrs.field(init=False, factory=dict[ClaimId, ClaimRecord])
    """Claims that have yet to copy out of a base in another place."""
    holders: weakref.WeakValueDictionary[CustodianId, Holder] = attrs.field(
        init=False, factory=weakref.WeakValueDictionary[CustodianId, Holder]
    )

    transitions: int = attrs.field(init=False, default=0)
    rollbacks: int = attrs.field(init=False, default=0)
    commits: int = attrs.field(init=False, default=0)
    admissions: int = attrs.field(init=False, default=0)
    closes: int = attrs.field(init=False, default=0)
    reclaimed: int = attrs.field(init=False, default=0)
    violations: int = attrs.field(init=False, default=0)
    last_violations: deque[Violation] = attrs.field(
        init=False, factory=lambda: deque[Violation](maxlen=_VIOLATIONS_KEPT)
    )
    draining: int = attrs.field(init=False, default=0)
    loads_late_pages: bool = attrs.field(init=False, default=False)
    """Whether a claim was ever to load a state without its first pages: rare, and then checked."""

    on_lost: Callable[[weakref.ref[object]], None] = attrs.field(init=False)
    """``note_lost``, bound once."""
    claim_numbers: Iterator[ClaimId] = attrs.field(
        init=False, factory=lambda: cast("Iterator[ClaimId]", itertools.count())
    )
    lease_numbers: Iterator[LeaseId] = attrs.field(
        init=False, factory=lambda: cast("Iterator[LeaseId]", itertools.count())
    )

    def __attrs_post_init__(self) -> None:
        self.pools = pools_of(self, self.capacity, self.host_capacity, track_freed=self.track_freed)
        self.device = self.pools[Place.DEVICE]
        self.generations = [0] * sum(pool.num_slots for pool in self.pools.values())
        self.on_lost = self.note_lost

    @property
    def free_slots(self) -> list[SlotIndex]:
        """Slots on the device that nobody has."""
        return self.device.free_slots

    @property
    def free_pages(self) -> list[PageIndex]:
        """Pages on the device that nobody has."""
        return self.device.free_pages

    def holder(self, custodian: CustodianId) -> Holder:
        """Return the one counter of this custodian's states.

        A new one goes on above every name that was ever given: who still names a state of a
        former holder of this name (a fork of a closed session, say) must never find another.
        """
        holder = self.holders.get(custodian)
        if holder is None:
            given = self.commits + self.admissions
            holder = self.holders[custodian] = Holder(custodian, given)
        return holder

    def make_lease_live(self, entry: LeaseRecord, handle: object) -> None:
        """From here on, holding ``handle`` is what may land the step."""
        self.live_leases[id(handle)] = entry
        entry.handle = weakref.ref(handle, self.on_lost)

    def spend(self, record: ClaimRecord, fate: str) -> None:
        """From here on, the live handle is worth nothing."""
        handle = record.handle and record.handle()
        if handle is not None:
            del self.live[id(handle)]
        record.handle = None
        record.fate = fate

    def note_lost(self, ref: weakref.ref[object]) -> None:
        """A live handle was garbage collected: recorded, and nothing is freed.

        May run at any moment, within another verb or on another thread. It only takes the dead
        ``id`` out before it can be used again, and takes a note.
        """
        for key, record in list(self.live.items()):
            if record.handle is ref:
                del self.live[key]
                kind, custodian = record.kind.value, record.custodian
                self._note_lost(f"{record.place()} of {kind}, in custody of {custodian},")
        for key, lease in list(self.live_leases.items()):
            if lease.handle is ref:
                del self.live_leases[key]
                self._note_lost(f"lease {lease.step.lease} (step {lease.step.number})")

    def _note_lost(self, what: str) -> None:
        self.note_violation("lost", f"the live handle of {what} was garbage collected")

    def note_violation(self, kind: str, message: str) -> None:
        """Count it and keep its text."""
        self.violations += 1
        self.last_violations.append(Violation(kind, message))
