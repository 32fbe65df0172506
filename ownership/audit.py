"""Conservation, counted again from scratch: nothing that a verb has cached is believed.

Each slot stands in one column: free, batch, session, cache, draining or quarantined. Each page is
free, one claim's own, or in one run. ``quarantined`` is what nobody but a step in quarantine has.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from ownership import events
from ownership.book import Book
from ownership.claims import DRAINING, ClaimRecord
from ownership.conservation import conservation_problems
from ownership.ids import ClaimId, PageIndex, Place, RunId
from ownership.runs import Run

__all__ = ["AuditReport", "audit"]

_IN_EVENT = (
    "free_slots",
    "free_pages",
    "batch",
    "session",
    "cache",
    "draining",
    "quarantined_slots",
    "quarantined_pages",
    "host_free_slots",
    "host_free_pages",
    "host_quarantined_slots",
    "host_quarantined_pages",
)


@attrs.frozen
class AuditReport:
    """What was found. The columns count claims, in every place.

    Slots and pages are the device's, but for those that are called the host's, and for exclusive
    and shared pages, which are of both.
    """

    problems: tuple[str, ...]
    free_slots: int
    free_pages: int
    batch: int
    session: int
    cache: int
    draining: int
    quarantined: int
    quarantined_slots: int
    quarantined_pages: int
    exclusive_pages: int
    """Pages that are one claim's own, quarantine left out."""
    shared_pages: int
    """Frozen pages, in runs, quarantine left out."""
    on_device: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """Claims on the device, by column: ``"batch"``, ``"session"``, ``"cache"``, ``"draining"``,
    ``"quarantined"``."""
    in_host: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """Claims in host memory, by column."""
    host_free_slots: int = 0
    host_free_pages: int = 0
    host_quarantined_slots: int = 0
    host_quarantined_pages: int = 0

    @property
    def conserved(self) -> bool:
        """Whether everything has exactly one owner, or is free."""
        return not self.problems

    @property
    def at_rest(self) -> bool:
        """Whether all is conserved, and free or in quarantine."""
        claims = self.batch + self.session + self.cache + self.draining
        return self.conserved and not claims and not self.exclusive_pages + self.shared_pages


def audit(book: Book) -> AuditReport:
    """Recompute every column, count, pin and table; tell what does not agree."""
    claims = list(book.claims.values())
    columns = _columns(book, claims)
    count = Counter(columns.values())
    lost = [record for record in claims if columns[record.number] == "quarantined"]
    kept = [record for record in claims if columns[record.number] != "quarantined"]
    shared = _run_pages(kept)
    stuck = [page for record in lost for page in record.exclusive]
    stuck += _run_pages(lost) - shared
    device, host = book.pools[Place.DEVICE], book.pools[Place.HOST]
    report = AuditReport(
        problems=tuple(conservation_problems(book, claims)),
        free_slots=len(device.free_slots),
        free_pages=len(device.free_pages),
        batch=count["batch"],
        session=count["session"],
        cache=count["cache"],
        draining=count["draining"],
        quarantined=count["quarantined"],
        quarantined_slots=sum(record.slot in device.slots for record in lost),
        quarantined_pages=sum(page in device.pages for page in stuck),
        exclusive_pages=sum(len(record.exclusive) for record in kept),
        shared_pages=len(shared),
        on_device=_by_column(claims, columns, Place.DEVICE),
        in_host=_by_column(claims, columns, Place.HOST),
        host_free_slots=len(host.free_slots),
        host_free_pages=len(host.free_pages),
        host_quarantined_slots=sum(record.slot in host.slots for record in lost),
        host_quarantined_pages=sum(page in host.pages for page in stuck),
    )
    if book.observer is not None:
        fields = {name: getattr(report, name) for name in _IN_EVENT}
        events.audited(book, book.observer, fields, conserved=report.conserved)
    return report


def count_columns(book: Book, place: Place) -> Mapping[str, int]:
    """Claims of a place by column, as the audit counts them, and nothing else of it. O(claims)."""
    claims = list(book.claims.values())
    return _by_column(claims, _columns(book, claims), place)


def _by_column(
    claims: Iterable[ClaimRecord], columns: Mapping[ClaimId, str], place: Place
) -> Mapping[str, int]:
    return Counter(columns[record.number] for record in claims if record.pool.place is place)


def _columns(book: Book, claims: Iterable[ClaimRecord]) -> dict[ClaimId, str]:
    """Say for each claim in which column it stands."""
    hanging = {
        record.number
        for entry in book.leases.values()
        if entry.step.quarantined
        for record in entry.claims
    }
    pins_elsewhere = {
        record.base.number
        for record in claims
        if record.base is not None and record.number not in hanging
    }
    columns: dict[ClaimId, str] = {}
    for record in claims:
        orphaned = record.kind is DRAINING and record.number not in pins_elsewhere
        is_lost = orphaned or record.number in hanging
        columns[record.number] = "quarantined" if is_lost else record.kind.value
    return columns


def _run_pages(claims: Iterable[ClaimRecord]) -> set[PageIndex]:
    runs: dict[RunId, Run] = {}
    for record in claims:
        for run in () if record.tip is None else record.tip.chain():
            if run.number in runs:
                break
            runs[run.number] = run
    return {page for run in runs.values() for page in run.pages}
