"""Scenarios from the public record of engines in use, on the ledger alone.

The partition oracle of ``SCENARIOS.md`` is :meth:`Desk.check`, asserted after every step.
"""

import pytest

from ownership import BaseName, Need, Refused, StaleHandle
from tests.ownership.support import CACHE, SESSION, Desk, open_desk


def test_df_1_a_refused_later_turn_leaves_its_sessions_slot(desk: Desk) -> None:
    """The target bug: the slot that a session keeps is not given back by its turn's refusal."""
    state = desk.committed(6)
    slot = desk.ledger.view.slot_of(state)
    for _ in range(9):
        refused = desk.batch.reserve(Need(1000), desk.name(), turn="later")
        assert isinstance(refused, Refused)
        desk.check()

    others = [desk.reserve(1) for _ in range(3)]
    assert slot not in {desk.ledger.view.slot_of(other) for other in others}
    for other in others:
        desk.batch.rollback(other)
    desk.session.close(state)
    assert desk.is_empty()
    with pytest.raises(StaleHandle):
        desk.session.close(state)
    assert desk.is_empty()


def test_df_2_a_rejected_first_turn_gives_back_what_it_drew_from_the_cache(desk: Desk) -> None:
    """The mirror: "skip if it has a session" leaks here. The retry starts clean."""
    cached = desk.cache.admit(desk.hand(desk.working(6), CACHE))
    drawn = desk.reserve(9, BaseName(CACHE, 1))
    slot = desk.ledger.view.slot_of(drawn)
    desk.check()

    desk.batch.rollback(drawn)
    desk.check()
    found = desk.ledger.view.find_base(BaseName(CACHE, 1))
    assert found is not None
    assert found.pinned == 0
    desk.cache.evict(cached)
    desk.check()
    retry = desk.reserve(9)
    seen = desk.ledger.view.describe(retry)
    assert (seen.position, seen.base, slot is not None) == (0, None, True)
    desk.batch.rollback(retry)
    assert desk.is_empty()


def test_df_9_a_donated_slot_has_no_batch_handle_left(desk: Desk) -> None:
    """After the active slot went to the cache, the dead record's handle opens nothing."""
    working = desk.hand(desk.working(6), CACHE)
    cached = desk.cache.admit(working)
    desk.check()

    for verb in (desk.cache.rollback, desk.cache.admit, desk.ledger.view.describe):
        with pytest.raises(StaleHandle, match="its claim is cache now, last held by cache"):
            verb(working)
        desk.check()
    desk.cache.evict(cached)
    assert desk.is_empty()


@pytest.mark.parametrize("end", ["land", "fail", "rollback"])
def test_df_10_a_copys_source_is_not_reused_before_the_copy(end: str) -> None:
    """Eviction between draw and copy drains; the slot is free once the copy has completed."""
    desk = open_desk(slots=2)
    cached = desk.cache.admit(desk.hand(desk.working(6), CACHE))
    copy = desk.reserve(9, BaseName(CACHE, 1))
    desk.cache.evict(cached)
    desk.check()
    refused = desk.batch.reserve(Need(1), BaseName(CACHE, 1), turn="late")
    assert refused == Refused("base", 0, 0)
    assert isinstance(desk.batch.reserve(Need(1), desk.name(1), turn="late"), Refused)

    if end == "land":
        desk.step([copy], 3)
    elif end == "fail":
        desk.fail(copy)
    if end != "rollback":
        assert desk.ledger.view.free_slots == 1
        desk.check()
    desk.batch.rollback(copy)
    assert desk.is_empty()


def test_one_slot_serves_any_number_of_sessions() -> None:
    """A queued turn holds nothing, so a session at rest can always give its slot up."""
    desk = open_desk(slots=1, pages=0)
    for turn in range(5):
        state = desk.committed(turn + 1)
        desk.check()
        desk.session.close(state)
    assert desk.is_empty()
    assert desk.ledger.view.held_by(SESSION) == ()
