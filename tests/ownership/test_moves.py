"""Moves: a turn without tokens takes a state to another place, and nobody who named it notices."""

import pytest

from ownership import (
    Absorbed,
    BaseChanged,
    BaseName,
    Place,
    StaleHandle,
)
from tests.ownership.support import CACHE, OTHER, SESSION, Desk, snapshot

HOST = Place.HOST


def test_a_moved_state_keeps_its_name(roomy: Desk) -> None:
    """A change of place is no new version: a queued turn that named it finds it there."""
    state = roomy.committed(6)
    name, version = roomy.name(), roomy.session.version
    parked = roomy.parked(state)

    view = roomy.ledger.view
    assert (view.name_of(parked), roomy.session.version) == (name, version)
    assert view.find_base(name) is not None
    assert view.free(Place.DEVICE) == (4, 16), "the replaced one has ended"
    claim = roomy.reserve(9, name)
    assert roomy.pinned(parked) == 1
    with pytest.raises(StaleHandle):
        roomy.session.close(state)
    roomy.batch.rollback(claim)
    roomy.session.close(parked)
    assert view.find_base(name) is None
    assert roomy.is_empty()


def test_names_keep_their_order_when_a_state_moves(roomy: Desk) -> None:
    """The order is that of the commits, and a move is none."""
    states = [roomy.committed(2), roomy.committed(3), roomy.committed(4)]
    names = [roomy.ledger.view.name_of(state) for state in states]
    first, second, third = states
    third = roomy.parked(third)
    second = roomy.parked(second)
    roomy.keep(first)

    assert roomy.ledger.view.resting(HOST) == (names[1], names[2])
    second = roomy.parked(second, Place.DEVICE)
    assert roomy.ledger.view.resting() == (names[0], names[1])
    roomy.keep(third)


def test_the_next_version_after_a_move_is_the_next_one(roomy: Desk) -> None:
    """Nothing was counted in between."""
    parked = roomy.parked(roomy.committed(6))
    following = roomy.committed(1, roomy.ledger.view.name_of(parked), replaces=parked)

    assert roomy.ledger.view.name_of(following) == BaseName(SESSION, 2)
    assert roomy.ledger.view.resting() == (BaseName(SESSION, 2),)
    assert roomy.ledger.view.resting(HOST) == ()


def test_a_turn_that_started_before_the_move_may_still_replace_the_state(roomy: Desk) -> None:
    """What it started from is the same state, by name."""
    state = roomy.committed(6)
    name = roomy.name()
    turn = roomy.working(3, name)
    parked = roomy.parked(state)

    newest = roomy.session.commit(roomy.hand(turn), replaces=parked)
    assert roomy.ledger.view.name_of(newest) == BaseName(SESSION, name.version + 1)
    assert roomy.ledger.view.free(HOST) == (4, 16)
    roomy.session.close(newest)
    assert roomy.is_empty()


def test_a_state_that_moves_while_it_is_copied_drains(roomy: Desk) -> None:
    """The turn that reads it still finds it where it was."""
    state = roomy.committed(6)
    turn = roomy.reserve(9, roomy.name())
    parked = roomy.parked(state)

    assert roomy.ledger.view.draining_slots == 1
    roomy.check()
    roomy.step([turn], 1)
    assert roomy.ledger.view.draining_slots == 0
    later = roomy.reserve(0, roomy.name(), place=HOST)
    assert roomy.pinned(parked) == 1
    for claim in (turn, later):
        roomy.batch.rollback(claim)
    roomy.session.close(parked)
    assert roomy.is_empty()


def test_a_move_that_ends_after_the_next_turn_is_rolled_back(roomy: Desk) -> None:
    """Commit is compare-and-swap on the base's version."""
    state = roomy.committed(6)
    copy = roomy.copied(roomy.name())
    newest = roomy.committed(1, roomy.name(), replaces=state)
    roomy.hand(copy)
    before = snapshot(roomy.ledger)

    with pytest.raises(BaseChanged, match=r"host slot 4 .* did not start from slot 1 .*; roll it"):
        roomy.session.commit(copy, replaces=newest)
    assert snapshot(roomy.ledger) == before
    roomy.session.rollback(copy)
    roomy.session.close(newest)
    assert roomy.is_empty()


def test_a_copy_beside_the_state_is_a_state_of_its_own(roomy: Desk) -> None:
    """What replaces nothing takes over nothing."""
    state = roomy.committed(6)
    copy = roomy.session.commit(roomy.hand(roomy.copied(roomy.name())), replaces=None)

    assert roomy.ledger.view.name_of(copy) == BaseName(SESSION, 2)
    assert roomy.ledger.view.name_of(state) == BaseName(SESSION, 1)
    roomy.check()


