"""Reclaim: what the dead held goes back by its type, and is counted."""

import pytest

from ownership import (
    DEVICE,
    Absorbed,
    LedgerError,
    Reclaimed,
    StaleHandle,
)
from tests.ownership.support import (
    SCHEDULER,
    SESSION,
    Desk,
)


def test_reclaim_ends_all_that_the_dead_held_by_type(desk: Desk) -> None:
    """Counted: in a run without faults a count above zero is a leak."""
    state = desk.committed(6)
    working = desk.hand(desk.working(2, desk.name()))
    pinning = desk.hand(desk.reserve(9, desk.name()))
    stranger = desk.reserve(3)

    assert desk.ledger.reclaim(SESSION) == Reclaimed(batch=2, session=1, cache=0)
    assert desk.ledger.view.counters.reclaimed == 3
    assert desk.ledger.view.held_by(SESSION) == ()
    for claim in (working, pinning):
        with pytest.raises(StaleHandle, match="was given back by reclaim"):
            desk.session.rollback(claim)
    with pytest.raises(StaleHandle):
        desk.session.close(state)
    desk.batch.rollback(stranger)
    assert desk.is_empty()
    assert desk.ledger.reclaim(SESSION) == Reclaimed(0, 0, 0)


def test_reclaim_of_a_pinned_base_lets_it_drain(desk: Desk) -> None:
    """A session dies while the first step of a turn copies out of its state."""
    desk.committed(6)
    claim = desk.reserve(9, desk.name())

    assert desk.ledger.reclaim(SESSION).session == 1
    assert desk.ledger.view.draining_slots == 1
    desk.batch.rollback(claim)
    assert desk.is_empty()


def test_reclaim_never_touches_a_lease(desk: Desk) -> None:
    """Only its completion, or the proven end of the device's thread, ends it."""
    lease = desk.batch.launch([desk.reserve(3)], step=1)

    assert desk.ledger.reclaim(SCHEDULER) == Reclaimed(0, 0, 0)
    with pytest.raises(LedgerError, match="comes back by land alone"):
        desk.ledger.reclaim(DEVICE)
    (claim,) = desk.batch.land(lease, Absorbed((1,)))
    desk.batch.rollback(claim)
    assert desk.is_empty()
