"""Taking room: ``reserve`` and ``grow``, each whole or not at all."""

from collections.abc import Sequence
from typing import Final
from weakref import ref

from ownership import events
from ownership.book import Book
from ownership.claims import BATCH, COPY, NO_LIMIT, UNDEFINED, VALID, ZEROED, ClaimRecord
from ownership.custody import held, misuse
from ownership.handles import BatchOwned, issue_batch
from ownership.ids import NO_SLOT, CustodianId, NoSlot, PageIndex, Place, SlotIndex
from ownership.pools import Pool
from ownership.runs import Run
from ownership.values import ZEROS, Base, BaseName, Grown, GrowResult, Need, Refused

__all__ = ["grow", "pages_missing", "reserve"]

_NO_SUCH_BASE: Final = Refused("base", 0, 0)
_GROWN_BY_NONE: Final = Grown(0)
_GROWN_BY_ONE: Final = Grown(1)
_DEVICE: Final = Place.DEVICE
_FILE: Final = Place.FILE


def pages_missing(
    book: Book, need: Need, source: ClaimRecord | None, place: Place = Place.DEVICE
) -> int:
    """Count the exclusive pages of a claim that covers ``need`` and starts from ``source``."""
    return max(_missing(need, source, book.pools[place]), 0)


def _missing(need: Need, source: ClaimRecord | None, pool: Pool) -> int:
    """Count the pages to take.

    ::

        positions   0 ........ full pages ........ source.position ........ need.positions
        pages       [ shared: the source's run  ][ tail: copied ][ fresh ........... ]

    In another place, or with other pages dropped, the full pages are copied too.
    """
    if not pool.has_pages:
        return 0
    size = pool.page_size
    if source is None:
        return -(-need.positions // size) - need.first_page
    position = source.position
    full = position // size
    missing = -(-need.positions // size) - full
    if missing <= 0:
        missing = 1 if position % size else 0
    if pool is source.pool and need.first_page <= source.first_page:
        return missing
    first_page = max(need.first_page, source.first_page)
    tip = _twin(source, first_page)
    return full + missing - first_page - (0 if tip is None else tip.length)


def _twin(source: ClaimRecord, first_page: int) -> Run | None:
    """What is in the other place already of the frozen pages of a base, from its first on."""
    run = source.tip if first_page == source.first_page else None
    while run is not None and run.twin is None:
        run = run.parent
    return None if run is None else run.twin


def reserve(
    book: Book,
    custodian: CustodianId,
    need: Need,
    base: Base | BatchOwned,
    turn: str,
    place: Place = Place.DEVICE,
) -> BatchOwned | Refused:
    """Take a slot and pages, share the base's run and pin the base; or refuse, changing nothing."""
    source: ClaimRecord | None = None
    if base is not ZEROS:
        if type(base) is BaseName:
            source = book.names.get((base.holder, base.version))
            if source is None:
                return _NO_SUCH_BASE
        else:
            source = _own_claim(book, base, custodian)
    pool = book.device
    if place is not _DEVICE:
        pool = book.pools[place]
        if place is _FILE and source is None:
            raise misuse(book, "reserve: a claim in a file reads its base, and has none")
    if need.positions < 0 or need.first_page:
        _check_need(book, need, source)
    missing = _missing(need, source, pool)
    slots_short = 1 if pool.has_slots and not pool.free_slots else 0
    pages_short = missing - len(pool.free_pages)
    if slots_short or pages_short > 0:
        return Refused("room", slots_short, max(pages_short, 0))
    record = _new_claim(book, pool, custodian, source, need.first_page, missing, turn)
    handle = issue_batch(record)
    book.claims[record.number] = record
    if source is not None and source.pool is not pool:
        book.moving[record.number] = record
    book.live[id(handle)] = record
    record.handle = ref(handle, book.on_lost)
    book.transitions += 1
    if book.observer is not None:
        events.reserved(book, book.observer, record)
    return handle


def _check_need(book: Book, need: Need, source: ClaimRecord | None) -> None:
    """What a claim drops, its base has absorbed; the page that the base is writing stays.

    Without a base its first step loads a state that has dropped as much, and lands it whole.
    """
    if need.positions < 0 or need.first_page < 0:
        raise misuse(book, f"reserve: a need of {need.positions} positions from {need.first_page}")
    dropped = need.first_page * book.capacity.page_size
    if source is None:
        if dropped >= need.positions:
            raise misuse(book, f"reserve: drops {dropped} positions of {need.positions}")
        book.loads_late_pages = True
    elif need.first_page > source.position // book.capacity.page_size:
        raise misuse(book, f"reserve: drops {dropped} positions of a base at {source.position}")


def _own_claim(book: Book, base: BatchOwned, custodian: CustodianId) -> ClaimRecord:
    """A working claim as a base: the caller's own, with a state that can be copied."""
    source = held(book, base, BATCH, custodian, "BatchPort.reserve")
    if source.content is not VALID:
        raise misuse(book, f"reserve: {source.place()} is {source.content.value}: nothing to copy")
    return source


def _new_claim(
    book: Book,
    pool: Pool,
    custodian: CustodianId,
    source: ClaimRecord | None,
    first_page: int,
    missing: int,
    turn: str,
) -> ClaimRecord:
    slot: SlotIndex | NoSlot = NO_SLOT
    generation = 1
    if pool.has_slots:
        slot, generations = pool.free_slots.pop(), book.generations
        generation = generations[slot] = generations[slot] + 1
    own: list[PageIndex] = []
    if missing:
        free = pool.free_pages
        own = free[: -missing - 1 : -1]
        del free[-missing:]
    tip: Run | None = None
    content, position, origin = ZEROED, 0, None
    if source is None:
        table, full = own.copy(), first_page
    else:
        content, position, origin = COPY, source.position, source.name or source.origin
        full = position // pool.page_size
        if pool is source.pool and first_page <= source.first_page:
            first_page, tip = source.first_page, source.tip
            table = source.page_table[: full - first_page] + own
        else:
            first_page = max(first_page, source.first_page)
            tip = _twin(source, first_page) if pool.has_pages else None
            table = own.copy() if tip is None else tip.table() + own
        source.pins += 1
        if tip is not None:
            tip.count += 1
    covered = next_full = NO_LIMIT
    if pool.has_pages:
        covered = (first_page + len(table)) * pool.page_size
        next_full = (full + 1) * pool.page_size
    elif pool.place is _FILE:
        covered = next_full = position
    # By position: with keywords this call would cost as much as all the rest.
    return ClaimRecord(
        next(book.claim_numbers),
        pool,
        custodian,
        turn,
        slot,
        generation,
        own,
        table,
        covered,
        next_full,
        [],
        first_page,
        position,
        content,
        tip,
        source,
        origin,
    )


def grow(book: Book, custodian: CustodianId, claim: BatchOwned, need: Need) -> GrowResult:
    """Add pages until the claim covers ``need``; or refuse, changing nothing."""
    record = held(book, claim, BATCH, custodian, "BatchPort.grow")
    if record.content is UNDEFINED:
        raise misuse(book, _not_grown(record))
    if need.positions <= record.covered:
        return _GROWN_BY_NONE
    size = book.capacity.page_size
    pool = record.pool
    if pool.place is _FILE:
        raise misuse(book, _not_grown(record))
    missing = -(-need.positions // size) - record.first_page - len(record.page_table)
    short = missing - len(pool.free_pages)
    if short > 0:
        return Refused("room", 0, short)
    taken: Sequence[PageIndex] = pool.free_pages[: -missing - 1 : -1]
    del pool.free_pages[-missing:]
    record.exclusive += taken
    record.page_table += taken
    record.covered = (record.first_page + len(record.page_table)) * size
    book.transitions += 1
    if book.observer is not None:
        events.grown(book, book.observer, record, taken)
    # A decode step grows by one: a value that is made anew would be a fifth of this verb.
    return _GROWN_BY_ONE if missing == 1 else Grown(missing)


def _not_grown(record: ClaimRecord) -> str:
    is_file = record.pool.place is _FILE
    why = "only reads its base" if is_file else "is undefined after a failed step"
    return f"grow: {record.place()} {why}: roll it back"
