"""Placements: what the device is told of each row of a launched step."""

from ownership import (
    DEVICE,
    NO_SLOT,
    Absorbed,
    CopyFrom,
    Need,
    Placement,
    SlotIndex,
    StepFailed,
    TailCopy,
)
from tests.ownership.support import Desk, open_desk

FAILED = StepFailed("it broke")


def test_placements_tell_the_device_what_each_row_reads_and_writes(desk: Desk) -> None:
    """Cleared, copied or kept; the tail is copied page to page."""
    desk.committed(6)
    claims = [
        desk.working(3),
        desk.reserve(9, desk.name()),
        desk.reserve(5),
    ]
    lease = desk.batch.launch(claims, step=2)

    kept, copied, cleared = desk.ledger.view.placements(lease)
    one, two, three = desk.ledger.view.held_by(DEVICE)
    assert kept == Placement(SlotIndex(1), "kept", 3, list(one.pages), None)
    tail = TailCopy(desk.ledger.view.held_by(desk.name().holder)[0].pages[1], two.pages[1])
    assert copied == Placement(SlotIndex(2), CopyFrom(SlotIndex(0)), 6, list(two.pages), tail)
    assert cleared == Placement(SlotIndex(3), "zeros", 0, list(three.pages), None)


def test_placements_of_a_base_without_a_tail_copy_no_page(desk: Desk) -> None:
    """All pages of the base are frozen."""
    desk.committed(8)
    lease = desk.batch.launch([desk.reserve(9, desk.name())], step=2)

    (placement,) = desk.ledger.view.placements(lease)
    assert (placement.initial, placement.tail_copy) == (CopyFrom(SlotIndex(0)), None)


def test_placements_without_slots_copy_the_tail_alone() -> None:
    """There is no state to copy, and none to clear."""
    desk = open_desk(slots=0)
    desk.committed(6)
    claims = [desk.reserve(9, desk.name()), desk.reserve(3)]
    lease = desk.batch.launch(claims, step=2)

    copied, cleared = desk.ledger.view.placements(lease)
    assert (copied.slot, copied.initial) == (NO_SLOT, "kept")
    assert copied.tail_copy is not None
    assert (cleared.slot, cleared.initial) == (NO_SLOT, "zeros")


def test_placements_without_pages_copy_the_slot_alone() -> None:
    """There is no page table."""
    desk = open_desk(pages=0)
    desk.committed(6)
    lease = desk.batch.launch([desk.reserve(9, desk.name())], step=2)

    (placement,) = desk.ledger.view.placements(lease)
    assert (placement.initial, placement.pages) == (CopyFrom(SlotIndex(0)), [])
    assert placement.tail_copy is None


def test_a_placements_pages_are_the_claims_own_table(desk: Desk) -> None:
    """Lent, not copied: a step over long histories costs nothing for them."""
    claim = desk.reserve(3)
    lease = desk.batch.launch([claim], step=1)
    (placement,) = desk.ledger.view.placements(lease)
    desk.batch.land(lease, Absorbed((3,)))

    desk.batch.grow(claim, Need(9))
    assert placement.pages == [0, 1, 2]
