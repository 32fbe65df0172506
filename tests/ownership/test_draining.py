"""Draining: what is ended while a copy out of it is under way is free at the last unpin."""

import pytest

from ownership import (
    BaseName,
    Kind,
    StaleHandle,
)
from ownership.handles import record_of
from tests.ownership.support import (
    CACHE,
    SESSION,
    Desk,
    open_desk,
)


def test_a_closed_base_drains_until_its_copy_has_landed(desk: Desk) -> None:
    """It has no owner and no name, and the copy under way still reads it."""
    state = desk.committed(6)
    claim = desk.reserve(9, desk.name())

    desk.session.close(state)

    view = desk.ledger.view
    assert (view.draining_slots, view.free_slots, view.find_base(desk.name(1))) == (1, 2, None)
    assert view.held_by(SESSION) == ()
    assert view.audit().draining == 1
    desk.check()
    with pytest.raises(StaleHandle, match="was given back by close"):
        desk.session.close(state)
    desk.step([claim], 1)
    assert (view.draining_slots, view.free_slots) == (0, 3)
    desk.check()
    desk.batch.rollback(claim)
    assert desk.is_empty()


def test_a_draining_base_is_free_at_the_last_of_several_unpins(desk: Desk) -> None:
    """By rollback or by landing, in any order."""
    state = desk.committed(6)
    first, second = desk.reserve(9, desk.name()), desk.reserve(9, desk.name())
    desk.session.close(state)

    desk.batch.rollback(first)
    assert desk.ledger.view.draining_slots == 1
    desk.fail(second)
    assert desk.ledger.view.draining_slots == 0
    desk.batch.rollback(second)
    assert desk.is_empty()


def test_a_replaced_base_drains_as_well(desk: Desk) -> None:
    """Another turn (a fork) still copies out of it when its own session commits the next state."""
    first = desk.committed(6)
    fork = desk.reserve(9, desk.name())
    second = desk.committed(1, desk.name(), replaces=first)

    assert desk.ledger.view.draining_slots == 1
    desk.batch.rollback(fork)
    assert desk.ledger.view.draining_slots == 0
    desk.session.close(second)
    assert desk.is_empty()


def test_an_evicted_state_drains_as_well(desk: Desk) -> None:
    """DF-10: a copy's source can't be used again between the draw and the copy."""
    cached = desk.cache.admit(desk.hand(desk.working(6), CACHE))
    claim = desk.reserve(9, BaseName(CACHE, 1))
    desk.cache.evict(cached)

    assert desk.ledger.view.draining_slots == 1
    others = [desk.reserve(0) for _ in range(2)]
    assert 0 not in {desk.ledger.view.slot_of(other) for other in others}
    desk.step([claim], 1)
    assert desk.ledger.view.draining_slots == 0


def test_a_pinned_working_claim_drains_when_it_is_rolled_back(desk: Desk) -> None:
    """No verb fails because of a pin; publishing and parking will pin working claims."""
    claim = desk.working(6)
    record, _ = record_of(claim)
    assert record is not None
    record.pins += 1

    desk.batch.rollback(claim)

    assert record.kind is Kind.DRAINING
    assert desk.ledger.view.draining_slots == 1


def test_without_slots_no_slot_drains() -> None:
    """The column counts claims; the view counts slots."""
    desk = open_desk(slots=0)
    state = desk.committed(6)
    claim = desk.reserve(9, desk.name())
    desk.session.close(state)

    assert (desk.ledger.view.draining_slots, desk.ledger.view.audit().draining) == (0, 1)
    desk.batch.rollback(claim)
    assert desk.is_empty()
