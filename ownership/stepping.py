"""Lending claims to the device: ``launch`` and ``land``, and the quarantine in between.

A launched claim is in the custody of the device, so that no other verb finds it: what a step may
still write can't be given back. The lease keeps the handles alive and gives out the same ones.
"""

from collections.abc import Sequence
from typing import Final

from ownership import events
from ownership.book import Book, LeaseRecord
from ownership.claims import BATCH, UNDEFINED, VALID, ClaimRecord, Step
from ownership.custody import held_lease, misuse, refusal
from ownership.endings import unpin
from ownership.errors import LedgerError
from ownership.handles import BatchOwned, Lease, issue_lease
from ownership.ids import DEVICE, ClaimId, CustodianId, Place
from ownership.runs import Run
from ownership.values import Absorbed, LandOutcome, StepFailed

__all__ = ["land", "launch", "quarantine"]

_FILE: Final = Place.FILE


def launch(book: Book, custodian: CustodianId, claims: Sequence[BatchOwned], step: int) -> Lease:
    """Move the claims of all rows into one lease."""
    handles = tuple(claims)
    live = book.live
    records: list[ClaimRecord] = []
    for handle in handles:
        record = live.get(id(handle))
        if record is None or record.kind is not BATCH or record.custodian != custodian:
            raise refusal(book, handle, BatchOwned, custodian, "BatchPort.launch")
        if record.content is UNDEFINED or record.pins:
            raise misuse(book, _not_fit(record))
        records.append(record)
    if len(set(records)) != len(records) or not records:
        raise misuse(book, f"launch of step {step}: wants at least one claim, and each only once")
    number = next(book.lease_numbers)
    info = Step(number, step)
    for record in records:
        record.custodian = DEVICE
        record.step = info
    entry = LeaseRecord(info, tuple(records), handles)
    lease = issue_lease(book, number, step)
    book.leases[number] = entry
    book.make_lease_live(entry, lease)
    book.transitions += 1
    if book.observer is not None:
        events.launched(book, book.observer, entry, custodian)
    return lease


def _not_fit(record: ClaimRecord) -> str:
    if record.content is UNDEFINED:
        is_read = record.pool.place is Place.FILE
        why = "has read its base" if is_read else "is undefined after a failed step"
        return f"launch: {record.place()} {why}: roll it back"
    return f"launch: {record.place()} is pinned by {record.pins} copies under way: wait for them"


def land(
    book: Book, custodian: CustodianId, lease: Lease, outcome: LandOutcome
) -> tuple[BatchOwned, ...]:
    """Take a step's claims back from the device, all of them before this returns."""
    entry = held_lease(book, lease, "BatchPort.land")
    frozen: dict[ClaimId, Run] = {}
    copied: dict[ClaimId, list[Run]] = {}
    if isinstance(outcome, StepFailed):
        bases = _land_failed(book, entry.claims, custodian)
    else:
        _check_absorbed(book, entry, outcome)
        bases = _land_absorbed(book, entry.claims, custodian, outcome.tokens, frozen, copied)
    del book.leases[entry.step.lease]
    del book.live_leases[id(lease)]
    entry.handle = None
    returned = [(base, unpin(book, base)) for base in bases]
    book.transitions += 1
    observer = book.observer
    if observer is not None:
        is_ok = not isinstance(outcome, StepFailed)
        events.landed(book, observer, entry, frozen, copied, bases, custodian, is_ok=is_ok)
        for base, given_back in returned:
            if given_back is not None:
                events.drain_ended(book, observer, base, given_back)
    return entry.handles


def _check_absorbed(book: Book, entry: LeaseRecord, outcome: Absorbed) -> None:
    tokens = outcome.tokens
    if entry.step.quarantined:
        raise _cant_land(book, entry, "its device was given up, so it can only land as failed")
    if len(tokens) != len(entry.claims):
        raise _cant_land(book, entry, f"{len(tokens)} numbers for {len(entry.claims)} rows")
    for record, absorbed in zip(entry.claims, tokens, strict=True):
        if absorbed < 0 or record.position + absorbed > record.covered:
            span = f"absorbed {absorbed} at position {record.position}, covers {record.covered}"
            raise _cant_land(book, entry, f"{record.place()} {span}")
    if book.loads_late_pages:
        _check_loaded(book, entry, outcome)


