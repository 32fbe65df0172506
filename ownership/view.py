"""The ledger, read only: what planning, health and tests may know. Every answer is a value."""

from collections.abc import Mapping

import attrs

from ownership.admission import pages_missing
from ownership.audit import AuditReport, audit, count_columns
from ownership.book import Book, Violation
from ownership.claims import DRAINING, SESSION, ClaimRecord, Content, Kind
from ownership.custody import held_lease, live_claim, misuse
from ownership.handles import CacheOwned, ClaimHandle, Lease, SessionOwned
from ownership.ids import NO_SLOT, ClaimId, CustodianId, NoSlot, PageIndex, Place, SlotIndex
from ownership.placements import Placement, placement
from ownership.simulation import ReleaseSimulation
from ownership.values import ZEROS, Base, BaseName, Capacity, Need

__all__ = ["BaseView", "ClaimView", "Counters", "LedgerView"]


@attrs.frozen
class BaseView:
    """A state that a turn may start from."""

    position: int
    pinned: int
    """Working claims that have yet to copy out of it."""
    place: Place = Place.DEVICE
    first_page: int = 0
    """Pages of positions that it has dropped."""


@attrs.frozen
class ClaimView:
    """What the ledger knows of one claim."""

    claim: ClaimId
    kind: Kind
    slot: SlotIndex | NoSlot
    generation: int
    custodian: CustodianId
    position: int
    content: Content
    pages: tuple[PageIndex, ...]
    """All pages in order of position, shared ones first."""
    exclusive: int
    """How many of them, the last ones, are this claim's own."""
    base: BaseName | None
    """What it is to be copied from; pinned until then."""
    name: BaseName | None
    """How a turn may ask for it as a base."""
    turn: str
    pinned: int
    """Working claims that have yet to copy out of this one."""
    place: Place = Place.DEVICE
    first_page: int = 0
    """Pages that were dropped before the first of ``pages``."""


@attrs.frozen
class Counters:
    """What has happened since the ledger was opened."""

    transitions: int
    """Verbs, moves and quarantines."""
    rollbacks: int
    commits: int
    closes: int
    """States closed or replaced by their session."""
    reclaimed: int
    """Claims taken back from the dead: above zero in a run without faults, something leaked."""
    violations: int
    """Uses of a handle that were refused, and handles that were lost."""


