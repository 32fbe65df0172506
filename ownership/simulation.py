"""What would be free if some claims ended: exact, and nothing is touched.

The scheduler asks before it preempts or gives up anything: all legal moves together must make the
room. Shared runs make the answer more than a sum, so counts and pins are taken down in side
tables. A base that stays pinned gives nothing: it would drain. A pin of a copy into another place
doesn't count: such a copy waits for nobody and is over soon, unless its step hangs.
"""

from typing import Self

from ownership.book import Book
from ownership.claims import DRAINING, ClaimRecord
from ownership.custody import live_claim
from ownership.handles import BatchOwned
from ownership.ids import NO_SLOT, ClaimId, RunId
from ownership.pools import Pool
from ownership.runs import Run
from ownership.values import BaseName

__all__ = ["ReleaseSimulation"]


class ReleaseSimulation:
    """Counts what a set of endings would give back, in any order. O(what it would free)."""

    def __init__(self, book: Book, pool: Pool, /, *, waits_for_copies: bool = False) -> None:
        self._book = book
        self._pool = pool
        self._waits_for_copies = waits_for_copies
        self._slots = 0
        self._pages = 0
        self._ended: set[ClaimId] = set()
        self._freed: set[ClaimId] = set()
        self._pins: dict[ClaimId, int] = {}
        self._counts: dict[RunId, int] = {}

    @property
    def slots(self) -> int:
        """Slots of its place that would be free in addition."""
        return self._slots

    @property
    def pages(self) -> int:
        """Pages of its place that would be free in addition."""
        return self._pages

    def base(self, name: BaseName, /) -> Self:
        """Suppose that this state were closed or evicted; a name that is gone adds nothing."""
        record = self._book.names.get((name.holder, name.version))
        if record is not None:
            self.end(record)
        return self

    def claim(self, claim: BatchOwned, /) -> Self:
        """Suppose that this claim were rolled back, if it is on the device: once it has landed.

        A claim in quarantine adds nothing: nobody knows when it lands.

        Raises:
            StaleHandle: the handle is spent.
        """
        record = live_claim(self._book, claim)
        if not _hangs(record):
            self.end(record)
        return self

    def end(self, record: ClaimRecord, /) -> None:
        """Suppose that this claim ended."""
        if record.number in self._ended:
            return
        self._ended.add(record.number)
        if not self._pins_left(record):
            self._free(record)
        base = record.base
        if base is not None:
            self._pins[base.number] = left = self._pins_left(base) - self._is_counted(record)
            if not left and (base.kind is DRAINING or base.number in self._ended):
                self._free(base)

    def _is_counted(self, record: ClaimRecord) -> bool:
        """Whether the pin of this claim on its base counts as one that stays."""
        return self._waits_for_copies or record.pool is self._pool or _hangs(record)

    def _pins_left(self, record: ClaimRecord) -> int:
        left = self._pins.get(record.number)
        if left is not None or not record.pins:
            return left or 0
        leaving = sum(
            claim.base is record and not self._is_counted(claim)
            for claim in self._book.moving.values()
        )
        return record.pins - leaving

    def _free(self, record: ClaimRecord) -> None:
        if record.pool is not self._pool or record.number in self._freed:
            return
        self._freed.add(record.number)
        if record.slot is not NO_SLOT:
            self._slots += 1
        self._pages += len(record.exclusive)
        run: Run | None = record.tip
        while run is not None:
            self._counts[run.number] = left = self._counts.get(run.number, run.count) - 1
            if left:
                break
            self._pages += len(run.pages)
            run = run.parent


def _hangs(record: ClaimRecord) -> bool:
    return record.step is not None and record.step.quarantined
