"""Places: where a claim lives is a value of it, and each place has a capacity of its own."""

import pytest

from ownership import (
    DEVICE,
    NO_SLOT,
    ZEROS,
    Absorbed,
    BaseName,
    BaseView,
    Capacity,
    Content,
    CopyFrom,
    Kind,
    Ledger,
    LedgerError,
    Need,
    PageIndex,
    Place,
    Refused,
    SlotIndex,
    StepFailed,
    TailCopy,
)
from tests.ownership.support import CACHE, SCHEDULER, SESSION, Desk, open_desk, snapshot, untyped

HOST, FILE = Place.HOST, Place.FILE


def test_each_place_has_its_own_free_slots_and_pages(roomy: Desk) -> None:
    """What is taken in one is not missing in the other."""
    view = roomy.ledger.view
    state = roomy.committed(6)
    copy = roomy.reserve(6, roomy.name(), place=HOST)

    assert (view.free(Place.DEVICE), view.free(HOST), view.free(FILE)) == ((3, 14), (3, 14), (0, 0))
    assert (view.free_slots, view.free_pages) == (3, 14)
    assert (view.capacity, view.host_capacity) == (Capacity(4, 16, 4), Capacity(4, 16, 4))
    assert (view.describe(copy).slot, view.describe(copy).pages) == (4, (16, 17))
    roomy.session.close(state)
    assert view.free(Place.DEVICE) == (3, 14), "it drains: it is copied"
    roomy.batch.rollback(copy)
    assert roomy.is_empty()


@pytest.mark.parametrize(
    ("host", "short"),
    [
        (None, Refused("room", 1, 2)),
        ((0, 8), Refused("room", 1, 0)),
        ((1, 1), Refused("room", 0, 1)),
    ],
)
def test_a_place_without_room_refuses(host: tuple[int, int] | None, short: Refused) -> None:
    """No host memory at all is no room there, and so is memory for pages without slots."""
    desk = open_desk(host=host)
    desk.committed(6)
    before = snapshot(desk.ledger)

    refused = desk.batch.reserve(Need(0), desk.name(), turn="park", place=HOST)
    assert refused == short
    assert snapshot(desk.ledger) == before


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


def test_states_rest_by_place(roomy: Desk) -> None:
    """The scheduler asks for those on the device, and for those in host memory apart."""
    first, second = roomy.committed(6), roomy.committed(3)
    view = roomy.ledger.view
    names = [view.name_of(first), view.name_of(second)]
    assert view.find_base(names[0]) == BaseView(6, 0, Place.DEVICE)

    parked = roomy.parked(first)
    assert (view.resting(), view.resting(HOST), view.resting(FILE)) == (
        (names[1],),
        (names[0],),
        (),
    )
    assert view.find_base(names[0]) == BaseView(6, 0, HOST)
    assert (view.describe(parked).place, view.describe(parked).kind) == (HOST, Kind.SESSION)


def test_no_name_of_what_is_no_state_at_rest(roomy: Desk) -> None:
    """Forced past the type checker."""
    name_of = untyped(roomy.ledger.view.name_of)
    with pytest.raises(LedgerError, match=r"slot 0 \(generation 1\) is no state at rest"):
        name_of(roomy.working(3))


def test_what_was_given_back_is_told_by_place() -> None:
    """To the device whose memory it is, in its own numbers."""
    desk = open_desk(host=(4, 16), track_freed=True)
    parked = desk.parked(desk.committed(6))

    assert tuple(map(list, desk.ledger.drain_freed())) == ([0], [1, 0])
    assert tuple(map(list, desk.ledger.drain_freed(HOST))) == ([], [])
    desk.session.close(parked)
    assert tuple(map(list, desk.ledger.drain_freed(HOST))) == ([0], [1, 0])
    assert tuple(map(list, desk.ledger.drain_freed(HOST))) == ([], [])
    assert tuple(map(list, desk.ledger.drain_freed())) == ([], [])