class LedgerView:
    """Questions to the ledger; none of them changes it."""

    __slots__ = ("_book",)

    def __init__(self, book: Book, /) -> None:
        self._book = book

    @property
    def capacity(self) -> Capacity:
        """How much there is to own on the device."""
        return self._book.capacity

    @property
    def host_capacity(self) -> Capacity | None:
        """How much there is to own in host memory; None: nothing."""
        return self._book.host_capacity

    def free(self, place: Place, /) -> tuple[int, int]:
        """Slots and pages of a place that nobody has."""
        pool = self._book.pools[place]
        return len(pool.free_slots), len(pool.free_pages)

    @property
    def free_slots(self) -> int:
        """Slots on the device that nobody has."""
        return len(self._book.free_slots)

    @property
    def free_pages(self) -> int:
        """Pages on the device that nobody has."""
        return len(self._book.free_pages)

    @property
    def draining_slots(self) -> int:
        """Slots that come back when the copies out of them have ended."""
        slots = self._book.device.slots
        return sum(
            record.slot in slots
            for record in (self._book.claims.values() if self._book.draining else ())
            if record.kind is DRAINING and record.slot is not NO_SLOT
        )

    def leases(self) -> tuple[Lease, ...]:
        """Every launched step that has not landed, the oldest first."""
        live = [entry.handle and entry.handle() for entry in self._book.leases.values()]
        return tuple(lease for lease in live if isinstance(lease, Lease))

    @property
    def quarantined_leases(self) -> int:
        """Steps whose device is gone or hangs."""
        return sum(entry.step.quarantined for entry in self._book.leases.values())

    def hanging(self) -> tuple[ClaimView, ...]:
        """Claims of steps in quarantine, and the bases that they pin, drained ones included."""
        found: dict[ClaimId, ClaimRecord] = {}
        for entry in self._book.leases.values():
            for record in entry.claims if entry.step.quarantined else ():
                found[record.number] = record
                if record.base is not None:
                    found[record.base.number] = record.base
        return tuple(map(_claim_view, found.values()))

    @property
    def quarantined_slots(self) -> int:
        """Slots on the device that nobody but a step in quarantine has, drained bases included."""
        return self._in_quarantine().slots

    @property
    def quarantined_pages(self) -> int:
        """Pages on the device that nobody but a step in quarantine has, by claim, run or base."""
        return self._in_quarantine().pages

    @property
    def counters(self) -> Counters:
        """What has happened since the ledger was opened."""
        book = self._book
        return Counters(
            transitions=book.transitions,
            rollbacks=book.rollbacks,
            commits=book.commits,
            closes=book.closes,
            reclaimed=book.reclaimed,
            violations=book.violations,
        )

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The latest refused uses and lost handles; ``counters.violations`` counts them all."""
        return tuple(self._book.last_violations)

    def describe(self, handle: ClaimHandle, /) -> ClaimView:
        """Tell all about a live handle's claim; StaleHandle when it is spent."""
        return _claim_view(live_claim(self._book, handle))

    def position(self, handle: ClaimHandle, /) -> int:
        """Tokens that the state of a live handle has absorbed; StaleHandle when it is spent."""
        return live_claim(self._book, handle).position

    def origin_of(self, handle: ClaimHandle, /) -> BaseName | None:
        """The state at rest that a live handle's claim started from, itself or by way of others.

        None: it started from nothing. StaleHandle when it is spent.
        """
        return live_claim(self._book, handle).origin

    def slot_of(self, handle: ClaimHandle, /) -> SlotIndex | NoSlot:
        """The slot of a live handle; StaleHandle when it is spent."""
        return live_claim(self._book, handle).slot

    def covered(self, handle: ClaimHandle, /) -> int:
        """Positions that a live handle's pages cover: as far as it gets without ``grow``."""
        return live_claim(self._book, handle).covered

    def find_base(self, name: BaseName, /) -> BaseView | None:
        """The state of that name, or None when it was given up or replaced."""
        record = self._book.names.get((name.holder, name.version))
        if record is None:
            return None
        return BaseView(record.position, record.pins, record.pool.place, record.first_page)

    def name_of(self, state: SessionOwned | CacheOwned, /) -> BaseName:
        """How a turn asks for a state as its base; StaleHandle when the handle is spent."""
        record = live_claim(self._book, state)
        if record.name is None:
            raise misuse(self._book, f"name_of: {record.place()} is no state at rest")
        return record.name

    def resting(self, place: Place = Place.DEVICE, /) -> tuple[BaseName, ...]:
        """Names of all sessions' states in a place, in the order of their commits."""
        left = self._book.pools[place].at_rest
        found: list[BaseName] = []
        # The newest first: what rests on the device is newer than most that has left it.
        for record in reversed(self._book.names.values()):
            if not left:
                break
            if record.kind is SESSION and record.name is not None and record.pool.place is place:
                found.append(record.name)
                left -= 1
        return tuple(reversed(found))

    def pages_needed(self, need: Need, base: Base, /, place: Place = Place.DEVICE) -> int:
        """Pages that ``reserve`` would take; from nothing, when the base is gone."""
        source = None
        if base is not ZEROS:
            source = self._book.names.get((base.holder, base.version))
        return pages_missing(self._book, need, source, place)

    def placements(self, lease: Lease, /) -> tuple[Placement, ...]:
        """Where the rows of a launched step read and write, in order of the launch."""
        entry = held_lease(self._book, lease, "placements")
        size = self._book.capacity.page_size
        return tuple([placement(record, size) for record in entry.claims])

    def simulate(self, place: Place = Place.DEVICE, /) -> ReleaseSimulation:
        """Begin to count what a set of endings would give back in a place."""
        return ReleaseSimulation(self._book, self._book.pools[place])

    def held_by(self, custodian: CustodianId, /) -> tuple[ClaimView, ...]:
        """All claims in this custody, the oldest first. O(claims of the ledger)."""
        return tuple(
            _claim_view(record)
            for record in self._book.claims.values()
            if record.custodian == custodian and record.kind is not DRAINING
        )

    def columns(self, place: Place = Place.DEVICE, /) -> Mapping[str, int]:
        """How many claims of a place stand in which column, as the audit names them. O(claims)."""
        return count_columns(self._book, place)

    def audit(self) -> AuditReport:
        """Count everything again from scratch. O(everything)."""
        return audit(self._book)

    def _in_quarantine(self) -> ReleaseSimulation:
        simulation = ReleaseSimulation(self._book, self._book.device, waits_for_copies=True)
        for entry in self._book.leases.values():
            if entry.step.quarantined:
                for record in entry.claims:
                    simulation.end(record)
        return simulation


def _claim_view(record: ClaimRecord) -> ClaimView:
    return ClaimView(
        claim=record.number,
        kind=record.kind,
        slot=record.slot,
        generation=record.generation,
        custodian=record.custodian,
        position=record.position,
        content=record.content,
        pages=tuple(record.page_table),
        exclusive=len(record.exclusive),
        base=None if record.base is None else record.base.name,
        name=record.name,
        turn=record.turn,
        pinned=record.pins,
        place=record.pool.place,
        first_page=record.first_page,
    )
