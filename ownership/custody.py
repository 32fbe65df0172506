"""Who holds a handle: the check that every verb begins with, moving on, and why one was refused."""

from collections.abc import Callable, Mapping
from typing import Final

from ownership.book import Book, LeaseRecord
from ownership.claims import BATCH, CACHE, SESSION, TRAIL_LENGTH, ClaimRecord, Kind
from ownership.errors import ForeignHandle, LedgerError, StaleHandle, WrongOwner
from ownership.handles import (
    BatchOwned,
    CacheOwned,
    ClaimHandle,
    Lease,
    SessionOwned,
    lease_of,
    record_of,
)
from ownership.ids import DEVICE, CustodianId

__all__ = ["held", "held_lease", "live_claim", "misuse", "mover", "refusal"]

Mover = Callable[[ClaimHandle, CustodianId, CustodianId, str], None]
"""Hands a live handle from one custodian to another; the last says where that is asked for."""

_KIND_OF: Final[Mapping[type[object], Kind]] = {
    BatchOwned: BATCH,
    SessionOwned: SESSION,
    CacheOwned: CACHE,
}
_TYPE_OF: Final = {kind: handle_type for handle_type, kind in _KIND_OF.items()}
_WAY_OUT: Final[Mapping[type[object], str]] = {
    BatchOwned: "a BatchOwned ends by rollback, commit or admit",
    SessionOwned: "a SessionOwned ends by SessionPort.close, or replaced by SessionPort.commit",
    CacheOwned: "a CacheOwned ends by CachePort.evict",
    Lease: "a Lease ends by BatchPort.land",
}


def held(
    book: Book, handle: ClaimHandle, kind: Kind, custodian: CustodianId, verb: str
) -> ClaimRecord:
    """Find the claim of a live handle of this kind in this custody, or raise why it isn't one."""
    record = book.live.get(id(handle))
    if record is None or record.kind is not kind or record.custodian != custodian:
        raise refusal(book, handle, _TYPE_OF[kind], custodian, verb)
    return record


def held_lease(book: Book, lease: Lease, verb: str) -> LeaseRecord:
    """Find the step of a live lease, or raise why it isn't one."""
    entry = book.live_leases.get(id(lease))
    if entry is None:
        raise _noted(book, _lease_error(book, lease, verb))
    return entry


def live_claim(book: Book, handle: ClaimHandle) -> ClaimRecord:
    """Find the claim of a live handle, whoever holds it."""
    record = book.live.get(id(handle))
    if record is None:
        raise refusal(book, handle, type(handle), None, "the view")
    return record


def mover(book: Book) -> Mover:
    """Make what hands a live handle on; O(1) each time, and no fresh object."""
    live = book.live

    def move(handle: ClaimHandle, source: CustodianId, target: CustodianId, site: str, /) -> None:
        record = live.get(id(handle))
        if record is None or record.custodian != source or record.step is not None:
            raise refusal(book, handle, type(handle), source, f"move by {site}")
        if target == DEVICE:
            why = f"goes to the device by launch alone, not by {site}"
            raise misuse(book, f"{record.place()} {why}")
        record.custodian = target
        book.transitions = seq = book.transitions + 1
        trail = record.trail
        trail.append((seq, source, target, site))
        if len(trail) > TRAIL_LENGTH:
            del trail[: TRAIL_LENGTH // 2]

    return move


def misuse(book: Book, message: str) -> LedgerError:
    """Make the error of a verb that the state of its claim forbids."""
    error = LedgerError(message)
    book.note_violation("LedgerError", message)
    return error


def refusal(
    book: Book, handle: object, expected: type[object], custodian: CustodianId | None, verb: str
) -> Exception:
    """Find out why a handle is refused: its type, its maker, its owner, or its custody."""
    return _noted(book, _claim_error(book, handle, expected, custodian, verb))


def _noted(book: Book, error: Exception) -> Exception:
    book.note_violation(type(error).__name__, str(error))
    return error


def _type_error(handle: object, expected: type[object], verb: str) -> TypeError:
    given = type(handle)
    way_out = _WAY_OUT.get(given)
    hint = "" if way_out is None else f"; {way_out}"
    return TypeError(f"{verb} takes a {expected.__name__}, not {given.__name__}{hint}")


def _claim_error(
    book: Book, handle: object, expected: type[object], custodian: CustodianId | None, verb: str
) -> Exception:
    kind = _KIND_OF.get(expected)
    if kind is None or type(handle) is not expected:
        return _type_error(handle, expected if kind else BatchOwned, verb)
    record, generation = record_of(handle)
    if record is None or record.ledger is not book:
        return ForeignHandle(f"{verb}: {handle!r} was not made by this ledger")
    is_live = book.live.get(id(handle)) is record
    if is_live and record.kind is kind:
        return StaleHandle(_moved_on(record, custodian, verb))
    if is_live or (generation == record.generation and record.handle is not None):
        # No handle of an earlier owner has this generation, and its live handle is not this one.
        if record.kind is not kind:
            return WrongOwner(
                f"{verb}: {record.place()} is {_TYPE_OF[record.kind].__name__}, held by "
                f"{record.custodian}; the {expected.__name__} that names it is forged"
            )
        return ForeignHandle(f"{verb}: {handle!r} is a forged copy of the live handle")
    return StaleHandle(_spent(record, generation, expected, verb))


def _moved_on(record: ClaimRecord, custodian: CustodianId | None, verb: str) -> str:
    if record.step is not None:
        return (
            f"{verb}: {record.place()} is on the device in lease {record.step.lease} "
            f"(step {record.step.number}) until that lands; {custodian} does not hold it"
        )
    if not record.trail:
        return f"{verb}: {record.place()} is held by {record.custodian}, not by {custodian}"
    _, source, target, site = record.trail[-1]
    return (
        f"{verb}: {record.place()} was moved from {source} to {target} by {site}; "
        f"{custodian} no longer holds it{_history(record)}"
    )


def _spent(record: ClaimRecord, generation: int, expected: type[object], verb: str) -> str:
    name = expected.__name__
    if generation == record.generation:
        return (
            f"{verb}: {record.place()} was given back by {record.fate} in the custody of "
            f"{record.custodian}; this {name} is spent{_history(record)}"
        )
    return (
        f"{verb}: {record.place()} has another owner since; this {name} is generation "
        f"{generation}, and its claim is {record.kind.value} now, last held by "
        f"{record.custodian}{_history(record)}"
    )


def _history(record: ClaimRecord) -> str:
    steps = [f"#{seq} {src} -> {dst} ({site})" for seq, src, dst, site in record.trail]
    return f" [last moves: {', '.join(steps)}]" if steps else ""


def _lease_error(book: Book, lease: object, verb: str) -> Exception:
    if not isinstance(lease, Lease):
        return _type_error(lease, Lease, verb)
    said = lease_of(lease)
    if said is None or said[0] is not book:
        return ForeignHandle(f"{verb}: {lease!r} was not made by this ledger")
    _, number, step = said
    if number in book.leases:
        return ForeignHandle(f"{verb}: {lease!r} is a forged copy of the live handle")
    return StaleHandle(f"{verb}: lease {number} (step {step}) has landed; this handle is spent")
