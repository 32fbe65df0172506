"""Twins: a run that was copied and its copy hold the same, so that the way back shares it."""

import pytest

from ownership import ZEROS, Absorbed, Base, BaseName, BatchOwned, Need, Place, RunId
from ownership.handles import record_of
from ownership.runs import Run
from tests.ownership.support import OTHER, Desk, open_desk

HOST = Place.HOST


def chain(handle: object) -> list[Run]:
    """The runs of a claim, the oldest first."""
    record, _ = record_of(handle)
    assert record is not None
    return [] if record.tip is None else list(reversed(list(record.tip.chain())))


def twins(handle: object) -> list[RunId | None]:
    """The numbers of the twins of a claim's runs."""
    return [None if run.twin is None else run.twin.number for run in chain(handle)]


def grown(desk: Desk, *tokens: int) -> BaseName:
    """A state that was committed after each of several turns: a run for each."""
    base: Base = ZEROS
    for count in tokens:
        state: object = desk.committed(count, base)
        desk.keep(state)
        base = desk.name()
    return desk.name()


def test_a_landing_freezes_what_was_copied_run_by_run(roomy: Desk) -> None:
    """Each run of the copy is the twin of the one that it was copied from, and as long."""
    name = grown(roomy, 8, 5)
    copy = roomy.copied(name)
    view = roomy.ledger.view.describe(copy)

    assert (view.exclusive, view.position, len(view.pages)) == (1, 13, 4)
    assert [len(run.pages) for run in chain(copy)] == [2, 1]
    assert twins(copy) == [0, 1]
    roomy.check()


def test_the_way_back_shares_what_is_still_there(roomy: Desk) -> None:
    """One increment, and only the tail is copied: another session keeps the history alive."""
    name = grown(roomy, 8, 5)
    copy = roomy.copied(name)
    claim = roomy.reserve(14, copy)
    assert roomy.pages(claim)[:3] == [page for run in chain(claim) for page in run.pages]
    assert [run.number for run in chain(claim)] == [0, 1]
    lease = roomy.batch.launch([claim], step=1)
    (placement,) = roomy.ledger.view.placements(lease)

    assert [page_copy.source for page_copy in placement.page_copies] == [3]
    (claim,) = roomy.batch.land(lease, Absorbed((1,)))
    assert roomy.ledger.view.describe(claim).exclusive == 1
    roomy.check()


def test_a_claim_shares_as_far_as_twins_go(roomy: Desk) -> None:
    """The first run was in host memory before; the second is copied."""
    short = grown(roomy, 8)
    first = roomy.copied(short)
    roomy.committed(5, short)
    copy = roomy.reserve(0, roomy.name(), place=HOST)
    assert [run.number for run in chain(copy)] == [run.number for run in chain(first)]
    lease = roomy.batch.launch([copy], step=1)

    (placement,) = roomy.ledger.view.placements(lease)
    assert len(placement.page_copies) == 2, "the third page and the tail"
    roomy.batch.land(lease, Absorbed((0,)))
    assert twins(copy) == [0, 2]
    roomy.check()


def test_a_whole_history_that_is_there_is_not_copied_again() -> None:
    """A checkpoint of a parked state, and a model that has nothing but its history."""
    desk = open_desk(slots=0, host=(0, 4))
    name = grown(desk, 8)
    first = desk.copied(name)
    second = desk.reserve(0, name, place=HOST)
    lease = desk.batch.launch([second], step=1)

    (placement,) = desk.ledger.view.placements(lease)
    assert (placement.page_copies, placement.pages) == ((), [0, 1])
    desk.batch.land(lease, Absorbed((0,)))
    assert desk.pages(first) == desk.pages(second)
    assert desk.ledger.view.free(HOST) == (0, 2)
    desk.check()


def test_two_copies_under_way_do_not_wait_for_each_other(roomy: Desk) -> None:
    """Forks with one history park at once: each copies it, and one of the copies is the twin."""
    short = grown(roomy, 8)
    forks = [roomy.committed(5, short) for _ in range(2)]
    names = [roomy.ledger.view.name_of(fork) for fork in forks]
    copies = [roomy.reserve(0, name, place=HOST) for name in names]
    roomy.step(list(copies), 0, 0)

    first, second = copies
    assert twins(first) == [0, 1]
    assert twins(second) == [None, 2]
    assert not set(roomy.pages(first)) & set(roomy.pages(second))
    roomy.check()
    again = roomy.reserve(0, second)
    assert [run.number for run in chain(again)] == [0, 2], "by the twin of its own last run"
    for claim in (again, first, second):
        roomy.batch.rollback(claim)
    roomy.check()


