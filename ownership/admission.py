"""Taking room: ``reserve`` and ``grow``, each whole or not at all."""

from collections.abc import Sequence
from typing import Final
from weakref import ref

from ownership import events
from ownership.book import Book
from ownership.claims import BATCH, COPY, NO_LIMIT, UNDEFINED, VALID, ClaimRecord
from ownership.custody import held, misuse
from ownership.handles import BatchOwned, issue_batch
from ownership.ids import NO_SLOT, CustodianId, NoSlot, PageIndex, Place, SlotIndex
from ownership.pools import Pool
from ownership.runs import Run
from ownership.values import ZEROS, Base, BaseName, Grown, GrowResult, Need, Refused

__all__ = ["grow", "pages_missing", "reserve"]

_NO_SUCH_BASE: Final = Refused("base", 0, 0)
_GROWN_BY_NONE: Final = Grown(0)
_DEVICE: Final = Place.DEVICE
_FILE: Final = Place.FILE


def pages_missing(
    book: Book, need: Need, source: ClaimRecord | None, place: Place = Place.DEVICE
) -> int:
    """Count the exclusive pages of a claim that covers ``need`` and starts from ``source``.

    ::

        positions   0 ........ full pages ........ source.position ........ need.positions
        pages       [ shared: the source's run  ][ tail: copied ][ fresh ........... ]

    In another place, or with other pages dropped, the full pages are copied too.
    """
    capacity = book.capacity
    if not capacity.pages or place is _FILE:
        return 0
    size = capacity.page_size
    if source is None:
        return max(-(-need.positions // size) - need.first_page, 0)
    first = max(need.first_page, source.first_page)
    pages = -(-max(need.positions, source.position) // size)
    return pages - first - _shared(source, book.pools[place], first)[1]


def _shared(source: ClaimRecord, pool: Pool, first: int) -> tuple[Run | None, int]:
    """The run that a claim in ``pool`` shares with its base, and how many pages that is."""
    if first != source.first_page:
        return None, 0
    if pool is source.pool:
        return source.tip, source.shared_pages
    run = source.tip
    while run is not None and run.twin is None:
        run = run.parent
    if run is None or run.twin is None:
        return None, 0
    return run.twin, run.length


def reserve(
    book: Book,
    custodian: CustodianId,
    need: Need,
    base: Base | BatchOwned,
    turn: str,
    place: Place = Place.DEVICE,
) -> BatchOwned | Refused:
    """Take a slot and pages, share the base's run and pin the base; or refuse, changing nothing."""
    if need.positions < 0 or need.first_page < 0:
        raise misuse(book, f"reserve: a need of {need.positions} positions from {need.first_page}")
    source: ClaimRecord | None = None
    if isinstance(base, BaseName):
        source = book.names.get((base.holder, base.version))
        if source is None:
            return _NO_SUCH_BASE
    elif base is not ZEROS:
        source = _own_claim(book, base, custodian)
    if need.first_page:
        _check_dropped(book, need, source)
    if source is None and place is _FILE:
        raise misuse(book, "reserve: a claim in a file reads its base, and has none")
    pool = book.device if place is _DEVICE else book.pools[place]
    missing = pages_missing(book, need, source, place)
    has_slot = bool(book.generations) and place is not _FILE
    slots_short = 1 if has_slot and not pool.free_slots else 0
    pages_short = missing - len(pool.free_pages)
    if slots_short or pages_short > 0:
        return Refused("room", slots_short, max(pages_short, 0))
    record = _new_claim(book, pool, custodian, source, need.first_page, missing, turn)
    handle = issue_batch(record)
    book.claims[record.number] = record
    book.live[id(handle)] = record
    record.handle = ref(handle, book.on_lost)
    book.transitions += 1
    if book.observer is not None:
        events.reserved(book, book.observer, record)
    return handle


def _check_dropped(book: Book, need: Need, source: ClaimRecord | None) -> None:
    """What a claim drops, its base has absorbed; the page that the base is writing stays.

    Without a base its first step loads a state that has dropped as much, and lands it whole.
    """
    dropped = need.first_page * book.capacity.page_size
    if source is None:
        if dropped >= need.positions:
            raise misuse(book, f"reserve: drops {dropped} positions of {need.positions}")
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
    if book.generations and pool.place is not _FILE:
        slot = pool.free_slots.pop()
        generation = book.generations[slot] = book.generations[slot] + 1
    own = _take_pages(pool, missing)
    tip: Run | None = None
    table, full = own.copy(), first_page
    if source is not None and pool.place is not _FILE:
        first_page = max(first_page, source.first_page)
        tip, shared = _shared(source, pool, first_page)
        if shared:
            table = _first_pages(source, tip, shared) + own
        full = source.position // book.capacity.page_size
    covered = next_full = NO_LIMIT
    if pool.place is _FILE:
        covered = 0 if source is None else source.position
    elif book.capacity.pages:
        covered = (first_page + len(table)) * book.capacity.page_size
        next_full = (full + 1) * book.capacity.page_size
    # By position: with keywords this call would cost as much as all the rest.
    record = ClaimRecord(
        next(book.claim_numbers),
        book,
        pool,
        custodian,
        turn,
        slot,
        generation,
        own,
        table,
        covered,
        next_full,
        first_page,
    )
    if source is not None:
        record.position = source.position
        record.content = COPY
        record.base = source
        record.origin = source.name or source.origin
        source.pins += 1
        record.tip = tip
        if tip is not None:
            tip.count += 1
    return record


def _first_pages(source: ClaimRecord, tip: Run | None, count: int) -> list[PageIndex]:
    """The pages of the run that is shared: the source's own, or those of its twin."""
    if tip is source.tip or tip is None:
        return source.page_table[:count]
    return [page for run in reversed(list(tip.chain())) for page in run.pages]


def _take_pages(pool: Pool, count: int) -> list[PageIndex]:
    if not count:
        return []
    free = pool.free_pages
    taken = free[: -count - 1 : -1]
    del free[-count:]
    return taken


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
    taken: Sequence[PageIndex] = _take_pages(pool, missing)
    record.exclusive += taken
    record.page_table += taken
    record.covered = (record.first_page + len(record.page_table)) * size
    book.transitions += 1
    if book.observer is not None:
        events.grown(book, book.observer, record, taken)
    return Grown(missing)


def _not_grown(record: ClaimRecord) -> str:
    is_file = record.pool.place is _FILE
    why = "only reads its base" if is_file else "is undefined after a failed step"
    return f"grow: {record.place()} {why}: roll it back"
