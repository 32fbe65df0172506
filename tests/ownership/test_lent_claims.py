"""Working claims as bases: lent, pinned, and never launched while they are copied."""

import pytest

from ownership import (
    Absorbed,
    LedgerError,
    Need,
    Place,
    Refused,
    StaleHandle,
    StepFailed,
)
from tests.ownership.support import CACHE, SCHEDULER, Desk, snapshot, untyped

HOST = Place.HOST


def test_a_working_claim_is_lent_as_a_base_and_stays_the_callers(roomy: Desk) -> None:
    """Pinned, so that no step moves it on while it is copied; it goes on when that has landed."""
    turn = roomy.working(6)
    fork = roomy.reserve(9, turn)
    before = snapshot(roomy.ledger)

    with pytest.raises(LedgerError, match="is pinned by 1 copies under way: wait for them"):
        roomy.batch.launch([turn], step=2)
    with pytest.raises(LedgerError, match="is pinned by 1 copies under way"):
        roomy.batch.launch([fork, turn], step=2)
    assert snapshot(roomy.ledger) == before
    tails = roomy.pages(turn)[1], roomy.pages(fork)[1]
    lease = roomy.batch.launch([fork], step=2)
    (placement,) = roomy.ledger.view.placements(lease)
    assert placement.tail_copy is not None
    assert (placement.tail_copy.source, placement.tail_copy.target) == tails
    (fork,) = roomy.batch.land(lease, Absorbed((1,)))
    roomy.step([turn, fork], 1, 1)
    assert [roomy.ledger.view.position(claim) for claim in (turn, fork)] == [7, 8]
    for claim in (turn, fork):
        roomy.batch.rollback(claim)
    assert roomy.is_empty()


def test_a_working_claim_may_grow_while_it_is_copied(roomy: Desk) -> None:
    """The copy is of what it has absorbed."""
    turn = roomy.working(6)
    fork = roomy.reserve(9, turn)
    assert not isinstance(roomy.batch.grow(turn, Need(12)), Refused)
    roomy.step([fork], 1)
    roomy.check()


def test_only_a_valid_claim_of_ones_own_is_lent(roomy: Desk) -> None:
    """What holds no state yet, or none any more, or is elsewhere, can't be copied."""
    fresh, failed = roomy.reserve(3), roomy.reserve(3)
    roomy.fail(failed)
    away, done = roomy.hand(roomy.working(3)), roomy.working(3)
    before = snapshot(roomy.ledger)

    with pytest.raises(LedgerError, match=r"slot 0 .* is zeros: nothing to copy"):
        roomy.reserve(0, fresh)
    with pytest.raises(LedgerError, match=r"slot 1 .* is undefined: nothing to copy"):
        roomy.reserve(0, failed)
    with pytest.raises(StaleHandle, match=r"reserve: slot 2 .* was moved from scheduler"):
        roomy.reserve(0, away)
    assert snapshot(roomy.ledger) == before
    roomy.batch.rollback(done)
    with pytest.raises(StaleHandle, match=r"reserve: slot 3 .* was given back by rollback"):
        roomy.reserve(0, done)


def test_a_state_at_rest_is_named_and_not_lent(roomy: Desk) -> None:
    """Its handle is its session's."""
    state, reserve = roomy.committed(3), untyped(roomy.batch.reserve)
    with pytest.raises(TypeError, match="reserve takes a BatchOwned, not SessionOwned"):
        reserve(Need(0), state, turn="turn")


def test_a_cancel_during_a_park_gives_back_both(roomy: Desk) -> None:
    """The working claim drains until the copy has landed, and then the copy goes."""
    turn = roomy.working(6)
    lease = roomy.batch.launch([roomy.reserve(0, turn, place=HOST)], step=2)
    roomy.batch.rollback(turn)

    assert roomy.ledger.audit().draining == 1
    (copy,) = roomy.batch.land(lease, StepFailed("it broke"))
    roomy.batch.rollback(copy)
    assert roomy.is_empty()


@pytest.mark.parametrize("how", ["rollback", "admit", "commit", "reclaim"])
def test_whatever_becomes_of_a_lent_claim_the_copy_goes_on(roomy: Desk, how: str) -> None:
    """No verb fails because of a pin: given back, it drains; kept, it is at rest and pinned."""
    turn = roomy.working(6, covers=16)
    fork = roomy.reserve(9, turn)
    lease = roomy.batch.launch([fork], step=2)
    if how == "rollback":
        roomy.batch.rollback(turn)
    elif how == "reclaim":
        assert roomy.ledger.reclaim(SCHEDULER).batch == 1
        del turn
    elif how == "admit":
        roomy.keep(roomy.cache.admit(roomy.hand(turn, CACHE)))
    else:
        roomy.keep(roomy.session.commit(roomy.hand(turn), replaces=None))
    roomy.check()
    report = roomy.ledger.audit()
    assert report.draining == (how in ("rollback", "reclaim"))
    assert report.cache + report.session == (how in ("admit", "commit"))
    roomy.batch.land(lease, Absorbed((1,)))
    assert roomy.ledger.audit().draining == 0
    roomy.check()
