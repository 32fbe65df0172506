"""The audit of claims in several places finds every planted inconsistency."""

from collections.abc import Callable

import attrs
import pytest

from ownership import BatchOwned, Owns, PageIndex, Place, SessionOwned, SlotIndex
from ownership.book import Book
from ownership.claims import ClaimRecord
from ownership.handles import record_of
from ownership.runs import Run
from tests.ownership.support import Desk, open_desk


@attrs.frozen
class Scene:
    """A state of two runs, its copy in host memory, one under way, a reader, and a cut one."""

    desk: Desk
    book: Book
    state: Owns[SessionOwned]
    copied: Owns[BatchOwned]
    moving: Owns[BatchOwned]
    reading: Owns[BatchOwned]
    cut: Owns[BatchOwned]

    def run(self, number: int) -> Run:
        return next(run for run in self.book.runs.alive.values() if run.number == number)


def record_for(handle: object) -> ClaimRecord:
    record, _ = record_of(handle)
    assert record is not None
    return record


def set_scene() -> Scene:
    """Runs 0 and 1 are on the device, 2 and 3 their twins, 4 is of the cut claim."""
    desk = open_desk(slots=6, host=(4, 16))
    state = desk.committed(4)
    state = desk.committed(5, desk.name(), replaces=state)
    copied = desk.copied(desk.name())
    book = record_for(state).ledger
    assert isinstance(book, Book)
    return Scene(
        desk,
        book,
        state,
        copied,
        desk.reserve(10, copied),
        desk.reserve(0, desk.name(), place=Place.FILE),
        desk.copied(desk.name(), Place.HOST, first_page=1),
    )


def test_the_views_columns_are_the_audits() -> None:
    """A dashboard asks for them every few seconds, and can't pay for a whole audit each time."""
    scene = set_scene()
    report, view = scene.desk.ledger.audit(), scene.desk.ledger.view

    assert view.columns() == report.on_device == {"session": 1, "batch": 1}
    assert view.columns(Place.HOST) == report.in_host == {"batch": 2}
    assert view.columns(Place.FILE) == {"batch": 1}


def test_a_scene_without_a_fault_is_conserved() -> None:
    """What the others plant their faults in."""
    scene = set_scene()
    report = scene.desk.ledger.audit()

    assert (report.problems, report.batch, report.session) == ((), 4, 1)
    assert dict(report.on_device) == {"session": 1, "batch": 1}
    assert dict(report.in_host) == {"batch": 2}
    assert (report.free_slots, report.host_free_slots) == (4, 2)
    assert (report.shared_pages, report.exclusive_pages) == (5, 4)


def exchange_slots_between_places(scene: Scene) -> None:
    one, other = record_for(scene.state), record_for(scene.copied)
    one.slot, other.slot = other.slot, one.slot
    one.generation, other.generation = other.generation, one.generation


def exchange_tails_between_places(scene: Scene) -> None:
    one, other = record_for(scene.state), record_for(scene.copied)
    one.exclusive, other.exclusive = other.exclusive, one.exclusive
    one.page_table[-1], other.page_table[-1] = other.page_table[-1], one.page_table[-1]


def give_a_host_slot_to_the_device(scene: Scene) -> None:
    scene.book.free_slots.append(scene.book.pools[Place.HOST].free_slots[-1])


def lose_a_free_host_page(scene: Scene) -> None:
    scene.book.pools[Place.HOST].free_pages.pop()


def free_a_host_page_that_is_not_there(scene: Scene) -> None:
    scene.book.pools[Place.HOST].free_pages.append(PageIndex(32))


def forget_a_slot_in_host_memory(scene: Scene) -> None:
    record = record_for(scene.copied)
    record.pool, record.slot = scene.book.pools[Place.FILE], SlotIndex(9)


def be_your_own_twin(scene: Scene) -> None:
    run = scene.run(0)
    run.twin = run


def be_the_twin_of_one_that_has_ended(scene: Scene) -> None:
    run = scene.run(4)
    run.twin = Run(scene.run(1).number, None, run.pages, 1, run.length, run)


def be_the_twin_of_one_of_another(scene: Scene) -> None:
    scene.run(2).twin = scene.run(1)


def be_the_twin_of_a_longer_one(scene: Scene) -> None:
    one, other = scene.run(0), scene.run(3)
    one.twin, other.twin = other, one
    scene.run(2).twin = scene.run(1).twin = None


def be_the_twin_in_the_same_place(scene: Scene) -> None:
    one, other = scene.run(2), scene.run(4)
    one.twin, other.twin = other, one
    scene.run(0).twin = None


def hold_a_page_in_a_file(scene: Scene) -> None:
    record = record_for(scene.reading)
    record.page_table = [PageIndex(0)]


def have_room_in_a_file(scene: Scene) -> None:
    record_for(scene.reading).covered += 1


def outrun_a_file(scene: Scene) -> None:
    record_for(scene.reading).next_full += 1


def freeze_more_than_was_there(scene: Scene) -> None:
    record_for(scene.moving).position = 3


def drop_a_page_without_a_copy(scene: Scene) -> None:
    record = record_for(scene.cut)
    record.first_page, record.covered = 2, record.covered + 4


def drop_what_was_never_absorbed(scene: Scene) -> None:
    record_for(scene.cut).position = 3


def look_for_full_pages_too_late(scene: Scene) -> None:
    record_for(scene.cut).next_full += 4


PLANTED: list[tuple[Callable[[Scene], None], str]] = [
    (exchange_slots_between_places, "slot 6 (generation 1): the slot is in another place"),
    (exchange_tails_between_places, "slot 6 (generation 1): pages of its table are in another"),
    (give_a_host_slot_to_the_device, "slot 8 stands in 2 columns"),
    (lose_a_free_host_page, "page 21 stands in 0 columns"),
    (free_a_host_page_that_is_not_there, "page 32 does not exist"),
    (forget_a_slot_in_host_memory, "file slot 9 (generation 1): the slot is in another place"),
    (be_your_own_twin, "run 0 has a twin that isn't one"),
    (be_the_twin_of_one_that_has_ended, "run 4 has a twin that isn't one"),
    (be_the_twin_of_one_of_another, "run 2 has a twin that isn't one"),
    (be_the_twin_of_a_longer_one, "run 0 has a twin that isn't one"),
    (be_the_twin_in_the_same_place, "run 2 has a twin that isn't one"),
    (hold_a_page_in_a_file, "generation 1): pages of its table are in another place"),
    (have_room_in_a_file, "it has room where there is none"),
    (outrun_a_file, "it has room where there is none"),
    (freeze_more_than_was_there, "frozen up to 8, at 3"),
    (drop_a_page_without_a_copy, "frozen up to 12, at 9"),
    (drop_what_was_never_absorbed, "frozen up to 8, at 3"),
    (look_for_full_pages_too_late, "frozen up to 8, at 9"),
]


@pytest.mark.parametrize(("plant", "problem"), PLANTED, ids=[p.__name__ for p, _ in PLANTED])
def test_the_audit_finds_what_was_planted(plant: Callable[[Scene], None], problem: str) -> None:
    """A check that was never seen to fail proves nothing."""
    scene = set_scene()
    plant(scene)

    report = scene.desk.ledger.audit()
    assert not report.conserved
    assert problem in "\n".join(report.problems)


def test_a_failed_copy_keeps_what_it_shared_and_that_is_no_problem() -> None:
    """It has frozen less than its position says, and can only be rolled back."""
    scene = set_scene()
    scene.desk.fail(scene.moving)

    assert scene.desk.ledger.audit().problems == ()
