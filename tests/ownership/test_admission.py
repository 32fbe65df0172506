"""``reserve`` and ``grow``: whole or not at all."""

import pytest

from ownership import (
    NO_SLOT,
    ZEROS,
    BaseName,
    Content,
    Grown,
    LedgerError,
    Need,
    Refused,
    StaleHandle,
)
from tests.ownership.support import CACHE, OTHER, SCHEDULER, Desk, open_desk, snapshot


def test_a_claim_from_nothing_has_a_slot_and_covering_pages(desk: Desk) -> None:
    """Its content is to be cleared, which is not the same as valid at position 0."""
    claim = desk.reserve(9, turn="turn-1")

    seen = desk.ledger.view.describe(claim)
    assert (seen.slot, seen.pages, seen.position) == (0, (0, 1, 2), 0)
    assert (seen.content, seen.base, seen.turn) == (Content.ZEROS, None, "turn-1")
    assert (seen.custodian, seen.generation, seen.exclusive) == (SCHEDULER, 1, 3)
    assert desk.ledger.view.covered(claim) == 12
    desk.check()


@pytest.mark.parametrize(
    ("positions", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (64, 16)], ids=str
)
def test_pages_cover_the_need_and_no_more(desk: Desk, positions: int, pages: int) -> None:
    """A page too few is a write out of bounds, one too many a row less."""
    assert desk.ledger.view.pages_needed(Need(positions), ZEROS) == pages
    claim = desk.reserve(positions)

    assert len(desk.ledger.view.describe(claim).pages) == pages
    assert desk.ledger.view.free_pages == 16 - pages
    desk.check()


def test_a_claim_from_a_base_shares_its_full_pages_and_copies_the_tail(desk: Desk) -> None:
    """Only the tail and what comes after it is taken: a turn costs its new tokens."""
    desk.committed(6)
    assert desk.ledger.view.pages_needed(Need(9), desk.name()) == 2
    claim = desk.reserve(9, desk.name())

    seen = desk.ledger.view.describe(claim)
    assert (seen.position, seen.content, seen.base) == (6, Content.COPY, desk.name())
    assert (seen.pages, seen.exclusive) == ((0, 2, 3), 2)
    assert desk.ledger.view.find_base(desk.name()) is not None
    desk.check()


@pytest.mark.parametrize("need", [0, 3, 6])
def test_a_base_with_a_tail_always_costs_a_page(desk: Desk, need: int) -> None:
    """Whatever the need says: the tail is copied, and the base's positions are covered."""
    desk.committed(6)

    assert desk.ledger.view.pages_needed(Need(need), desk.name()) == 1
    claim = desk.reserve(need, desk.name())
    assert desk.ledger.view.covered(claim) == 8
    desk.check()


def test_a_base_without_a_tail_costs_no_page_of_its_own(desk: Desk) -> None:
    """All its pages are frozen, and shared."""
    desk.committed(8)

    claim = desk.reserve(8, desk.name())
    assert desk.ledger.view.describe(claim).exclusive == 0
    assert desk.ledger.view.free_pages == 14
    desk.check()


def test_a_cached_state_is_a_base_as_well(desk: Desk) -> None:
    """It is found by the cache's name and version."""
    cached = desk.cache.admit(desk.hand(desk.working(5), CACHE))
    assert desk.ledger.view.describe(cached).name == BaseName(CACHE, 1)

    claim = desk.reserve(6, BaseName(CACHE, 1))
    assert desk.ledger.view.position(claim) == 5
    desk.check()


def test_no_free_slot_is_refused_with_numbers(desk: Desk) -> None:
    """A value, not an error: the turn waits."""
    claims = [desk.reserve(1) for _ in range(4)]
    before = snapshot(desk.ledger)

    refused = desk.batch.reserve(Need(64), ZEROS, turn="late")
    assert refused == Refused("room", slots_short=1, pages_short=4)
    assert snapshot(desk.ledger) == before
    assert len(claims) == 4


def test_too_few_pages_are_refused_with_numbers_and_take_no_slot(desk: Desk) -> None:
    """All or nothing: a slot taken before the pages were counted would leak here."""
    before = snapshot(desk.ledger)

    assert desk.batch.reserve(Need(65), ZEROS, turn="big") == Refused("room", 0, 1)
    assert snapshot(desk.ledger) == before


