"""Taking room: ``reserve`` and ``grow``, each whole or not at all."""

from typing import Final
from weakref import ref

from ownership import events
from ownership.book import Book
from ownership.claims import BATCH, COPY, NO_LIMIT, UNDEFINED, ClaimRecord
from ownership.custody import held, misuse
from ownership.handles import BatchOwned, issue_batch
from ownership.ids import NO_SLOT, CustodianId, NoSlot, PageIndex, SlotIndex
from ownership.values import ZEROS, Base, Grown, GrowResult, Need, Refused

__all__ = ["grow", "pages_missing", "reserve"]

_NO_SUCH_BASE: Final = Refused("base", 0, 0)
_GROWN_BY_NONE: Final = Grown(0)


def pages_missing(book: Book, need: Need, source: ClaimRecord | None) -> int:
    """Count the exclusive pages of a claim that covers ``need`` and starts from ``source``.

    ::

        positions   0 ........ full pages ........ source.position ........ need.positions
        pages       [ shared: the source's run  ][ tail: copied ][ fresh ........... ]
    """
    capacity = book.capacity
    if not capacity.pages:
        return 0
    size = capacity.page_size
    if source is None:
        return -(-need.positions // size)
    position = source.position
    return -(-max(need.positions, position) // size) - position // size


def reserve(
    book: Book, custodian: CustodianId, need: Need, base: Base, turn: str
) -> BatchOwned | Refused:
    """Take a slot and pages, share the base's run and pin the base; or refuse, changing nothing."""
    if need.positions < 0:
        raise misuse(book, f"reserve: a need of {need.positions} positions")
    source: ClaimRecord | None = None
    if base is not ZEROS:
        source = book.names.get((base.holder, base.version))
        if source is None:
            return _NO_SUCH_BASE
    missing = pages_missing(book, need, source)
    free_slots = book.free_slots
    slots_short = 1 if not free_slots and book.generations else 0
    pages_short = missing - len(book.free_pages)
    if slots_short or pages_short > 0:
        return Refused("room", slots_short, max(pages_short, 0))
    record = _new_claim(book, custodian, source, missing, turn)
    handle = issue_batch(record)
    book.claims[record.number] = record
    book.live[id(handle)] = record
    record.handle = ref(handle, book.on_lost)
    book.transitions += 1
    if book.observer is not None:
        events.reserved(book, book.observer, record)
    return handle


def _new_claim(
    book: Book, custodian: CustodianId, source: ClaimRecord | None, missing: int, turn: str
) -> ClaimRecord:
    slot: SlotIndex | NoSlot = NO_SLOT
    generation = 1
    if book.generations:
        slot = book.free_slots.pop()
        generation = book.generations[slot] = book.generations[slot] + 1
    own = _take_pages(book, missing)
    size = book.capacity.page_size
    full = 0 if source is None else source.position // size
    table = own.copy() if source is None else source.page_table[:full] + own
    covered = next_full = NO_LIMIT
    if book.capacity.pages:
        covered = len(table) * size
        next_full = (full + 1) * size
    # By position: with keywords this call would cost as much as all the rest.
    record = ClaimRecord(
        next(book.claim_numbers),
        book,
        custodian,
        turn,
        slot,
        generation,
        own,
        table,
        covered,
        next_full,
    )
    if source is not None:
        record.position = source.position
        record.content = COPY
        record.base = source
        record.origin = source.number
        source.pins += 1
        record.tip = tip = source.tip
        if tip is not None:
            tip.count += 1
    return record


def _take_pages(book: Book, count: int) -> list[PageIndex]:
    if not count:
        return []
    free = book.free_pages
    taken = free[: -count - 1 : -1]
    del free[-count:]
    return taken


def grow(book: Book, custodian: CustodianId, claim: BatchOwned, need: Need) -> GrowResult:
    """Add pages until the claim covers ``need``; or refuse, changing nothing."""
    record = held(book, claim, BATCH, custodian, "BatchPort.grow")
    if record.content is UNDEFINED:
        raise misuse(book, f"grow: {record.place()} is undefined after a failed step: roll it back")
    if need.positions <= record.covered:
        return _GROWN_BY_NONE
    size = book.capacity.page_size
    missing = -(-need.positions // size) - len(record.page_table)
    short = missing - len(book.free_pages)
    if short > 0:
        return Refused("room", 0, short)
    taken = _take_pages(book, missing)
    record.exclusive += taken
    record.page_table += taken
    record.covered = len(record.page_table) * size
    book.transitions += 1
    if book.observer is not None:
        events.grown(book, book.observer, record, taken)
    return Grown(missing)
