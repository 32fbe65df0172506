"""Files: a claim there holds nothing but the pin on its base, while that is read out."""

import pytest

from ownership import (
    NO_SLOT,
    Absorbed,
    CopyFrom,
    LedgerError,
    Need,
    Place,
    SlotIndex,
)
from tests.ownership.support import CACHE, SESSION, Desk, open_desk, snapshot

HOST, FILE = Place.HOST, Place.FILE


def test_a_file_takes_no_slot_and_no_page(roomy: Desk) -> None:
    """It reads the whole base, and that is pinned meanwhile."""
    state = roomy.committed(6)
    view = roomy.ledger.view
    free = view.free(Place.DEVICE), view.free(HOST)
    reader = roomy.reserve(0, roomy.name(), place=FILE)

    assert (view.free(Place.DEVICE), view.free(HOST)) == free
    assert (roomy.pages(reader), view.slot_of(reader), roomy.pinned(state)) == ([], NO_SLOT, 1)
    assert (view.describe(reader).place, view.position(reader), view.covered(reader)) == (
        FILE,
        6,
        6,
    )
    lease = roomy.batch.launch([reader], step=1)
    (placement,) = view.placements(lease)
    assert (placement.place, placement.source, placement.slot) == (FILE, Place.DEVICE, NO_SLOT)
    assert (placement.initial, placement.pages) == (CopyFrom(SlotIndex(0)), [0, 1])
    assert (placement.position, placement.page_copies, placement.tail_copy) == (6, (), None)
    roomy.batch.land(lease, Absorbed((0,)))
    assert roomy.pinned(state) == 0
    roomy.check()
    roomy.batch.rollback(reader)
    roomy.session.close(state)
    assert roomy.is_empty()


def test_a_file_reads_out_of_host_memory_too(roomy: Desk) -> None:
    """In the numbers of that place."""
    roomy.parked(roomy.committed(6))
    reader = roomy.reserve(0, roomy.name(1), place=FILE)
    lease = roomy.batch.launch([reader], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert (placement.source, placement.initial) == (HOST, CopyFrom(SlotIndex(0)))
    assert placement.pages == [0, 1]


def test_a_file_is_no_state(roomy: Desk) -> None:
    """It has read its base, and there is nothing to keep, to grow, to launch or to start from."""
    roomy.committed(6)
    reader = roomy.reserve(0, roomy.name(), place=FILE)
    before = snapshot(roomy.ledger)

    with pytest.raises(
        LedgerError, match="grow: file claim 1 .* only reads its base: roll it back"
    ):
        roomy.batch.grow(reader, Need(7))
    assert snapshot(roomy.ledger) == before
    roomy.step([reader], 0)
    before = snapshot(roomy.ledger)
    with pytest.raises(LedgerError, match="launch: file claim 1 .* has read its base: roll it"):
        roomy.batch.launch([reader], step=2)
    with pytest.raises(LedgerError, match="grow: file claim 1 .* only reads its base: roll it"):
        roomy.batch.grow(reader, Need(7))
    with pytest.raises(LedgerError, match="reserve: file claim 1 .* is undefined: nothing to copy"):
        roomy.reserve(0, reader)
    assert snapshot(roomy.ledger) == before
    roomy.hand(reader)
    with pytest.raises(LedgerError, match="commit: file claim 1 .* only reads its base: roll it"):
        roomy.session.commit(reader, replaces=None)
    roomy.ledger.move(reader, SESSION, CACHE, "test")
    with pytest.raises(LedgerError, match="admit: file claim 1 .* only reads its base: roll it"):
        roomy.cache.admit(reader)
    roomy.cache.rollback(reader)
    roomy.check()


def test_a_file_absorbs_nothing(roomy: Desk) -> None:
    """Its step has no tokens."""
    roomy.committed(6)
    lease = roomy.batch.launch([roomy.reserve(0, roomy.name(), place=FILE)], step=1)

    with pytest.raises(LedgerError, match="absorbed 1 at position 6, covers 6"):
        roomy.batch.land(lease, Absorbed((1,)))


def test_a_file_without_a_base_has_nothing_to_read(roomy: Desk) -> None:
    """From nothing it would only be written to."""
    before = snapshot(roomy.ledger)
    with pytest.raises(LedgerError, match="a claim in a file reads its base, and has none"):
        roomy.reserve(0, place=FILE)
    assert snapshot(roomy.ledger) == before


def test_a_model_without_pages_is_read_into_a_file_too() -> None:
    """Its slot is its state."""
    desk = open_desk(pages=0)
    desk.committed(6)
    reader = desk.reserve(0, desk.name(), place=FILE)
    lease = desk.batch.launch([reader], step=1)

    (placement,) = desk.ledger.view.placements(lease)
    assert (placement.initial, placement.pages) == (CopyFrom(SlotIndex(0)), [])
    desk.batch.land(lease, Absorbed((0,)))
    desk.check()
    desk.batch.rollback(reader)
