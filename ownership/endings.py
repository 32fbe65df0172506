"""How a claim ends or changes owner: rollback, close, evict, commit, admit, reclaim.

All endings are one function. A claim that others still copy out of *drains* instead: it loses its
owner and its name at once, and its memory is free at the last unpin. So no ending ever fails or
waits because of a pin.
"""

from collections.abc import Sequence
from weakref import ref

from ownership import events
from ownership.book import Book
from ownership.claims import (
    BATCH,
    CACHE,
    DRAINING,
    ENDED,
    SESSION,
    VALID,
    ClaimRecord,
    Holder,
    Kind,
)
from ownership.custody import held, misuse
from ownership.errors import BaseChanged
from ownership.handles import BatchOwned, CacheOwned, SessionOwned, issue_cache, issue_session
from ownership.ids import DEVICE, NO_SLOT, CustodianId, PageIndex, Place, RunId
from ownership.values import BaseName, Reclaimed

__all__ = ["GivenBack", "admit", "close", "commit", "evict", "reclaim", "rollback", "unpin"]

GivenBack = tuple[Sequence[PageIndex], Sequence[RunId]]
"""Pages that are free again, and the runs that ended with them."""


def rollback(book: Book, custodian: CustodianId, claim: BatchOwned, verb: str) -> None:
    """Give back exactly the slot, the tail and the claim's own pages, and drop one count."""
    record = held(book, claim, BATCH, custodian, verb)
    del book.live[id(claim)]
    book.rollbacks += 1
    _end(book, record, "claim.rolled_back", "rollback")


def close(book: Book, custodian: CustodianId, state: SessionOwned) -> None:
    """End a session's state."""
    record = held(book, state, SESSION, custodian, "SessionPort.close")
    del book.live[id(state)]
    book.closes += 1
    _end(book, record, "claim.closed", "close")


def evict(book: Book, custodian: CustodianId, state: CacheOwned) -> None:
    """End a state of the prefix cache."""
    record = held(book, state, CACHE, custodian, "CachePort.evict")
    del book.live[id(state)]
    _end(book, record, "claim.evicted", "evict")


def commit(
    book: Book, holder: Holder, working: BatchOwned, replaces: SessionOwned | None
) -> SessionOwned:
    """Make a working claim the session's, and end the state that it replaces."""
    custodian, verb = holder.custodian, "SessionPort.commit"
    record = held(book, working, BATCH, custodian, verb)
    _check_complete(book, record, verb)
    replaced: ClaimRecord | None = None
    name: BaseName | None = None
    if replaces is not None:
        replaced = held(book, replaces, SESSION, custodian, verb)
        # There is one name of a state, and whoever starts from it refers to that very object.
        if record.origin is not replaced.name:
            msg = f"{verb}: {record.place()} did not start from {replaced.place()}"
            raise BaseChanged(f"{msg} ({replaced.name}); roll it back, or replace nothing")
        if record.pool is not replaced.pool and _is_unchanged(record, replaced):
            # The same state in another place: who waits to start from it must find it there.
            name, replaced.holder = replaced.name, None
    del book.live[id(working)]
    surplus = _become(book, record, SESSION, holder, "commit", name)
    state = issue_session(record)
    book.live[id(state)] = record
    record.handle = ref(state, book.on_lost)
    book.commits += 1
    if book.observer is not None:
        events.kept(book, book.observer, "claim.committed", record, surplus, replaced)
    if replaced is not None:
        del book.live[id(replaces)]
        book.closes += 1
        _end(book, replaced, "claim.closed", "commit")
    return state


def admit(book: Book, holder: Holder, working: BatchOwned) -> CacheOwned:
    """Make a working claim the cache's."""
    verb = "CachePort.admit"
    record = held(book, working, BATCH, holder.custodian, verb)
    _check_complete(book, record, verb)
    del book.live[id(working)]
    surplus = _become(book, record, CACHE, holder, "admit")
    state = issue_cache(record)
    book.live[id(state)] = record
    record.handle = ref(state, book.on_lost)
    book.admissions += 1
    if book.observer is not None:
        events.kept(book, book.observer, "claim.admitted", record, surplus, None)
    return state


