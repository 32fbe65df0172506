"""The audit finds every planted inconsistency: it believes nothing that a verb has cached."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from ownership import (
    NO_SLOT,
    AuditReport,
    BatchOwned,
    Content,
    CustodianId,
    Lease,
    Owns,
    SessionOwned,
    SlotIndex,
    StepFailed,
)
from ownership.book import Book
from ownership.claims import ClaimRecord, Kind, Step
from ownership.handles import issue_session, record_of
from tests.ownership.support import SESSION, Desk, open_desk


@attrs.frozen
class Scene:
    """A state, a copy of it that is about to start, and a claim on the device."""

    desk: Desk
    book: Book
    state: Owns[SessionOwned]
    copying: Owns[BatchOwned]
    lease: Lease

    @property
    def resting(self) -> ClaimRecord:
        return _record(self.state)

    @property
    def working(self) -> ClaimRecord:
        return _record(self.copying)


def _record(handle: object) -> ClaimRecord:
    record, _ = record_of(handle)
    assert record is not None
    return record


def set_scene() -> Scene:
    desk = open_desk()
    state = desk.committed(6)
    copying = desk.reserve(9, desk.name())
    lease = desk.batch.launch([desk.reserve(3)], step=1)
    book = _record(state).ledger
    assert isinstance(book, Book)
    return Scene(desk, book, state, copying, lease)


def test_a_scene_without_a_fault_is_conserved() -> None:
    """The columns add up."""
    scene = set_scene()

    report = scene.desk.ledger.audit()
    assert (report.problems, report.conserved, report.at_rest) == ((), True, False)
    assert (report.free_slots, report.batch, report.session, report.cache) == (1, 2, 1, 0)
    assert (report.free_pages, report.exclusive_pages, report.shared_pages) == (11, 4, 1)


def free_an_owned_slot(scene: Scene) -> None:
    scene.book.free_slots.append(SlotIndex(0))


def lose_a_free_slot(scene: Scene) -> None:
    scene.book.free_slots.pop()


def free_a_slot_that_is_not_there(scene: Scene) -> None:
    scene.book.free_slots.append(SlotIndex(9))


def alias_two_slots(scene: Scene) -> None:
    scene.working.slot = scene.resting.slot


def forget_a_slot(scene: Scene) -> None:
    scene.working.slot = NO_SLOT


def turn_a_generation_back(scene: Scene) -> None:
    scene.working.generation -= 1


def free_an_owned_page(scene: Scene) -> None:
    scene.book.free_pages.append(scene.resting.exclusive[0])


def free_a_shared_page(scene: Scene) -> None:
    scene.book.free_pages.append(scene.resting.page_table[0])


def lose_a_free_page(scene: Scene) -> None:
    scene.book.free_pages.pop()


def count_a_run_once_too_often(scene: Scene) -> None:
    (run,) = scene.book.runs.alive.values()
    run.count += 1


def misjudge_a_chain(scene: Scene) -> None:
    (run,) = scene.book.runs.alive.values()
    run.length += 1


def orphan_a_run(scene: Scene) -> None:
    (run,) = scene.book.runs.alive.values()
    scene.book.runs.freeze(run, (scene.book.free_pages.pop(),))


def forget_a_named_run(scene: Scene) -> None:
    scene.book.runs.alive.clear()


def pin_once_too_often(scene: Scene) -> None:
    scene.resting.pins += 1


def pin_a_claim_that_has_ended(scene: Scene) -> None:
    del scene.book.claims[scene.resting.number]


def drain_without_a_pin(scene: Scene) -> None:
    scene.desk.batch.rollback(scene.copying)
    scene.resting.kind = Kind.DRAINING


def steal_from_the_device(scene: Scene) -> None:
    (entry,) = scene.book.leases.values()
    entry.claims[0].custodian = SESSION


def note_a_step_that_is_not(scene: Scene) -> None:
    (entry,) = scene.book.leases.values()
    scene.working.step = Step(entry.step.lease, 1)


def lease_a_claim_that_has_ended(scene: Scene) -> None:
    (entry,) = scene.book.leases.values()
    del scene.book.claims[entry.claims[0].number]


def forget_a_live_handle(scene: Scene) -> None:
    scene.book.live.clear()


def let_a_draining_claim_have_an_owner(scene: Scene) -> None:
    scene.resting.kind = Kind.DRAINING


def change_a_kind(scene: Scene) -> None:
    scene.resting.kind = Kind.CACHE


def leave_a_spent_handle_live(scene: Scene) -> None:
    issue: Callable[[ClaimRecord], object] = issue_session
    stray = issue(scene.resting)
    scene.desk.keep(stray)
    scene.book.live[id(stray)] = scene.resting


def forget_a_leases_handle(scene: Scene) -> None:
    (entry,) = scene.book.leases.values()
    entry.handle = None


def forget_a_name(scene: Scene) -> None:
    scene.book.names.clear()


def rest_without_a_name(scene: Scene) -> None:
    scene.resting.name = None


def rest_in_an_undefined_state(scene: Scene) -> None:
    scene.resting.content = Content.UNDEFINED


def copy_from_nothing(scene: Scene) -> None:
    scene.working.base = None


def swap_two_pages(scene: Scene) -> None:
    scene.working.page_table.reverse()


def be_beyond_the_pages(scene: Scene) -> None:
    scene.working.position = 13


def be_short_of_the_frozen_pages(scene: Scene) -> None:
    scene.working.position = 3


def fill_a_page_without_freezing_it(scene: Scene) -> None:
    scene.working.position = 8


def believe_in_more_pages(scene: Scene) -> None:
    scene.working.covered += 4


def freeze_too_late(scene: Scene) -> None:
    scene.working.next_full += 4


PLANTED: list[tuple[Callable[[Scene], None], str]] = [
    (free_an_owned_slot, "slot 0 stands in 2 columns"),
    (lose_a_free_slot, "slot 3 stands in 0 columns"),
    (free_a_slot_that_is_not_there, "slot 9 does not exist"),
    (alias_two_slots, "slot 0 stands in 2 columns"),
    (forget_a_slot, "claim 1 (no slot, generation 1) has no slot"),
    (turn_a_generation_back, "slot 1 (generation 0): the slot's newest generation is 1"),
    (free_an_owned_page, "page 1 stands in 2 columns"),
    (free_a_shared_page, "page 0 stands in 2 columns"),
    (lose_a_free_page, "page 5 stands in 0 columns"),
    (count_a_run_once_too_often, "run 0 has count 3, named by 2"),
    (misjudge_a_chain, "run 0 says that its chain has 2 pages"),
    (orphan_a_run, "run 1 has count 1, named by 0"),
    (forget_a_named_run, "run 0 is named, but has ended"),
    (pin_once_too_often, "slot 0 (generation 2) has 2 pins, held by 1"),
    (pin_a_claim_that_has_ended, "claim 0 is pinned, but has ended"),
    (drain_without_a_pin, "slot 0 (generation 2) drains, but nothing pins it"),
    (steal_from_the_device, "slot 2 (generation 1) is in 1 leases, in custody of session:a"),
    (note_a_step_that_is_not, "slot 1 (generation 1) is in 0 leases, in custody of scheduler"),
    (lease_a_claim_that_has_ended, "claim 2 is in a lease, but has ended"),
    (forget_a_live_handle, "slot 0 (generation 2): its live handle is not in the table"),
    (let_a_draining_claim_have_an_owner, "slot 0 (generation 2) drains, but has an owner"),
    (change_a_kind, "slot 0 (generation 2) is cache, its handle SessionOwned"),
    (leave_a_spent_handle_live, "4 live handles for 3 claims"),
    (forget_a_leases_handle, "lease 1: its handle was garbage collected"),
    (forget_a_name, "0 names, but 1 claims that have one"),
    (rest_without_a_name, "slot 0 (generation 2) is at rest without a name or a valid state"),
    (rest_in_an_undefined_state, "is at rest without a name or a valid state"),
    (copy_from_nothing, "slot 1 (generation 1) is copy of base, base False"),
    (swap_two_pages, "slot 1 (generation 1): its page table is not its run and its own pages"),
    (be_beyond_the_pages, "slot 1 (generation 1): 12 positions covered, at 13"),
    (be_short_of_the_frozen_pages, "slot 1 (generation 1): frozen up to 4, at 3"),
    (fill_a_page_without_freezing_it, "slot 1 (generation 1): frozen up to 4, at 8"),
    (believe_in_more_pages, "slot 1 (generation 1): 12 positions covered, at 6"),
    (freeze_too_late, "slot 1 (generation 1): frozen up to 4, at 6"),
]


@pytest.mark.parametrize(("plant", "problem"), PLANTED, ids=[p.__name__ for p, _ in PLANTED])
def test_the_audit_finds_what_was_planted(plant: Callable[[Scene], None], problem: str) -> None:
    """A check that was never seen to fail proves nothing."""
    scene = set_scene()
    plant(scene)

    report = scene.desk.ledger.audit()
    assert not report.conserved
    assert not report.at_rest
    assert problem in "\n".join(report.problems)


def test_a_claim_without_its_slot_hides_no_later_one() -> None:
    """Each claim is looked at, whatever is wrong with the one before."""
    scene = set_scene()
    forget_a_slot(scene)
    later = [record for record in scene.book.claims.values() if record.slot is not NO_SLOT]
    later[-1].generation = 0

    problems = "\n".join(scene.desk.ledger.audit().problems)
    assert "has no slot" in problems
    assert f"slot {later[-1].slot} (generation 0): the slot's newest generation is" in problems


COLUMNS = ("batch", "session", "cache", "draining", "exclusive_pages", "shared_pages")


def report_of(columns: Sequence[str], problems: Sequence[str] = ()) -> AuditReport:
    """A report that counts one in each of the columns."""
    fields: dict[str, Any] = attrs.asdict(open_desk().ledger.audit())
    fields |= dict.fromkeys(columns, 1) | {"problems": tuple(problems)}
    return AuditReport(**fields)


@pytest.mark.parametrize("others", [(), *((column,) for column in COLUMNS)], ids=str)
@pytest.mark.parametrize("column", COLUMNS)
def test_nothing_in_any_column_outweighs_another(column: str, others: tuple[str, ...]) -> None:
    """At rest means that each column is empty, and not that they add up to nothing."""
    assert report_of(()).at_rest
    assert not report_of((column, *others)).at_rest
    assert not report_of((), problems=("something",)).at_rest


def test_a_hanging_claim_of_a_model_without_slots_loses_no_slot() -> None:
    """Quarantine counts what it keeps: pages alone."""
    desk = open_desk(slots=0)
    lease = desk.batch.launch([desk.reserve(3)], step=1)
    desk.ledger.quarantine(lease)

    report = desk.ledger.audit()
    assert (report.quarantined, report.quarantined_slots, report.quarantined_pages) == (1, 0, 1)
    (claim,) = desk.batch.land(lease, StepFailed("it hung"))
    desk.batch.rollback(claim)
    assert desk.is_empty()


def test_pages_of_a_pool_without_pages_are_no_problem() -> None:
    """Nothing to cover, nothing to freeze."""
    desk = open_desk(pages=0)
    state = desk.committed(1000)

    assert desk.ledger.audit().problems == ()
    desk.session.close(state)
    assert desk.is_empty()


def test_claims_of_another_custodian_are_conserved_too() -> None:
    """Conservation is about slots and pages, whoever has them."""
    desk = open_desk()
    claim = desk.hand(desk.reserve(3), CustodianId("anybody"))

    assert desk.ledger.audit().conserved
    assert desk.ledger.view.describe(claim).custodian == "anybody"
    assert desk.ledger.reclaim(CustodianId("anybody")).batch == 1
    assert desk.is_empty()