def test_a_refused_claim_pins_no_base(desk: Desk) -> None:
    """The mirror of the seed's bug: what was refused has nothing to give back."""
    desk.committed(6)
    before = snapshot(desk.ledger)

    assert desk.batch.reserve(Need(100), desk.name(), turn="big") == Refused("room", 0, 10)
    found = desk.ledger.view.find_base(desk.name())
    assert found is not None
    assert found.pinned == 0
    assert snapshot(desk.ledger) == before


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_base_that_is_gone_is_refused_as_such(desk: Desk, version: int) -> None:
    """Given up, replaced, or never there: the turn starts from something else."""
    first = desk.committed(6)
    desk.committed(2, desk.name(), replaces=first)

    assert desk.batch.reserve(Need(9), desk.name(version), turn="t") == Refused("base", 0, 0)
    assert desk.batch.reserve(Need(9), BaseName(OTHER, 2), turn="t") == Refused("base", 0, 0)
    assert not isinstance(desk.batch.reserve(Need(9), desk.name(2), turn="t"), Refused)


def test_a_base_that_is_gone_needs_the_pages_of_nothing(desk: Desk) -> None:
    """Planning asks before it knows; the turn would be computed again."""
    assert desk.ledger.view.pages_needed(Need(9), desk.name(7)) == 3


def test_a_negative_need_is_a_mistake(desk: Desk) -> None:
    """Nobody means it."""
    with pytest.raises(LedgerError, match="a need of -1 positions"):
        desk.batch.reserve(Need(-1), ZEROS, turn="t")
    assert desk.is_empty()


def test_without_slots_a_claim_has_none() -> None:
    """Attention-only models: pages alone bound the claims."""
    desk = open_desk(slots=0)
    claims = [desk.reserve(4) for _ in range(16)]

    assert {desk.ledger.view.slot_of(claim) for claim in claims} == {NO_SLOT}
    assert desk.batch.reserve(Need(1), ZEROS, turn="t") == Refused("room", 0, 1)
    desk.check()
    for claim in claims:
        desk.batch.rollback(claim)
    assert desk.is_empty()


def test_without_pages_a_claim_has_none() -> None:
    """Recurrent models: a slot holds any number of tokens."""
    desk = open_desk(slots=1, pages=0)
    claim = desk.reserve(1_000_000)

    assert desk.ledger.view.describe(claim).pages == ()
    assert desk.batch.grow(claim, Need(2_000_000)) == Grown(0)
    assert desk.batch.reserve(Need(1), ZEROS, turn="t") == Refused("room", 1, 0)
    desk.step([claim], 3_000_000)
    desk.check()


def test_grow_adds_pages_until_the_need_is_covered(desk: Desk) -> None:
    """The claim stays the caller's, the same handle."""
    claim = desk.reserve(3)

    assert desk.batch.grow(claim, Need(4)) == Grown(0)
    assert desk.batch.grow(claim, Need(9)) == Grown(2)
    assert desk.ledger.view.describe(claim).pages == (0, 1, 2)
    assert desk.ledger.view.covered(claim) == 12
    desk.check()
    desk.batch.rollback(claim)
    assert desk.is_empty()


def test_grow_adds_to_a_claim_that_shares_pages(desk: Desk) -> None:
    """The new pages are its own, after the shared ones."""
    desk.committed(8)
    claim = desk.reserve(8, desk.name())

    assert desk.batch.grow(claim, Need(13)) == Grown(2)
    assert desk.ledger.view.describe(claim).pages == (0, 1, 2, 3)
    desk.check()


def test_grow_without_room_is_refused_with_numbers(desk: Desk) -> None:
    """All or nothing."""
    claim, other = desk.reserve(3), desk.reserve(56)
    before = snapshot(desk.ledger)

    assert desk.batch.grow(claim, Need(16)) == Refused("room", 0, 2)
    assert snapshot(desk.ledger) == before
    desk.batch.rollback(other)


def test_an_undefined_claim_does_not_grow(desk: Desk) -> None:
    """After a failed step there is one verb left."""
    claim = desk.reserve(3)
    desk.fail(claim)
    before = snapshot(desk.ledger)

    with pytest.raises(LedgerError, match=r"slot 0 .* is undefined after a failed step"):
        desk.batch.grow(claim, Need(9))
    assert snapshot(desk.ledger) == before


def test_a_spent_claim_does_not_grow(desk: Desk) -> None:
    """It would take pages that nobody gives back."""
    claim = desk.reserve(3)
    desk.batch.rollback(claim)

    with pytest.raises(StaleHandle):
        desk.batch.grow(claim, Need(9))
    assert desk.is_empty()


def test_a_slots_generation_counts_its_handles() -> None:
    """Errors and events tell two claims of one slot apart."""
    desk = open_desk(slots=1)
    for generation in (1, 3, 5):
        claim = desk.hand(desk.working(2))
        state = desk.session.commit(claim, replaces=None)
        assert desk.ledger.view.describe(state).generation == generation + 1
        desk.session.close(state)


def test_without_a_slot_the_generation_counts_the_claims_own_handles() -> None:
    """There is no slot whose handles could be counted."""
    desk = open_desk(slots=0)
    for _ in range(2):
        state = desk.committed(2)
        assert desk.ledger.view.describe(state).generation == 2
