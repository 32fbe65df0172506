"""Dropped pages: a claim may begin behind the oldest pages of its base, or of what it loads."""

import pytest

from ownership import (
    ZEROS,
    Absorbed,
    BaseName,
    CopyFrom,
    Grown,
    LedgerError,
    Need,
    Place,
    SlotIndex,
)
from tests.ownership.support import SESSION, Desk, open_desk, snapshot

HOST = Place.HOST


def slid(desk: Desk, tokens: int, first_page: int) -> BaseName:
    """A state of ``SESSION`` that has dropped its first pages."""
    state = desk.committed(tokens)
    copy = desk.copied(desk.name(), Place.DEVICE, first_page)
    newest: object = desk.session.commit(desk.hand(copy), replaces=state)
    desk.keep(newest)
    return desk.name()


def test_a_claim_that_drops_pages_copies_the_rest_and_shares_nothing(roomy: Desk) -> None:
    """What it keeps has other neighbours than in its base."""
    roomy.committed(14)
    claim = roomy.reserve(18, roomy.name(), first_page=2)
    lease = roomy.batch.launch([claim], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.first_page, placement.initial) == (2, CopyFrom(SlotIndex(0)))
    assert (placement.position, placement.tail_copy, placement.pages) == (14, None, [4, 5, 6])
    copies = [(copy.source, copy.target) for copy in placement.page_copies]
    assert copies == [(2, 4), (3, 5)]
    roomy.batch.land(lease, Absorbed((4,)))
    view = roomy.ledger.view.describe(claim)
    assert (view.first_page, view.position, view.exclusive) == (2, 18, 1)
    assert roomy.ledger.view.covered(claim) == 20
    roomy.check()


def test_a_claim_shares_with_a_base_that_has_dropped_as_much(roomy: Desk) -> None:
    """The window goes on as it is; less than its base nobody can drop."""
    name = slid(roomy, 14, 2)
    for first_page in (0, 2):
        claim = roomy.reserve(15, name, first_page=first_page)
        lease = roomy.batch.launch([claim], step=1)
        (placement,) = roomy.ledger.view.placements(lease)
        assert (placement.first_page, placement.page_copies) == (2, ())
        assert placement.tail_copy is not None
        assert placement.tail_copy.target == placement.pages[1]
        roomy.batch.land(lease, Absorbed((1,)))
        assert roomy.ledger.view.describe(claim).pages[0] == placement.pages[0]
        roomy.check()
        roomy.batch.rollback(claim)


def test_growth_counts_from_the_first_kept_page(roomy: Desk) -> None:
    """As many pages as a window needs, whatever the position."""
    claim = roomy.copied(slid(roomy, 14, 3), Place.DEVICE)

    assert roomy.ledger.view.covered(claim) == 16
    assert roomy.batch.grow(claim, Need(24)) == Grown(2)
    assert roomy.ledger.view.covered(claim) == 24
    roomy.step([claim], 10)
    assert (roomy.ledger.view.describe(claim).exclusive, len(roomy.pages(claim))) == (0, 3)
    roomy.check()


def test_a_commit_trims_to_the_position(roomy: Desk) -> None:
    """Pages beyond it go back."""
    claim = roomy.reserve(30, slid(roomy, 14, 2))
    roomy.step([claim], 1)
    state = roomy.session.commit(roomy.hand(claim), replaces=None)

    assert len(roomy.pages(state)) == 2
    assert roomy.ledger.view.covered(state) == 16
    roomy.check()


def test_a_window_slides_on(roomy: Desk) -> None:
    """Each time the rest is copied; nothing of what was dropped is held."""
    name = slid(roomy, 14, 2)
    again = roomy.copied(name, Place.DEVICE, first_page=3)

    assert len(roomy.pages(again)) == 1
    assert roomy.ledger.view.describe(again).exclusive == 1
    roomy.step([again], 2)
    roomy.check()


def test_a_state_that_drops_pages_on_its_way_is_another_one(roomy: Desk) -> None:
    """It takes no name over: who named the whole one would get less."""
    state = roomy.committed(14)
    copy = roomy.copied(roomy.name(), HOST, first_page=2)
    newest = roomy.session.commit(roomy.hand(copy), replaces=state)

    assert roomy.ledger.view.name_of(newest) == BaseName(SESSION, 2)
    assert roomy.ledger.view.describe(newest).place is HOST
    roomy.check()


