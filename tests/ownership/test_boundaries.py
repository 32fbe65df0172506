"""The last slot and the last page: what fits exactly is given, and one less is refused.

A general mutation tool moved each of these boundaries by one, and nothing had noticed.
"""

import pytest

from ownership import ZEROS, CustodianId, Grown, Need, Refused, StaleHandle
from tests.ownership.support import SCHEDULER, open_desk


def test_the_last_page_is_given_and_the_next_one_refused() -> None:
    """By ``grow`` as by ``reserve``; a page too many would be a page short in somebody's table."""
    desk = open_desk(slots=2, pages=4, page_size=4)
    claim = desk.reserve(4)

    assert desk.batch.grow(claim, Need(16)) == Grown(3)
    assert desk.ledger.view.free_pages == 0
    assert desk.batch.grow(claim, Need(17)) == Refused("room", 0, 1)
    assert desk.batch.reserve(Need(1), ZEROS, turn="next") == Refused("room", 0, 1)
    desk.check()
    desk.batch.rollback(claim)
    whole = desk.reserve(16)
    assert desk.ledger.view.free_pages == 0
    desk.batch.rollback(whole)


def test_a_refusal_for_want_of_a_slot_names_no_pages_that_are_there() -> None:
    """What is short is counted, and not what is left over."""
    desk = open_desk(slots=1, pages=16, page_size=4)
    claim = desk.reserve(4)

    assert desk.batch.reserve(Need(4), ZEROS, turn="next") == Refused("room", 1, 0)
    desk.batch.rollback(claim)


def test_a_model_without_pages_needs_none() -> None:
    """Not minus one either: the scheduler adds it up."""
    desk = open_desk(slots=1, pages=0)

    assert desk.ledger.view.pages_needed(Need(100), ZEROS) == 0


def test_a_handle_that_went_far_is_told_by_its_last_move() -> None:
    """The last few moves are kept, so the message says where it is, and not where it once was."""
    desk = open_desk()
    claim = desk.reserve(1)
    told: list[tuple[str, int]] = []
    for hop in range(9):
        here, there = CustodianId(f"actor-{hop}"), CustodianId(f"actor-{hop + 1}")
        desk.ledger.move(claim, SCHEDULER if not hop else here, there, f"Message{hop}")
        with pytest.raises(StaleHandle) as refused:
            desk.batch.rollback(claim)
        message = str(refused.value)
        told.append((message.partition(" by ")[2].partition(";")[0], message.count(" -> ")))

    assert [site for site, _ in told] == [f"Message{hop}" for hop in range(9)]
    assert [moves for _, moves in told] == [1, 2, 3, 4, 5, 6, 7, 8, 5]
