"""What must agree in the one table, looked at from scratch: each disagreement is told in words."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ownership.book import Book
from ownership.claims import BATCH, CACHE, COPY, DRAINING, NO_LIMIT, SESSION, VALID, ClaimRecord
from ownership.handles import BatchOwned, CacheOwned, SessionOwned
from ownership.ids import NO_SLOT, ClaimId, Place, RunId
from ownership.runs import Run

__all__ = ["conservation_problems"]

_HANDLE_TYPE = {BATCH: BatchOwned, SESSION: SessionOwned, CACHE: CacheOwned}


def conservation_problems(book: Book, claims: Sequence[ClaimRecord]) -> Iterator[str]:
    """Say what does not agree; nothing, when all is conserved."""
    yield from _slot_problems(book, claims)
    yield from _page_problems(book, claims)
    yield from _run_problems(book, claims)
    yield from _pin_problems(book, claims)
    yield from _custody_problems(book, claims)
    yield from _name_problems(book, claims)
    for record in claims:
        yield from _claim_problems(book, record)


def _slot_problems(book: Book, claims: Iterable[ClaimRecord]) -> Iterator[str]:
    columns = Counter[int](slot for pool in book.pools.values() for slot in pool.free_slots)
    for record in claims:
        if record.slot is NO_SLOT:
            if book.capacity.slots and record.pool.place is not Place.FILE:
                yield f"{record.place()} has no slot"
            continue
        if record.slot not in record.pool.slots:
            yield f"{record.place()}: the slot is in another place"
        columns[record.slot] += 1
        if record.generation != book.generations[record.slot]:
            newest = book.generations[record.slot]
            yield f"{record.place()}: the slot's newest generation is {newest}"
    yield from _partition_problems("slot", columns, len(book.generations))


def _page_problems(book: Book, claims: Iterable[ClaimRecord]) -> Iterator[str]:
    columns = Counter[int](page for pool in book.pools.values() for page in pool.free_pages)
    for record in claims:
        columns.update(record.exclusive)
        if not all(page in record.pool.pages for page in record.page_table):
            yield f"{record.place()}: pages of its table are in another place"
    for run in book.runs.alive.values():
        columns.update(run.pages)
    pages = sum(pool.num_pages for pool in book.pools.values())
    yield from _partition_problems("page", columns, pages)


def _partition_problems(what: str, columns: Counter[int], capacity: int) -> Iterator[str]:
    for index in range(capacity):
        times = columns.pop(index, 0)
        if times != 1:
            yield f"{what} {index} stands in {times} columns"
    for index in columns:
        yield f"{what} {index} does not exist"


def _run_problems(book: Book, claims: Iterable[ClaimRecord]) -> Iterator[str]:
    counts = Counter[RunId](record.tip.number for record in claims if record.tip is not None)
    for run in book.runs.alive.values():
        if run.parent is not None:
            counts[run.parent.number] += 1
    for run in book.runs.alive.values():
        counted = counts.pop(run.number, 0)
        if run.count != counted:
            yield f"run {run.number} has count {run.count}, named by {counted}"
        before = 0 if run.parent is None else run.parent.length
        if run.length != before + len(run.pages):
            yield f"run {run.number} says that its chain has {run.length} pages"
        twin = run.twin
        if twin is not None and not _are_twins(book, run, twin):
            yield f"run {run.number} has a twin that isn't one"
    for number in counts:
        yield f"run {number} is named, but has ended"


def _are_twins(book: Book, run: Run, twin: Run) -> bool:
    """Whether two runs can hold the same, each in its own place."""
    if twin.twin is not run or book.runs.alive.get(twin.number) is not twin:
        return False
    if len(twin.pages) != len(run.pages) or twin.length != run.length:
        return False
    return (run.pages[0] in book.device.pages) != (twin.pages[0] in book.device.pages)


def _pin_problems(book: Book, claims: Iterable[ClaimRecord]) -> Iterator[str]:
    pins = Counter[ClaimId](record.base.number for record in claims if record.base is not None)
    for record in claims:
        counted = pins.pop(record.number, 0)
        if record.pins != counted:
            yield f"{record.place()} has {record.pins} pins, held by {counted}"
        if record.kind is DRAINING and not counted:
            yield f"{record.place()} drains, but nothing pins it"
    for number in pins:
        yield f"claim {number} is pinned, but has ended"
    moving = {
        record.number
        for record in claims
        if record.base is not None and record.base.pool is not record.pool
    }
    if moving != book.moving.keys():
        yield f"{len(book.moving)} claims move to another place, but {len(moving)} have yet to"


def _custody_problems(book: Book, claims: Iterable[ClaimRecord]) -> Iterator[str]:
    leased = Counter[ClaimId](
        record.number for entry in book.leases.values() for record in entry.claims
    )
    for record in claims:
        times = leased.pop(record.number, 0)
        if times != (1 if record.is_leased() else 0) or (record.step is not None) != bool(times):
            yield f"{record.place()} is in {times} leases, in custody of {record.custodian}"
        handle = record.handle and record.handle()
        if record.kind is DRAINING:
            if record.handle is not None:
                yield f"{record.place()} drains, but has an owner"
        elif handle is None:
            yield f"{record.place()} of {record.custodian}: its handle was garbage collected"
        elif book.live.get(id(handle)) is not record:
            yield f"{record.place()}: its live handle is not in the table"
        elif type(handle) is not _HANDLE_TYPE.get(record.kind):
            yield f"{record.place()} is {record.kind.value}, its handle {type(handle).__name__}"
    for number in leased:
        yield f"claim {number} is in a lease, but has ended"
    owned = sum(record.kind is not DRAINING for record in book.claims.values())
    if len(book.live) > owned:
        yield f"{len(book.live)} live handles for {owned} claims"
    for entry in book.leases.values():
        if entry.handle is None or entry.handle() is None:
            yield f"lease {entry.step.lease}: its handle was garbage collected"


def _name_problems(book: Book, claims: Iterable[ClaimRecord]) -> Iterator[str]:
    named = {
        (record.name.holder, record.name.version): record
        for record in claims
        if record.name is not None and record.kind is not DRAINING
    }
    if named != book.names:
        yield f"{len(book.names)} names, but {len(named)} claims that have one"
    resting = Counter(record.pool.place for record in claims if record.kind is SESSION)
    for pool in book.pools.values():
        if pool.at_rest != resting[pool.place]:
            yield f"{pool.at_rest} states at rest in {pool.place.value}, not {resting[pool.place]}"
    for record in claims:
        at_rest = record.kind in (SESSION, CACHE)
        if at_rest and (record.name is None or record.content is not VALID):
            yield f"{record.place()} is at rest without a name or a valid state"


def _claim_problems(book: Book, record: ClaimRecord) -> Iterator[str]:
    if (record.content is COPY) != (record.base is not None):
        yield f"{record.place()} is {record.content.value}, base {record.base is not None}"
    shared = [] if record.tip is None else record.tip.table()
    table = shared + record.exclusive
    if table != record.page_table:
        yield f"{record.place()}: its page table is not its run and its own pages"
    if record.pool.place is Place.FILE or not book.capacity.pages:
        limit = record.position if record.pool.place is Place.FILE else NO_LIMIT
        if (record.covered, record.next_full) != (limit, limit):
            yield f"{record.place()}: it has room where there is none"
        return
    size = book.capacity.page_size
    covered = (record.first_page + len(table)) * size
    if record.position > covered or record.covered != covered:
        yield f"{record.place()}: {covered} positions covered, at {record.position}"
    frozen, full = record.first_page + len(shared), record.position // size
    is_to_be_frozen = _is_to_be_frozen(record)
    if is_to_be_frozen:
        full = max(full, record.first_page)
    is_frozen_so_far = frozen <= full if is_to_be_frozen else frozen == full
    if record.next_full != (full + 1) * size or not is_frozen_so_far:
        yield f"{record.place()}: frozen up to {frozen * size}, at {record.position}"


def _is_to_be_frozen(record: ClaimRecord) -> bool:
    """Whether full pages are, or were, to be copied first: they are frozen when that has landed."""
    return record.content is not VALID and (
        record.base is None or record.copies_pages_of(record.base)
    )