def test_a_slid_state_moves_as_any_other(roomy: Desk) -> None:
    """What it kept is shared by twins, and its name is taken over."""
    name = slid(roomy, 14, 2)
    copy, beside = roomy.copied(name), roomy.copied(name, Place.DEVICE)
    back = roomy.reserve(0, copy)

    assert roomy.ledger.view.describe(copy).first_page == 2
    assert roomy.pages(back)[0] == roomy.pages(beside)[0]
    lease = roomy.batch.launch([back], step=1)
    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.first_page, placement.source, len(placement.page_copies)) == (2, HOST, 1)
    roomy.batch.land(lease, Absorbed((0,)))
    roomy.check()


def test_what_was_dropped_is_no_twin_of_what_was_not(roomy: Desk) -> None:
    """Page by page they are alike, but a run begins elsewhere."""
    roomy.committed(14)
    whole = roomy.copied(roomy.name())
    cut = roomy.reserve(0, roomy.name(), place=HOST, first_page=1)

    assert not set(roomy.pages(whole)) & set(roomy.pages(cut))
    roomy.step([cut], 0)
    assert not set(roomy.pages(whole)) & set(roomy.pages(cut))
    roomy.check()


def test_all_but_the_tail_may_be_dropped(roomy: Desk) -> None:
    """And all, where there is none: then nothing is frozen when it lands."""
    roomy.committed(8)
    claim = roomy.reserve(9, roomy.name(), first_page=2)
    lease = roomy.batch.launch([claim], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.page_copies, len(placement.pages)) == ((), 1)
    roomy.batch.land(lease, Absorbed((1,)))
    assert roomy.ledger.view.describe(claim).exclusive == 1
    roomy.check()


@pytest.mark.parametrize(
    ("need", "words"),
    [
        (Need(20, 4), "drops 16 positions of a base at 14"),
        (Need(20, -1), "a need of 20 positions from -1"),
        (Need(-1, 0), "a need of -1 positions from 0"),
    ],
)
def test_nobody_drops_what_the_base_is_still_writing(roomy: Desk, need: Need, words: str) -> None:
    """The page that it writes stays."""
    roomy.committed(14)
    before = snapshot(roomy.ledger)

    with pytest.raises(LedgerError, match=words):
        roomy.batch.reserve(need, roomy.name(), turn="turn")
    assert snapshot(roomy.ledger) == before


def test_a_claim_without_a_base_drops_what_it_is_loaded_without(roomy: Desk) -> None:
    """A window that was saved comes back as a window: its first step lands it whole."""
    claim = roomy.reserve(18, first_page=3)
    assert (len(roomy.pages(claim)), roomy.ledger.view.covered(claim)) == (2, 20)
    roomy.check()
    lease = roomy.batch.launch([claim], step=1)
    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.first_page, placement.initial, placement.position) == (3, "zeros", 0)
    before = snapshot(roomy.ledger)
    with pytest.raises(LedgerError, match="absorbed 11 at position 0, has dropped 12"):
        roomy.batch.land(lease, Absorbed((11,)))
    assert snapshot(roomy.ledger) == before

    roomy.batch.land(lease, Absorbed((17,)))
    assert roomy.ledger.view.describe(claim).exclusive == 1
    roomy.check()
    roomy.step([claim], 1)
    state = roomy.session.commit(roomy.hand(claim), replaces=None)
    assert roomy.ledger.view.position(state) == 18
    roomy.session.close(state)
    assert roomy.is_empty()


def test_a_window_that_ends_with_a_page_has_room_for_no_more(roomy: Desk) -> None:
    """Exactly what was dropped is no state: something must be kept."""
    before = snapshot(roomy.ledger)
    for positions in (11, 12):
        with pytest.raises(LedgerError, match=f"drops 12 positions of {positions}"):
            roomy.reserve(positions, first_page=3)
    assert snapshot(roomy.ledger) == before
    claim = roomy.reserve(13, first_page=3)
    roomy.step([claim], 12)
    roomy.check()


def test_a_load_that_fails_may_only_be_rolled_back(roomy: Desk) -> None:
    """As any step that fails."""
    claim = roomy.reserve(18, first_page=3)
    roomy.fail(claim)

    roomy.check()
    roomy.batch.rollback(claim)
    assert roomy.is_empty()


def test_a_model_without_pages_has_none_to_drop() -> None:
    """Its state is as long as ever."""
    desk = open_desk(pages=0)
    desk.committed(14)
    claim = desk.reserve(18, desk.name(), first_page=2)
    lease = desk.batch.launch([claim], step=1)

    (placement,) = desk.ledger.view.placements(lease)
    assert (placement.pages, placement.page_copies) == ([], ())
    assert placement.initial == CopyFrom(SlotIndex(0))
    desk.batch.land(lease, Absorbed((4,)))
    desk.check()
    assert desk.ledger.view.pages_needed(Need(20, 2), ZEROS) == 0