def _cant_land(book: Book, entry: LeaseRecord, why: str) -> LedgerError:
    step = entry.step
    return misuse(book, f"land of lease {step.lease} (step {step.number}): {why}")


def _check_loaded(book: Book, entry: LeaseRecord, outcome: Absorbed) -> None:
    """A state that begins without its first pages comes whole."""
    for record, absorbed in zip(entry.claims, outcome.tokens, strict=True):
        dropped = record.first_page * book.capacity.page_size
        if record.position + absorbed < dropped:
            span = f"absorbed {absorbed} at position {record.position}, has dropped {dropped}"
            raise _cant_land(book, entry, f"{record.place()} {span}")


def _land_absorbed(
    book: Book,
    records: Sequence[ClaimRecord],
    custodian: CustodianId,
    tokens: Sequence[int],
    frozen: dict[ClaimId, Run],
    copied: dict[ClaimId, list[Run]],
) -> list[ClaimRecord]:
    bases: list[ClaimRecord] = []
    for record, absorbed in zip(records, tokens, strict=True):
        record.custodian = custodian
        record.step = None
        if record.content is not VALID:
            record.content = VALID
            base = record.base
            if base is not None:
                bases.append(base)
                record.base = None
                if record.pool is not base.pool:
                    del book.moving[record.number]
                # It shares the base's frozen pages, or there are none, or they were copied.
                if record.tip is not base.tip and record.exclusive:
                    copied[record.number] = _freeze_copied(book, record, base)
        record.position = position = record.position + absorbed
        if position >= record.next_full:
            if record.pool.place is _FILE:
                record.content = UNDEFINED
                continue
            size = book.capacity.page_size
            full = position // size
            record.next_full = (full + 1) * size
            frozen[record.number] = _freeze(book, record, full - record.first_page)
    return bases


def _freeze(book: Book, record: ClaimRecord, length: int) -> Run:
    """Make own pages a run, so that ``length`` are frozen: no step may write them again."""
    count = length - len(record.page_table) + len(record.exclusive)
    pages = tuple(record.exclusive[:count])
    del record.exclusive[:count]
    record.tip = run = book.runs.freeze(record.tip, pages)
    return run


def _freeze_copied(book: Book, record: ClaimRecord, base: ClaimRecord) -> list[Run]:
    """Freeze the full pages that the first step has copied from another place, run by run.

    Each is the twin of the run that it was copied from, so that whoever follows that way shares it.
    A claim that has dropped pages is cut otherwise than its base, and its runs are nobody's twins.
    """
    if record.first_page != base.first_page:
        full = record.position // book.capacity.page_size - record.first_page
        return [_freeze(book, record, full)] if full else []
    copied: list[Run] = []
    shared, tip = record.shared_pages, base.tip
    for source in reversed(list(tip.chain()) if tip is not None else []):
        if source.length > shared:
            run = _freeze(book, record, source.length)
            if source.twin is None:
                source.twin, run.twin = run, source
            copied.append(run)
    return copied


def _land_failed(
    book: Book, records: Sequence[ClaimRecord], custodian: CustodianId
) -> list[ClaimRecord]:
    bases: list[ClaimRecord] = []
    for record in records:
        record.custodian = custodian
        record.step = None
        record.content = UNDEFINED
        if record.base is not None:
            bases.append(record.base)
            record.base = None
            book.moving.pop(record.number, None)
    return bases


def quarantine(book: Book, lease: Lease) -> None:
    """Count a step's claims as out of reach until it lands, as failed. Twice is once."""
    entry = held_lease(book, lease, "quarantine")
    if entry.step.quarantined:
        return
    entry.step.quarantined = True
    book.transitions += 1
    if book.observer is not None:
        events.quarantined(book, book.observer, entry)
