"""One event for each change of owner: enough to rebuild the ledger from the log alone.

Every function here is called only when somebody observes, after the change is complete; an
event's lists are its own. Claims go by their number, which is never used again; ``seq`` counts
the events of a ledger without a gap.
"""

from collections.abc import Mapping, Sequence

from ownership.book import Book, LeaseRecord
from ownership.claims import ClaimRecord, Kind
from ownership.ids import NO_SLOT, ClaimId, CustodianId, PageIndex, Place, RunId, SlotIndex
from ownership.observer import Observer
from ownership.runs import Run

__all__ = [
    "audited",
    "drain_ended",
    "drained",
    "ended",
    "grown",
    "kept",
    "landed",
    "launched",
    "opened",
    "quarantined",
    "reserved",
    "write",
]


def write(book: Book, observer: Observer, event: str, **fields: object) -> None:
    """Number an event and hand it on."""
    fields["seq"] = book.seq
    book.seq += 1
    observer.record(event, fields)


def opened(book: Book, observer: Observer) -> None:
    """A ledger begins, all free."""
    size, host = book.capacity, book.pools[Place.HOST]
    write(
        book,
        observer,
        "ledger.opened",
        slots=size.slots,
        pages=size.pages,
        page_size=size.page_size,
        host_slots=host.num_slots,
        host_pages=host.num_pages,
    )


def reserved(book: Book, observer: Observer, record: ClaimRecord) -> None:
    """A working claim begins; its base, where there is one, is pinned."""
    base = record.base
    name = None if base is None else base.name
    write(
        book,
        observer,
        "claim.reserved",
        claim=record.number,
        place=record.pool.place.value,
        slot=_slot(record),
        generation=record.generation,
        first_page=record.first_page,
        pages=list(record.exclusive),
        run=_run(record.tip),
        base=None if base is None else base.number,
        base_name=None if name is None else f"{name.holder}@{name.version}",
        position=record.position,
        owner=record.kind.value,
        to=record.custodian,
        turn=record.turn,
    )


def grown(book: Book, observer: Observer, record: ClaimRecord, pages: Sequence[PageIndex]) -> None:
    """A working claim took more pages."""
    write(
        book,
        observer,
        "claim.grown",
        claim=record.number,
        slot=_slot(record),
        generation=record.generation,
        pages=list(pages),
        owner=record.kind.value,
        to=record.custodian,
        turn=record.turn,
    )


def launched(book: Book, observer: Observer, entry: LeaseRecord, source: CustodianId) -> None:
    """The claims of all rows went to the device."""
    write(
        book,
        observer,
        "lease.launched",
        lease=entry.step.lease,
        step=entry.step.number,
        claims=[record.number for record in entry.claims],
        slots=[_slot(record) for record in entry.claims],
        **{"from": source},
    )


def landed(
    book: Book,
    observer: Observer,
    entry: LeaseRecord,
    frozen: Mapping[ClaimId, Run],
    copied: Mapping[ClaimId, Sequence[Run]],
    unpinned: Sequence[ClaimRecord],
    target: CustodianId,
    *,
    is_ok: bool,
) -> None:
    """The claims of all rows came back; pages that they filled are runs now."""
    write(
        book,
        observer,
        "lease.landed",
        lease=entry.step.lease,
        step=entry.step.number,
        outcome="ok" if is_ok else "failed",
        rows=[
            _landed_row(record, copied.get(record.number, ()), frozen.get(record.number))
            for record in entry.claims
        ],
        unpinned=[base.number for base in unpinned],
        to=target,
    )


def _landed_row(
    record: ClaimRecord, copied: Sequence[Run], filled: Run | None
) -> dict[str, object]:
    runs = [*copied] if filled is None else [*copied, filled]
    run = runs[-1] if runs else None
    row: dict[str, object] = {
        "claim": record.number,
        "position": record.position,
        "frozen": [] if run is None else list(run.pages),
        "run": _run(run),
        "parent": None if run is None else _run(run.parent),
    }
    if len(runs) > 1:
        # A state that was copied from another place brings the runs of its history along.
        row["earlier"] = [
            {"frozen": list(run.pages), "run": _run(run), "parent": _run(run.parent)}
            for run in runs[:-1]
        ]
    return row


def quarantined(book: Book, observer: Observer, entry: LeaseRecord) -> None:
    """The device that has these claims is gone or hangs."""
    write(
        book,
        observer,
        "lease.quarantined",
        lease=entry.step.lease,
        step=entry.step.number,
        claims=[record.number for record in entry.claims],
    )


def kept(
    book: Book,
    observer: Observer,
    event: str,
    record: ClaimRecord,
    surplus: Sequence[PageIndex],
    replaced: ClaimRecord | None,
) -> None:
    """A working claim became a session's or the cache's state."""
    name = record.name
    write(
        book,
        observer,
        event,
        claim=record.number,
        slot=_slot(record),
        generation=record.generation,
        owner=record.kind.value,
        to=record.custodian,
        version=None if name is None else name.version,
        position=record.position,
        returned_pages=list(surplus),
        replaces=None if replaced is None else replaced.number,
        turn=record.turn,
        **{"from": record.custodian},
    )


def ended(
    book: Book,
    observer: Observer,
    event: str,
    record: ClaimRecord,
    owner: Kind,
    given_back: tuple[Sequence[PageIndex], Sequence[RunId]],
    unpinned: ClaimRecord | None,
) -> None:
    """A claim ended, and what it held is free."""
    pages, runs = given_back
    write(
        book,
        observer,
        event,
        claim=record.number,
        slot=_slot(record),
        generation=record.generation,
        owner=owner.value,
        turn=record.turn,
        position=record.position,
        returned_slot=_slot(record),
        returned_pages=list(pages),
        dropped_runs=list(runs),
        unpinned=None if unpinned is None else unpinned.number,
        **{"from": record.custodian},
    )


def drained(book: Book, observer: Observer, record: ClaimRecord, owner: Kind) -> None:
    """A claim lost its owner and its name while copies out of it are under way."""
    write(
        book,
        observer,
        "claim.drained",
        claim=record.number,
        slot=_slot(record),
        generation=record.generation,
        owner=owner.value,
        pins=record.pins,
    )


def drain_ended(
    book: Book,
    observer: Observer,
    record: ClaimRecord,
    given_back: tuple[Sequence[PageIndex], Sequence[RunId]],
) -> None:
    """The last copy out of a draining claim has ended, and what it held is free."""
    pages, runs = given_back
    write(
        book,
        observer,
        "claim.drain_ended",
        claim=record.number,
        returned_slot=_slot(record),
        returned_pages=list(pages),
        dropped_runs=list(runs),
    )


def audited(book: Book, observer: Observer, columns: Mapping[str, int], *, conserved: bool) -> None:
    """Everything was counted again from scratch."""
    write(book, observer, "ledger.audited", **columns, conserved=conserved)


def _slot(record: ClaimRecord) -> SlotIndex | None:
    return None if record.slot is NO_SLOT else record.slot


def _run(run: Run | None) -> RunId | None:
    return None if run is None else run.number
