"""Places: where a claim lives is a value of it, and each place has a capacity of its own."""

import pytest

from ownership import (
    DEVICE,
    ZEROS,
    Absorbed,
    BaseName,
    BaseView,
    Capacity,
    Content,
    Kind,
    Ledger,
    LedgerError,
    Need,
    Place,
    Refused,
    StepFailed,
)
from tests.ownership.support import SCHEDULER, SESSION, Desk, open_desk, snapshot, untyped

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