def test_a_copy_in_the_same_place_is_a_new_version(roomy: Desk) -> None:
    """It is no move, and whoever named the old one would wait for nothing."""
    state = roomy.committed(6)
    copy = roomy.copied(roomy.name(), Place.DEVICE)
    newest = roomy.session.commit(roomy.hand(copy), replaces=state)

    assert roomy.ledger.view.name_of(newest) == BaseName(SESSION, 2)
    assert roomy.ledger.view.find_base(roomy.name(1)) is None


def test_a_copy_that_has_absorbed_something_is_a_new_version(roomy: Desk) -> None:
    """In whichever place it is."""
    parked = roomy.parked(roomy.committed(6))
    turn = roomy.working(1, roomy.ledger.view.name_of(parked))
    newest = roomy.session.commit(roomy.hand(turn), replaces=parked)

    assert roomy.ledger.view.name_of(newest) == BaseName(SESSION, 2)


def test_a_move_by_way_of_a_working_claim_is_a_move(roomy: Desk) -> None:
    """A preempted turn that had absorbed nothing yet is still the state that it started from."""
    state = roomy.committed(6)
    turn = roomy.copied(roomy.name(), Place.DEVICE)
    copy = roomy.copied(turn)
    roomy.batch.rollback(turn)

    parked = roomy.session.commit(roomy.hand(copy), replaces=state)
    assert roomy.ledger.view.name_of(parked) == BaseName(SESSION, 1)
    roomy.session.close(parked)
    assert roomy.is_empty()


def test_a_preempted_turn_goes_to_host_memory_and_comes_back(roomy: Desk) -> None:
    """It ends as what it would have been: the next version of the state that it started from."""
    state = roomy.committed(6)
    turn = roomy.working(3, roomy.name())
    parked = roomy.reserve(0, turn, place=HOST)
    lease = roomy.batch.launch([parked], step=1)
    assert roomy.pinned(turn) == 1
    roomy.batch.land(lease, Absorbed((0,)))
    roomy.batch.rollback(turn)
    assert roomy.ledger.view.free(Place.DEVICE) == (3, 14)

    back = roomy.reserve(12, parked)
    roomy.step([back], 3)
    roomy.batch.rollback(parked)
    newest = roomy.session.commit(roomy.hand(back), replaces=state)
    assert roomy.ledger.view.position(newest) == 12
    assert roomy.ledger.view.name_of(newest) == BaseName(SESSION, 2)
    roomy.session.close(newest)
    assert roomy.is_empty()


def test_a_turn_from_nothing_that_was_parked_replaces_nothing(roomy: Desk) -> None:
    """It started from no state at rest, and going by another place made none of it."""
    state = roomy.committed(6)
    turn = roomy.working(5)
    parked = roomy.copied(turn)
    roomy.hand(parked)

    with pytest.raises(BaseChanged):
        roomy.session.commit(parked, replaces=state)
    kept = roomy.session.commit(parked, replaces=None)
    assert roomy.ledger.view.name_of(kept) == BaseName(SESSION, 2)
    roomy.check()


def test_the_cache_keeps_copies_by_names_of_their_own(roomy: Desk) -> None:
    """It is asked by position and by token, and no queued turn waits for one of its states."""
    cached = roomy.cache.admit(roomy.hand(roomy.working(8), CACHE))
    copy = roomy.copied(roomy.ledger.view.name_of(cached))
    moved = roomy.cache.admit(roomy.hand(copy, CACHE))

    assert roomy.ledger.view.name_of(moved) == BaseName(CACHE, 2)
    roomy.cache.evict(cached)
    roomy.cache.evict(moved)
    assert roomy.is_empty()


def test_a_fork_takes_a_parked_parent_where_it_is(roomy: Desk) -> None:
    """Another session starts from the name, and replaces nothing."""
    parked = roomy.parked(roomy.committed(6))
    other = roomy.ledger.session_port(OTHER)
    child = roomy.working(2, roomy.ledger.view.name_of(parked))
    state = other.commit(roomy.hand(child, OTHER), replaces=None)

    assert roomy.ledger.view.name_of(state).holder == OTHER
    assert roomy.ledger.view.find_base(roomy.name(1)) is not None
    other.close(state)
    roomy.session.close(parked)
    assert roomy.is_empty()