def test_a_claim_grows_in_its_own_place(roomy: Desk) -> None:
    """From the free pages there, until there are none."""
    claim = roomy.reserve(5, place=HOST)

    assert roomy.batch.grow(claim, Need(9)) != Refused("room", 0, 1)
    assert roomy.pages(claim) == [16, 17, 18]
    assert roomy.batch.grow(claim, Need(4 * 17)) == Refused("room", 0, 1)
    roomy.batch.rollback(claim)
    assert roomy.is_empty()


def test_pages_needed_are_those_of_the_place(roomy: Desk) -> None:
    """Shared where the base is, copied elsewhere, and none in a file."""
    roomy.committed(9)
    view, name = roomy.ledger.view, roomy.name()

    assert view.pages_needed(Need(14), name) == 2
    assert view.pages_needed(Need(14), name, HOST) == 4
    assert view.pages_needed(Need(14), name, FILE) == 0
    assert view.pages_needed(Need(8, 1), ZEROS) == 1
    assert view.pages_needed(Need(8, 3), BaseName(SESSION, 99)) == 0


def test_what_would_be_free_is_asked_by_place(roomy: Desk) -> None:
    """A state in host memory makes no room on the device."""
    parked = roomy.parked(roomy.committed(6))
    name = roomy.ledger.view.name_of(parked)
    working = roomy.working(3)

    host = roomy.ledger.view.simulate(HOST).base(name).claim(working)
    device = roomy.ledger.view.simulate().base(name).claim(working)
    assert (host.slots, host.pages) == (1, 2)
    assert (device.slots, device.pages) == (1, 1)


@pytest.mark.parametrize("copy_first", [True, False])
def test_a_copy_into_another_place_holds_nothing_up(roomy: Desk, copy_first: bool) -> None:
    """Whoever looks for room may count on its base: it is over soon. Unless its step hangs."""
    roomy.committed(6)
    name, view = roomy.name(), roomy.ledger.view
    copy = roomy.reserve(0, name, place=HOST)

    simulation = view.simulate()
    assert (simulation.base(name).slots, simulation.pages) == (1, 2)
    simulation = view.simulate()
    if copy_first:
        simulation.claim(copy).base(name)
    else:
        simulation.base(name).claim(copy)
    assert (simulation.slots, simulation.pages) == (1, 2)
    roomy.ledger.quarantine(roomy.batch.launch([copy], step=1))
    assert view.simulate().base(name).slots == 0


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


@pytest.mark.parametrize("place", [HOST, FILE])
def test_a_copy_that_fails_may_only_be_rolled_back(roomy: Desk, place: Place) -> None:
    """Its base is untouched and no longer pinned."""
    state = roomy.committed(6)
    copy = roomy.reserve(0, roomy.name(), place=place)
    roomy.fail(copy)

    assert roomy.ledger.view.describe(copy).content is Content.UNDEFINED
    assert roomy.pinned(state) == 0
    roomy.check()
    with pytest.raises(LedgerError, match="nothing to copy"):
        roomy.reserve(0, copy)
    roomy.batch.rollback(copy)
    roomy.session.close(state)
    assert roomy.is_empty()


def test_a_failed_copy_that_shared_a_twin_gives_its_count_back(roomy: Desk) -> None:
    """What was there already stays as it was."""
    name = roomy.ledger.view.name_of(roomy.committed(4))
    kept = roomy.copied(name)
    longer = roomy.committed(5, name)
    copy = roomy.reserve(0, roomy.ledger.view.name_of(longer), place=HOST)
    roomy.fail(copy)

    roomy.check()
    assert roomy.ledger.view.free(HOST) == (2, 13)
    roomy.batch.rollback(copy)
    assert roomy.ledger.view.free(HOST) == (3, 15)
    roomy.batch.rollback(kept)
    roomy.check()


def test_the_dead_give_back_what_they_have_in_every_place(roomy: Desk) -> None:
    """By type, wherever it is."""
    roomy.parked(roomy.committed(6))
    roomy.committed(6)
    copy: object = roomy.reserve(0, roomy.name(2), place=HOST)
    reader: object = roomy.reserve(0, roomy.name(2), place=FILE)

    assert roomy.ledger.reclaim(SESSION).session == 2
    assert roomy.ledger.view.audit().draining == 1
    assert roomy.ledger.reclaim(SCHEDULER).batch == 2
    assert roomy.is_empty()
    del copy, reader


