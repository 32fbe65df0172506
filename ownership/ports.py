"""Who may call what: one small final class per kind of actor, each bound to one custodian.

A verb is a plain call, made inside its actor's handler, whole or not at all: none is ever in
flight, and none can be cancelled half-way. Every verb wants live handles in the custody of the
port's own actor, and leaves everything as it was when it raises.

Raises, every verb:
    TypeError: the argument is of another type; the message names the verb that takes it.
    StaleHandle: the handle was spent, moved on, or its claim is on the device.
    WrongOwner: the claim belongs to another kind of owner; the handle is forged.
    ForeignHandle: another ledger made the handle, or nobody did.
    LedgerError: the claim is in no state for the verb.
"""

from collections.abc import Sequence
from typing import final

from ownership import admission, endings, stepping
from ownership.book import Book
from ownership.handles import BatchOwned, CacheOwned, Lease, SessionOwned
from ownership.ids import CustodianId, Place
from ownership.marks import Consume
from ownership.values import Base, GrowResult, LandOutcome, Need, Refused

__all__ = ["BatchPort", "CachePort", "SessionPort"]


@final
class BatchPort:
    """The scheduler's verbs: they begin working claims, lend them to the device, give them back."""

    __slots__ = ("_book", "_custodian")

    def __init__(self, book: Book, custodian: CustodianId, /) -> None:
        self._book = book
        self._custodian = custodian

    def reserve(
        self, need: Need, base: Base | BatchOwned, /, *, turn: str, place: Place = Place.DEVICE
    ) -> BatchOwned | Refused:
        """Begin a working claim at the position of its base; all or nothing.

        Takes a slot and the pages that ``need`` asks for beyond the base's full ones, shares those,
        and pins the base until the claim's first step has landed. Nothing is copied yet: the slot
        and the tail are to be copied by that step. In another place than the base's, or where pages
        are dropped, the full pages are copied as well, all but those of which a copy is there.

        Args:
            need: positions that the claim must cover, the base's included. Without a base, pages
                are dropped of a state that the first step loads, and lands whole.
            base: the state to start from; ``ZEROS`` to start from nothing. A working claim of this
                port's own is only lent, and can't be launched until the copy has landed.
            turn: a label for events and errors.
            place: where the claim lives. In ``Place.FILE`` it takes nothing but the pin, and can
                only be rolled back.

        Returns:
            The claim, in this port's custody; or how much was missing; or that the base is gone.

        Raises:
            LedgerError: a negative need, pages dropped that the base has not filled, a working
                claim as base that has no valid state, or a claim in a file without a base.

        O(pages of the base and of the need).
        """
        return admission.reserve(self._book, self._custodian, need, base, turn, place)

    def grow(self, claim: BatchOwned, need: Need, /) -> GrowResult:
        """Add pages until the claim covers ``need``; all or nothing. The claim stays the caller's.

        Raises:
            LedgerError: the claim is undefined after a failed step, or in a file.
        """
        return admission.grow(self._book, self._custodian, claim, need)

    def launch(self, claims: Consume[Sequence[BatchOwned]], /, *, step: int) -> Lease:
        """Lend the claims of all rows to the device: one handle for them until ``land``.

        Raises:
            LedgerError: no claims, one of them twice, one that is undefined after a failed step or
                has read its base into a file, or one that a copy under way has pinned.
        """
        return stepping.launch(self._book, self._custodian, claims, step)

    def land(self, lease: Consume[Lease], outcome: LandOutcome, /) -> tuple[BatchOwned, ...]:
        """Take a step's claims back: the same handles, in the order of the launch.

        Positions advance, pages that were filled are frozen into runs, and pins on bases end. After
        a failed step the claims are undefined, and can only be rolled back.

        Raises:
            LedgerError: not one number per row, a position beyond what the claim's pages cover,
                less than a state loaded without its first pages has dropped, or a success of a
                lease in quarantine.
        """
        return stepping.land(self._book, self._custodian, lease, outcome)

    def rollback(self, claim: Consume[BatchOwned], /) -> None:
        """Give a working claim back; what it started from is untouched.

        O(number of pages given back).
        """
        endings.rollback(self._book, self._custodian, claim, "BatchPort.rollback")


@final
class SessionPort:
    """A session's verbs: they keep a finished turn's claim, or give it back."""

    __slots__ = ("_book", "_custodian", "_holder")

    def __init__(self, book: Book, custodian: CustodianId, /) -> None:
        self._book = book
        self._custodian = custodian
        self._holder = book.holder(custodian)

    @property
    def version(self) -> int:
        """Version of the newest committed state; before the first, the number that it exceeds."""
        return self._holder.version

    def commit(
        self, working: Consume[BatchOwned], /, *, replaces: Consume[SessionOwned] | None
    ) -> SessionOwned:
        """Make a finished turn's working claim the session's; both arguments are spent.

        After this call a rollback of the claim cannot be written: no ``BatchOwned`` names it.

        Args:
            working: claim of a finished turn, valid at its position.
            replaces: the state that the turn started from; it goes back to the pool, after draining
                if copies out of it are under way. None: what the session has, it keeps.

        Returns:
            The session's state, one generation on, named by this custodian and ``version``. An
            unchanged copy of ``replaces`` in another place takes over its name instead.

        Raises:
            BaseChanged: the working claim did not start from ``replaces``.
            LedgerError: the working claim is not valid, or has absorbed nothing.

        O(number of pages given back).
        """
        return endings.commit(self._book, self._holder, working, replaces)

    def close(self, state: Consume[SessionOwned], /) -> None:
        """Give a state back, after draining if copies out of it are under way."""
        endings.close(self._book, self._custodian, state)

    def rollback(self, claim: Consume[BatchOwned], /) -> None:
        """Give a working claim back; what it started from is untouched."""
        endings.rollback(self._book, self._custodian, claim, "SessionPort.rollback")


@final
class CachePort:
    """The prefix cache's verbs: they keep a published claim, or give it back."""

    __slots__ = ("_book", "_holder")

    def __init__(self, book: Book, custodian: CustodianId, /) -> None:
        self._book = book
        self._holder = book.holder(custodian)

    def admit(self, working: Consume[BatchOwned], /) -> CacheOwned:
        """Make a working claim the cache's, immutable from here on.

        Raises:
            LedgerError: the working claim is not valid, or has absorbed nothing.
        """
        return endings.admit(self._book, self._holder, working)

    def evict(self, state: Consume[CacheOwned], /) -> None:
        """Give a state back, after draining if copies out of it are under way."""
        endings.evict(self._book, self._holder.custodian, state)

    def rollback(self, claim: Consume[BatchOwned], /) -> None:
        """Give a working claim back; what it started from is untouched."""
        endings.rollback(self._book, self._holder.custodian, claim, "CachePort.rollback")