def reclaim(book: Book, custodian: CustodianId) -> Reclaimed:
    """End all that a dead custodian holds, working claims first, so that their pins go first."""
    if custodian == DEVICE:
        raise misuse(book, "reclaim: what the device has comes back by land alone")
    counts = {BATCH: 0, SESSION: 0, CACHE: 0}
    for kind in counts:
        for record in list(book.claims.values()):
            if record.kind is kind and record.custodian == custodian:
                counts[kind] += 1
                book.reclaimed += 1
                book.spend(record, "reclaim")
                _end(book, record, "claim.reclaimed", "reclaim")
    return Reclaimed(counts[BATCH], counts[SESSION], counts[CACHE])


def unpin(book: Book, base: ClaimRecord) -> GivenBack | None:
    """End one copy out of ``base``; tell what that freed, when it was the last of a drain."""
    base.pins -= 1
    if base.pins or base.kind is not DRAINING:
        return None
    book.draining -= 1
    return _release(book, base)


def _is_unchanged(record: ClaimRecord, replaced: ClaimRecord) -> bool:
    """Whether a claim that started from this state is still the same: only copied."""
    return (record.position, record.first_page) == (replaced.position, replaced.first_page)


def _check_complete(book: Book, record: ClaimRecord, verb: str) -> None:
    if record.content is not VALID:
        if record.pool.place is Place.FILE:
            raise misuse(book, f"{verb}: {record.place()} only reads its base: roll it back")
        raise misuse(book, f"{verb}: {record.place()} is {record.content.value}, not valid")
    if not record.position:
        raise misuse(book, f"{verb}: {record.place()} has absorbed nothing")


def _become(
    book: Book,
    record: ClaimRecord,
    kind: Kind,
    holder: Holder,
    verb: str,
    name: BaseName | None = None,
) -> list[PageIndex]:
    """Change the owner and the generation of a claim whose live handle was taken out of the table.

    Pages beyond the position go back and are returned.
    """
    record.fate = verb
    if name is None:
        holder.version += 1
        name = BaseName(holder.custodian, holder.version)
    record.kind = kind
    record.pool.at_rest += kind is SESSION
    record.holder = holder
    record.name = name
    book.names[name.holder, name.version] = record
    slot = record.slot
    if slot is NO_SLOT:
        record.generation += 1
    else:
        record.generation = book.generations[slot] = book.generations[slot] + 1
    book.transitions += 1
    return _trim(book, record)


def _trim(book: Book, record: ClaimRecord) -> list[PageIndex]:
    size = book.capacity.page_size
    keep = -(-record.position // size) - record.first_page
    surplus = record.page_table[keep:]
    if surplus:
        del record.page_table[keep:]
        del record.exclusive[-len(surplus) :]
        record.covered = (keep + record.first_page) * size
        record.pool.give_back_pages(surplus)
    return surplus


def _end(book: Book, record: ClaimRecord, event: str, verb: str) -> None:
    """End a claim whose live handle has been taken out of the table."""
    owner, base = record.kind, record.base
    record.handle = None
    record.fate = verb
    book.transitions += 1
    if owner is SESSION:
        record.pool.at_rest -= 1
    elif base is not None:
        record.base = None
        book.moving.pop(record.number, None)
    name = record.name
    if name is not None and record.holder is not None:
        del book.names[name.holder, name.version]
        record.holder = None
    given_back: GivenBack | None = None
    if record.pins:
        record.kind = DRAINING
        book.draining += 1
    else:
        given_back = _release(book, record)
    base_given_back = None if base is None else unpin(book, base)
    observer = book.observer
    if observer is None:
        return
    if given_back is None:
        events.drained(book, observer, record, owner)
    else:
        events.ended(book, observer, event, record, owner, given_back, base)
    if base is not None and base_given_back is not None:
        events.drain_ended(book, observer, base, base_given_back)


def _release(book: Book, record: ClaimRecord) -> GivenBack:
    """Give back the slot, the exclusive pages, and one count of the run."""
    del book.claims[record.number]
    record.kind = ENDED
    pages = record.exclusive
    runs: Sequence[RunId] = ()
    if record.tip is not None:
        runs = book.runs.drop(record.tip, pages)
    # In place, and not by Pool.give_back_pages: two calls fewer at the end of each turn.
    pool, slot = record.pool, record.slot
    freed = pool.freed
    if pages:
        pool.free_pages.extend(pages)
        if freed is not None:
            freed.pages.update(dict.fromkeys(pages))
    if slot is not NO_SLOT:
        pool.free_slots.append(slot)
        if freed is not None:
            freed.slots[slot] = None
    return pages, runs
