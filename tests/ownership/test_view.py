"""The view: values, never a way to change anything."""

import attrs
import pytest

from ownership import (
    BaseView,
    Capacity,
    Counters,
    CustodianId,
    StaleHandle,
    StepFailed,
)
from tests.ownership.support import CACHE, SCHEDULER, SESSION, Desk


def test_the_view_counts_what_is_free(desk: Desk) -> None:
    """Planning reads these numbers at each tick."""
    view = desk.ledger.view
    claim = desk.reserve(9)

    assert view.capacity == Capacity(slots=4, pages=16, page_size=4)
    assert (view.free_slots, view.free_pages) == (3, 13)
    assert (view.draining_slots, view.quarantined_slots, view.quarantined_leases) == (0, 0, 0)
    desk.batch.rollback(claim)


def test_counters_count_what_has_happened(desk: Desk) -> None:
    """A snapshot: it does not change afterwards."""
    before = desk.ledger.view.counters
    state = desk.committed(3)
    desk.session.close(state)
    desk.batch.rollback(desk.reserve(3))
    cached = desk.cache.admit(desk.hand(desk.working(3), CACHE))
    desk.cache.evict(cached)

    assert before == Counters(0, 0, 0, 0, 0, 0)
    # Per state: reserve, launch, land, move, commit or admit, and the end.
    assert desk.ledger.view.counters == Counters(
        transitions=6 + 2 + 6, rollbacks=1, commits=1, closes=1, reclaimed=0, violations=0
    )


def test_a_base_is_described_without_its_handle(desk: Desk) -> None:
    """The scheduler never holds a session's handle."""
    desk.committed(6)
    claim = desk.reserve(9, desk.name())

    assert desk.ledger.view.find_base(desk.name()) == BaseView(position=6, pinned=1)
    assert desk.ledger.view.find_base(desk.name(9)) is None
    desk.batch.rollback(claim)


def test_a_claim_knows_the_state_that_it_started_from(desk: Desk) -> None:
    """Also when that is gone: its session judges by it what the claim may replace."""
    state = desk.committed(6)
    claim, other = desk.reserve(9, desk.name()), desk.reserve(3)
    view = desk.ledger.view

    assert (view.origin_of(claim), view.origin_of(other)) == (desk.name(), None)
    desk.session.close(state)
    assert view.origin_of(claim) == desk.name()
    for working in (claim, other):
        desk.batch.rollback(working)
    with pytest.raises(StaleHandle):
        view.origin_of(claim)


def test_what_hangs_is_listed_with_what_it_pins(desk: Desk) -> None:
    """A base that only a hanging step reads is out of reach, drained or not; each is told once."""
    state = desk.committed(6)
    view = desk.ledger.view
    hanging = [desk.reserve(9, desk.name()), desk.reserve(9, desk.name()), desk.reserve(3)]
    lease = desk.batch.launch(hanging, step=5)
    assert view.hanging() == (), "it runs"
    desk.ledger.quarantine(lease)

    found = view.hanging()
    assert [claim.position for claim in found] == [6, 6, 6, 0]
    assert [claim.pinned for claim in found].count(2) == 1
    desk.session.close(state)
    assert len(view.hanging()) == 4, "it drains behind them"
    for claim in desk.batch.land(lease, StepFailed("it broke")):
        desk.batch.rollback(claim)
    assert (view.hanging(), desk.is_empty()) == ((), True)


def test_states_rest_in_the_order_of_their_commits(desk: Desk) -> None:
    """Not in the order of their claims: the oldest commit is the first to be asked."""
    early, late = desk.hand(desk.working(1)), desk.hand(desk.working(1))
    second = desk.session.commit(late, replaces=None)
    first = desk.session.commit(early, replaces=None)

    assert desk.ledger.view.describe(second).name == desk.name(1)
    assert desk.ledger.view.describe(first).name == desk.name(2)
    assert desk.ledger.view.resting() == (desk.name(1), desk.name(2))


def test_custody_is_listed_by_custodian(desk: Desk) -> None:
    """At rest each actor's own list of what it holds equals this one."""
    claims = [desk.reserve(3), desk.reserve(3)]
    state = desk.committed(3)
    view = desk.ledger.view

    assert view.held_by(SCHEDULER) == tuple(map(view.describe, claims))
    assert view.held_by(SESSION) == (view.describe(state),)
    assert view.held_by(CustodianId("nobody")) == ()


def test_a_spent_handle_is_not_described(desk: Desk) -> None:
    """Its slot may be another's by now."""
    claim = desk.reserve(3)
    desk.batch.rollback(claim)

    view = desk.ledger.view
    for question in (view.describe, view.position, view.slot_of, view.covered):
        with pytest.raises(StaleHandle):
            question(claim)


@pytest.mark.parametrize("field", ["custodian", "position"])
def test_answers_are_frozen(desk: Desk, field: str) -> None:
    """Nobody can mistake one for a handle to write through."""
    seen = desk.ledger.view.describe(desk.reserve(3))

    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(seen, field, "mine")


def test_launched_steps_are_listed_until_they_land(desk: Desk) -> None:
    """Supervision asks what is still on the device when the actor that knew is gone."""
    first = desk.batch.launch([desk.reserve(3)], step=1)
    second = desk.batch.launch([desk.reserve(3)], step=2)
    assert desk.ledger.view.leases() == (first, second)

    desk.batch.land(first, StepFailed("it broke"))
    assert desk.ledger.view.leases() == (second,)
    del second
    assert desk.ledger.view.leases() == ()
