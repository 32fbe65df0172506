"""Quarantine: what a lost or hanging device may still write is not free."""

import pytest

from ownership import (
    Absorbed,
    LedgerError,
    StepFailed,
)
from tests.ownership.support import SCHEDULER, Desk, snapshot

FAILED = StepFailed("it broke")


def test_quarantine_is_counted_until_the_lease_lands_as_failed(desk: Desk) -> None:
    """The device that hangs may still write: nothing of it is free."""
    view = desk.ledger.view
    lease = desk.batch.launch([desk.working(5, covers=8), desk.reserve(3)], step=5)
    desk.ledger.quarantine(lease)
    desk.ledger.quarantine(lease)

    assert (view.quarantined_leases, view.quarantined_slots, view.quarantined_pages) == (1, 2, 3)
    report = view.audit()
    assert (report.quarantined, report.quarantined_slots, report.quarantined_pages) == (2, 2, 3)
    assert (report.batch, report.exclusive_pages, report.shared_pages) == (0, 0, 0)
    assert (report.conserved, report.at_rest) == (True, True)
    assert desk.ledger.reclaim(SCHEDULER).batch == 0

    for claim in desk.batch.land(lease, FAILED):
        desk.batch.rollback(claim)
    assert (view.quarantined_leases, view.quarantined_slots, view.quarantined_pages) == (0, 0, 0)
    assert desk.is_empty()


def test_a_quarantined_lease_does_not_land_as_done(desk: Desk) -> None:
    """Its turns have failed already; its device was given up."""
    lease = desk.batch.launch([desk.reserve(3)], step=5)
    desk.ledger.quarantine(lease)
    before = snapshot(desk.ledger)

    with pytest.raises(LedgerError, match="it can only land as failed"):
        desk.batch.land(lease, Absorbed((1,)))
    assert snapshot(desk.ledger) == before
    desk.batch.land(lease, FAILED)


def test_quarantine_holds_what_it_alone_pins_and_shares(desk: Desk) -> None:
    """A drained base stays as long as the copy out of it may run; shared pages are not lost."""
    view = desk.ledger.view
    first = desk.committed(6)
    second = desk.committed(4, desk.name())
    lease = desk.batch.launch([desk.reserve(9, desk.name(1))], step=5)
    desk.session.close(first)
    assert (view.draining_slots, view.audit().draining) == (1, 1)

    desk.ledger.quarantine(lease)

    report = view.audit()
    assert (report.draining, report.quarantined, report.session) == (0, 2, 1)
    assert (view.quarantined_slots, report.quarantined_slots) == (2, 2)
    # Its own two pages and the base's tail; the base's full page is the second state's as well.
    assert (view.quarantined_pages, report.quarantined_pages) == (3, 3)
    desk.session.close(second)
    assert (view.quarantined_pages, view.audit().quarantined_pages) == (4, 4)
    assert view.audit().at_rest
    for claim in desk.batch.land(lease, FAILED):
        desk.batch.rollback(claim)
    assert desk.is_empty()