def test_quarantine_counts_each_place_apart(roomy: Desk) -> None:
    """A transfer that hangs keeps its host memory, and what it reads."""
    state = roomy.committed(6)
    lease = roomy.batch.launch([roomy.reserve(0, roomy.name(), place=HOST)], step=1)
    roomy.ledger.quarantine(lease)
    view = roomy.ledger.view
    report = roomy.ledger.audit()

    assert (view.quarantined_slots, view.quarantined_pages) == (0, 0)
    assert (report.quarantined, report.quarantined_slots, report.quarantined_pages) == (1, 0, 0)
    assert (report.host_quarantined_slots, report.host_quarantined_pages) == (1, 2)
    assert (report.host_free_slots, report.host_free_pages) == (3, 14)
    roomy.session.close(state)
    report = roomy.ledger.audit()
    assert (view.quarantined_slots, view.quarantined_pages) == (1, 2)
    assert (report.quarantined, report.quarantined_slots, report.quarantined_pages) == (2, 1, 2)
    assert (report.host_quarantined_slots, report.host_quarantined_pages) == (1, 2)
    assert dict(report.on_device) == {"quarantined": 1}
    assert dict(report.in_host) == {"quarantined": 1}
    (copy,) = roomy.batch.land(lease, StepFailed("it ended"))
    roomy.batch.rollback(copy)
    assert roomy.is_empty()


def test_a_base_that_another_copy_still_reads_is_not_lost_to_quarantine(roomy: Desk) -> None:
    """It drains, and comes back with that copy or with the other."""
    state = roomy.committed(6)
    copies = [roomy.reserve(0, roomy.name(), place=HOST) for _ in range(2)]
    first, second = (roomy.batch.launch([copy], step=1) for copy in copies)
    roomy.session.close(state)
    roomy.ledger.quarantine(first)
    view = roomy.ledger.view

    assert (view.quarantined_slots, view.audit().quarantined_slots) == (0, 0)
    assert view.audit().draining == 1
    roomy.ledger.quarantine(second)
    assert (view.quarantined_slots, view.audit().quarantined_slots) == (1, 1)
    roomy.check()


def test_a_claim_that_drains_in_host_memory_is_no_slot_of_the_device(roomy: Desk) -> None:
    """Whoever waits for slots on the device must not wait for it."""
    parked = roomy.parked(roomy.committed(6))
    name = roomy.ledger.view.name_of(parked)
    claim = roomy.reserve(0, name)
    roomy.session.close(parked)

    assert (roomy.ledger.view.audit().draining, roomy.ledger.view.draining_slots) == (1, 0)
    roomy.batch.rollback(claim)
    assert roomy.is_empty()


def test_host_memory_is_cut_like_the_device() -> None:
    """Else a copy would not fit, and nothing would say so before the first one."""
    with pytest.raises(ValueError, match="host pages of 8 positions, device pages of 4"):
        Ledger(Capacity(1, 4, 4), host=Capacity(1, 4, 8))
    for device, host in ((Capacity(0, 4, 4), (1, 4)), (Capacity(4, 0, 4), (4, 1))):
        with pytest.raises(ValueError, match="nothing could be copied there"):
            Ledger(device, host=Capacity(*host, 4))


def test_the_device_has_all_places_alike(roomy: Desk) -> None:
    """Custody is of the device, wherever the claims of a step live."""
    roomy.committed(6)
    lease = roomy.batch.launch([roomy.reserve(0, roomy.name(), place=HOST)], step=1)

    (claim,) = roomy.ledger.view.held_by(DEVICE)
    assert (claim.place, claim.base) == (HOST, roomy.name())
    roomy.batch.land(lease, Absorbed((0,)))
    assert roomy.ledger.view.held_by(DEVICE) == ()