@pytest.mark.parametrize("ends_first", ["original", "copy"])
def test_twins_part_when_either_ends(roomy: Desk, ends_first: str) -> None:
    """A run is shared while it is there, and never after."""
    state = roomy.committed(8)
    copy = roomy.copied(roomy.name())
    if ends_first == "original":
        roomy.session.close(state)
        assert twins(copy) == [None]
        claim = roomy.reserve(0, copy)
        assert roomy.ledger.view.describe(claim).exclusive == 2, "all copied again"
        roomy.batch.rollback(claim)
        roomy.batch.rollback(copy)
    else:
        roomy.batch.rollback(copy)
        assert twins(state) == [None]
        again = roomy.copied(roomy.name())
        assert twins(again) == [0]
        roomy.batch.rollback(again)
        roomy.session.close(state)
    assert roomy.is_empty()


def test_a_shared_twin_outlives_what_it_was_copied_from(roomy: Desk) -> None:
    """Its count is of its own place."""
    state = roomy.committed(8)
    copy = roomy.copied(roomy.name())
    claim = roomy.reserve(9, copy)
    pages = roomy.pages(claim)
    roomy.session.close(state)

    assert roomy.pages(claim) == pages
    assert roomy.ledger.view.free_pages == 13
    roomy.step([claim], 1)
    roomy.batch.rollback(copy)
    assert twins(claim) == [None]
    assert roomy.ledger.view.free(HOST) == (4, 16)
    roomy.batch.rollback(claim)
    assert roomy.is_empty()


def test_what_a_turn_absorbs_after_the_copy_is_frozen_after_it(roomy: Desk) -> None:
    """In one landing: the runs of the copy, then the pages that its tokens filled."""
    parked = roomy.parked(roomy.committed(6))
    claim = roomy.reserve(12, roomy.ledger.view.name_of(parked))
    roomy.step([claim], 6)

    assert [len(run.pages) for run in chain(claim)] == [1, 2]
    host_run = chain(parked)[0].number
    assert twins(claim) == [host_run, None]
    assert roomy.ledger.view.describe(claim).exclusive == 0
    roomy.check()


def test_pages_taken_ahead_are_nobodys_twins(roomy: Desk) -> None:
    """Only what the base had is copied."""
    parked = roomy.parked(roomy.committed(8))
    claim = roomy.reserve(16, roomy.ledger.view.name_of(parked))
    roomy.step([claim], 1)

    assert (len(chain(claim)), roomy.ledger.view.describe(claim).exclusive) == (1, 2)
    roomy.batch.grow(claim, Need(20))
    roomy.step([claim], 8)
    assert [len(run.pages) for run in chain(claim)] == [2, 2]
    roomy.check()


def test_a_copy_that_failed_is_nobodys_twin(roomy: Desk) -> None:
    """What it holds is undefined."""
    state = roomy.committed(8)
    copy = roomy.reserve(0, roomy.name(), place=HOST)
    roomy.fail(copy)

    assert (chain(copy), twins(state)) == ([], [None])
    again = roomy.reserve(0, roomy.name(), place=HOST)
    assert roomy.ledger.view.describe(again).exclusive == 2
    for claim in (copy, again):
        roomy.batch.rollback(claim)
    roomy.check()


def test_a_state_goes_there_and_back_for_ever_without_leaving_anything_behind(roomy: Desk) -> None:
    """Forks of it, too: each way shares what the other end still has."""
    state = roomy.committed(9)
    other = roomy.ledger.session_port(OTHER)
    for _ in range(5):
        fork: BatchOwned = roomy.working(2, roomy.ledger.view.name_of(state))
        roomy.hand(fork, OTHER)
        kept = other.commit(fork, replaces=None)
        state = roomy.parked(state)
        roomy.check()
        state = roomy.parked(state, Place.DEVICE)
        assert (
            roomy.ledger.view.describe(state).pages[:2]
            == roomy.ledger.view.describe(kept).pages[:2]
        )
        other.close(kept)
        roomy.check()
        assert roomy.ledger.view.free(HOST) == (4, 16)
    roomy.session.close(state)
    assert roomy.is_empty()
