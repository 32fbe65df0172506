"""The ledger: one table that knows who owns what, and refuses everybody else.

The problem. A scheduler takes memory for a request before it knows whether the request fits. If it
does not, the memory has to go back, unless it was only borrowed: from a session, which keeps it
between its turns, or from the cache, which shares it. An engine that passes bare integers has to
guess, and guesses wrong both ways: it gives back what a session still has, so that two clients
write into one state, or it keeps what nobody has, so that it runs dry.

The rule. Memory is a claim, a claim has one live handle, and the handle's type is its owner.
``rollback`` accepts a ``BatchOwned`` and there is nothing else that it could free; a session's
state is a ``SessionOwned``, which only the session's own ``commit`` and ``close`` accept. A turn
starts from a *copy* of its base, so that giving it back can't touch what it started from.

Conservation. Each slot stands in one column: free, batch, session, cache, draining, quarantined;
each page is free, one claim's own (what a step may write), or frozen in a run (what is shared).
Every transition keeps this, in O(1) plus what it gives back; ``view.audit()`` counts it again.

What was rejected. *Reference counts by hand*: whoever forgets one leaks, whoever does it twice
frees. Pins here are part of the working claim, and begin and end with it. *Flags* ("has a
session"): they say what a request is, not what it owns. *Verbs as messages*: a close then crosses
a commit in flight; verbs are plain calls, and what travels is handles. *Freeing in a finaliser*:
it hides the leak; a live handle that is garbage collected is recorded, and nothing is freed.

The code. ``book`` is the table; ``admission`` (reserve, grow), ``stepping`` (launch, land) and
``endings`` (rollback, commit, close, admit, evict) are the verbs; ``custody`` is the check that
each begins with; ``runs`` are the frozen pages; ``ports`` say who may call what.
"""

from collections.abc import Sequence
from typing import final

from ownership import custody, endings, events, stepping
from ownership.audit import AuditReport
from ownership.book import Book
from ownership.custody import Mover, misuse
from ownership.handles import ClaimHandle, Lease
from ownership.ids import DEVICE, CustodianId, PageIndex, Place, SlotIndex
from ownership.observer import Observer
from ownership.ports import BatchPort, CachePort, SessionPort
from ownership.values import Capacity, Reclaimed
from ownership.view import LedgerView

__all__ = ["Ledger"]


@final
class Ledger:
    """Hands out ports, keeps custody, and shows itself; the verbs are on the ports alone.

    Not thread-safe: every port, and the ledger itself, belongs to one thread.

    Args:
        capacity: how much there is to own on the device.
        host: in host memory; None: nothing.
        observer: is told each change of owner; None costs one attribute test.
        track_freed: remember what was given back, for :meth:`drain_freed`.
    """

    __slots__ = ("_book", "_mover", "_view")

    def __init__(
        self,
        capacity: Capacity,
        *,
        host: Capacity | None = None,
        observer: Observer | None = None,
        track_freed: bool = False,
    ) -> None:
        _check_alike(capacity, host)
        self._book = Book(capacity, host, track_freed)
        self._view = LedgerView(self._book)
        self._mover = custody.mover(self._book)
        self.observer = observer

    @property
    def observer(self) -> Observer | None:
        """Who is told of each change of owner. A log that can be audited has one from the start."""
        return self._book.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        book = self._book
        book.observer = observer
        if observer is not None and not book.seq:
            events.opened(book, observer)

    @property
    def view(self) -> LedgerView:
        """Questions that change nothing."""
        return self._view

    def batch_port(self, custodian: CustodianId, /) -> BatchPort:
        """Bind the scheduler's verbs to an actor."""
        return BatchPort(self._book, self._actor(custodian))

    def session_port(self, custodian: CustodianId, /) -> SessionPort:
        """Bind a session's verbs to an actor."""
        return SessionPort(self._book, self._actor(custodian))

    def cache_port(self, custodian: CustodianId, /) -> CachePort:
        """Bind the prefix cache's verbs to an actor."""
        return CachePort(self._book, self._actor(custodian))

    def move(
        self, handle: ClaimHandle, source: CustodianId, target: CustodianId, site: str
    ) -> None:
        """Hand a live handle from one custodian to another; for mailboxes.

        Args:
            site: where this happens and in which message, for errors; static text.

        Raises:
            StaleHandle: the handle is spent, or ``source`` does not hold it.
            LedgerError: the target is the device, where ``launch`` alone leads.
        """
        self._mover(handle, source, target, site)

    def mover(self) -> Mover:
        """``move`` itself, without the ledger's name before it: for every hop of a handle."""
        return self._mover

    def reclaim(self, custodian: CustodianId, /) -> Reclaimed:
        """End all claims in the custody of the dead, by the type of their handles; for supervision.

        Counted, because it hides leaks. A lease is never touched: its claims are the device's.
        """
        return endings.reclaim(self._book, custodian)

    def quarantine(self, lease: Lease, /) -> None:
        """Put a step out of reach: its device is gone or hangs. It can only land as failed."""
        stepping.quarantine(self._book, lease)

    def drain_freed(
        self, place: Place = Place.DEVICE
    ) -> tuple[Sequence[SlotIndex], Sequence[PageIndex]]:
        """Return what was given back since the last call, so that a device can poison it.

        Numbers are a device's own: from 0 in each place.

        Raises:
            LedgerError: the ledger was made without ``track_freed``.
        """
        pool = self._book.pools[place]
        freed = pool.freed
        if freed is None:
            raise misuse(self._book, "drain_freed: the ledger was made without track_freed")
        slots = tuple(map(pool.local_slot, freed.slots))
        pages = tuple(pool.local_pages(freed.pages))
        freed.slots.clear()
        freed.pages.clear()
        return slots, pages

    def audit(self) -> AuditReport:
        """Count everything again from scratch. O(everything)."""
        return self._view.audit()

    def _actor(self, custodian: CustodianId) -> CustodianId:
        if custodian == DEVICE:
            raise misuse(self._book, "a port belongs to an actor; the device has leases")
        return custodian


def _check_alike(device: Capacity, host: Capacity | None) -> None:
    """A state fits into host memory only if that is cut like the device's."""
    if host is None:
        return
    if host.page_size != device.page_size:
        msg = f"host pages of {host.page_size} positions, device pages of {device.page_size}"
        raise ValueError(msg)
    if (host.slots and not device.slots) or (host.pages and not device.pages):
        msg = f"host memory for {host}, but the device has {device}: nothing could be copied there"
        raise ValueError(msg)
