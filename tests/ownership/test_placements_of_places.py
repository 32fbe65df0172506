"""Placements across places: what the device is told to copy, from where and to where."""

import pytest

from ownership import (
    NO_SLOT,
    Absorbed,
    CopyFrom,
    LedgerError,
    PageIndex,
    Place,
    SlotIndex,
    TailCopy,
)
from tests.ownership.support import Desk, open_desk

HOST, FILE = Place.HOST, Place.FILE


def test_a_model_without_slots_needs_pages_alone_in_every_place() -> None:
    """It has no recurrent state to move."""
    desk = open_desk(slots=0, host=(0, 2))
    desk.committed(6)
    copy = desk.copied(desk.name())

    assert desk.ledger.view.slot_of(copy) is NO_SLOT
    assert desk.ledger.view.free(HOST) == (0, 0)
    lease = desk.batch.launch([desk.reserve(7, copy)], step=1)
    (placement,) = desk.ledger.view.placements(lease)
    assert (placement.slot, placement.initial, len(placement.page_copies)) == (NO_SLOT, "kept", 1)


def test_a_model_without_pages_needs_a_slot_alone_in_every_place() -> None:
    """It has no history to move."""
    desk = open_desk(pages=0, host=(1, 0))
    desk.committed(1000)
    copy = desk.reserve(0, desk.name(), place=HOST)
    lease = desk.batch.launch([copy], step=1)

    (placement,) = desk.ledger.view.placements(lease)
    assert (placement.slot, placement.initial) == (SlotIndex(0), CopyFrom(SlotIndex(0)))
    assert (placement.pages, placement.page_copies, placement.tail_copy) == ([], (), None)
    desk.batch.land(lease, Absorbed((0,)))
    assert desk.ledger.view.position(copy) == 1000
    desk.check()


def test_what_a_claim_from_nothing_may_have_in_host_memory(roomy: Desk) -> None:
    """Cleared, and with numbers of its own place."""
    claim = roomy.reserve(5, place=HOST)
    lease = roomy.batch.launch([claim], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.slot, placement.initial, placement.pages) == (0, "zeros", [0, 1])
    assert (placement.place, placement.source) == (HOST, HOST)
    roomy.batch.land(lease, Absorbed((0,)))
    roomy.hand(claim)
    with pytest.raises(LedgerError, match="host slot 4 .* has absorbed nothing"):
        roomy.session.commit(claim, replaces=None)
    roomy.session.rollback(claim)
    assert roomy.is_empty()


def test_a_copy_into_host_memory_reads_the_device_and_writes_its_own_pages(roomy: Desk) -> None:
    """All pages, the tail among them, numbered as a device counts them: from 0 in each place."""
    roomy.reserve(9)
    roomy.committed(6)
    lease = roomy.batch.launch([roomy.reserve(0, roomy.name(), place=HOST)], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.slot, placement.initial) == (SlotIndex(0), CopyFrom(SlotIndex(1)))
    assert (placement.place, placement.source) == (HOST, Place.DEVICE)
    assert (placement.pages, placement.tail_copy, placement.position) == ([0, 1], None, 6)
    first, tail = (TailCopy(PageIndex(3 + at), PageIndex(at)) for at in range(2))
    assert placement.page_copies == (first, tail)


def test_a_turn_from_host_memory_copies_straight_into_its_working_claim(roomy: Desk) -> None:
    """And has room for what it absorbs beside."""
    parked = roomy.parked(roomy.committed(6))
    name = roomy.ledger.view.name_of(parked)
    claim = roomy.reserve(9, name)
    table = roomy.pages(claim)
    lease = roomy.batch.launch([claim], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.slot, placement.initial) == (SlotIndex(0), CopyFrom(SlotIndex(0)))
    assert (placement.place, placement.source) == (Place.DEVICE, HOST)
    assert (placement.pages, len(table)) == (table, 3)
    assert [copy.source for copy in placement.page_copies] == [0, 1]
    assert [copy.target for copy in placement.page_copies] == table[:2]
    (claim,) = roomy.batch.land(lease, Absorbed((3,)))
    view = roomy.ledger.view.describe(claim)
    assert (view.position, view.exclusive, view.place) == (9, 1, Place.DEVICE)
    roomy.check()


def test_a_copy_within_host_memory_shares_there_as_on_the_device(roomy: Desk) -> None:
    """Runs live in one place, and are shared in it."""
    parked = roomy.parked(roomy.committed(6))
    name = roomy.ledger.view.name_of(parked)
    copy = roomy.reserve(0, name, place=HOST)
    lease = roomy.batch.launch([copy], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.slot, placement.initial) == (SlotIndex(1), CopyFrom(SlotIndex(0)))
    assert placement.pages == [0, 2]
    assert placement.tail_copy == TailCopy(PageIndex(1), PageIndex(2))
    assert placement.page_copies == ()
    roomy.batch.land(lease, Absorbed((0,)))
    roomy.check()


def test_a_copy_within_host_memory_without_a_tail_copies_no_page(roomy: Desk) -> None:
    """As on the device."""
    parked = roomy.parked(roomy.committed(8))
    copy = roomy.reserve(0, roomy.ledger.view.name_of(parked), place=HOST)
    lease = roomy.batch.launch([copy], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.pages, placement.tail_copy, placement.page_copies) == ([0, 1], None, ())
