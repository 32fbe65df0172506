"""``launch``, ``land`` and quarantine: what the device has, nobody else can give back."""

import pytest

from ownership import (
    DEVICE,
    Absorbed,
    BatchOwned,
    Content,
    LandOutcome,
    LedgerError,
    StaleHandle,
    StepFailed,
)
from ownership.handles import record_of
from tests.ownership.support import OTHER, SCHEDULER, Desk, snapshot

FAILED = StepFailed("it broke")


def test_launched_claims_are_the_devices_and_come_back_in_row_order(desk: Desk) -> None:
    """The same handle objects: whoever kept one by turn id still has it."""
    claims = [desk.reserve(8) for _ in range(3)]
    lease = desk.batch.launch(claims, step=1)
    assert len(desk.ledger.view.held_by(DEVICE)) == 3
    desk.check()

    landed = desk.batch.land(lease, Absorbed((1, 2, 3)))

    assert list(landed) == claims
    assert [desk.ledger.view.position(claim) for claim in claims] == [1, 2, 3]
    assert {desk.ledger.view.describe(claim).custodian for claim in claims} == {SCHEDULER}
    assert {desk.ledger.view.describe(claim).content for claim in claims} == {Content.VALID}
    desk.check()


def test_claims_land_in_the_custody_of_whoever_lands_them(desk: Desk) -> None:
    """A restarted scheduler lands what its predecessor launched."""
    claim = desk.reserve(4)
    lease = desk.batch.launch([claim], step=1)
    successor = desk.ledger.batch_port(OTHER)

    successor.land(lease, Absorbed((4,)))
    successor.rollback(claim)

    assert desk.is_empty()


def test_pages_that_a_landing_filled_are_frozen_into_one_run(desk: Desk) -> None:
    """What is full is never written again, so it can be shared from now on."""
    claim = desk.reserve(13)

    desk.step([claim], 3)
    assert desk.ledger.view.describe(claim).exclusive == 4
    desk.step([claim], 1)
    assert desk.ledger.view.describe(claim).exclusive == 3
    desk.step([claim], 8)
    seen = desk.ledger.view.describe(claim)
    assert (seen.position, seen.exclusive, seen.pages) == (12, 1, (0, 1, 2, 3))
    assert desk.ledger.view.audit().shared_pages == 3
    desk.check()
    desk.batch.rollback(claim)
    assert desk.is_empty()


def test_a_page_that_was_partly_filled_is_frozen_when_it_is_full(desk: Desk) -> None:
    """The tail copied from the base counts like any page of the claim's own."""
    desk.committed(6)
    claim = desk.working(2, desk.name())

    assert desk.ledger.view.describe(claim).exclusive == 0
    assert desk.ledger.view.audit().shared_pages == 2
    desk.check()


@pytest.mark.parametrize(
    ("outcome", "content"), [(Absorbed((2,)), Content.VALID), (FAILED, Content.UNDEFINED)]
)
def test_the_pin_on_a_base_ends_with_the_first_landing(
    desk: Desk, outcome: LandOutcome, content: Content
) -> None:
    """Failed or not: the copy out of it is over."""
    desk.committed(6)
    claim = desk.reserve(8, desk.name())
    lease = desk.batch.launch([claim], step=2)
    found = desk.ledger.view.find_base(desk.name())
    assert found is not None
    assert found.pinned == 1

    desk.batch.land(lease, outcome)

    found = desk.ledger.view.find_base(desk.name())
    assert found is not None
    assert found.pinned == 0
    seen = desk.ledger.view.describe(claim)
    assert (seen.content, seen.base) == (content, None)
    desk.check()


def test_a_failed_step_leaves_position_and_pages_and_only_rollback(desk: Desk) -> None:
    """The state is somewhere between two positions: nobody may build on it."""
    claim = desk.working(5, covers=12)
    seen = desk.ledger.view.describe(claim)
    desk.fail(claim)

    after = desk.ledger.view.describe(claim)
    assert (after.position, after.pages, after.content) == (5, seen.pages, Content.UNDEFINED)
    before = snapshot(desk.ledger)
    with pytest.raises(LedgerError, match=r"launch: slot 0 .* is undefined after a failed step"):
        desk.batch.launch([claim], step=2)
    assert snapshot(desk.ledger) == before
    desk.batch.rollback(claim)
    assert desk.is_empty()


def test_a_landing_of_no_tokens_is_a_copy(desk: Desk) -> None:
    """Turns without tokens (park, fork, publish) land so."""
    desk.committed(6)
    claim = desk.working(0, desk.name())

    seen = desk.ledger.view.describe(claim)
    assert (seen.position, seen.content) == (6, Content.VALID)
    desk.check()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ((1,), "1 numbers for 2 rows"),
        ((1, 1, 1), "3 numbers for 2 rows"),
        ((1, -1), r"slot 1 \(generation 1\) absorbed -1 at position 0, covers 4"),
        ((5, 1), r"slot 0 \(generation 1\) absorbed 5 at position 0, covers 4"),
    ],
)
def test_an_impossible_landing_changes_nothing(
    desk: Desk, tokens: tuple[int, ...], message: str
) -> None:
    """Not even for the rows before the bad one."""
    lease = desk.batch.launch([desk.reserve(3), desk.reserve(3)], step=6)
    before = snapshot(desk.ledger)

    with pytest.raises(LedgerError, match=rf"land of lease 0 \(step 6\): {message}"):
        desk.batch.land(lease, Absorbed(tokens))
    assert snapshot(desk.ledger) == before
    claims = desk.batch.land(lease, Absorbed((4, 1)))
    desk.check()
    assert [desk.ledger.view.position(claim) for claim in claims] == [4, 1]


def test_a_lease_lands_once(desk: Desk) -> None:
    """A second landing would advance positions that no step has computed."""
    claim = desk.reserve(3)
    lease = desk.batch.launch([claim], step=6)
    desk.batch.land(lease, Absorbed((1,)))
    before = snapshot(desk.ledger)

    with pytest.raises(StaleHandle, match=r"lease 0 \(step 6\) has landed"):
        desk.batch.land(lease, Absorbed((1,)))
    with pytest.raises(StaleHandle):
        desk.ledger.quarantine(lease)
    with pytest.raises(StaleHandle):
        desk.ledger.view.placements(lease)
    assert snapshot(desk.ledger) == before
    desk.batch.rollback(claim)


def test_a_step_without_rows_is_a_mistake(desk: Desk) -> None:
    """Nothing would ever be waited for."""
    with pytest.raises(LedgerError, match="launch of step 3: wants at least one claim"):
        desk.batch.launch([], step=3)


def test_a_claim_is_in_a_step_once(desk: Desk) -> None:
    """Two rows would write one slot."""
    claim, other = desk.reserve(3), desk.reserve(3)
    before = snapshot(desk.ledger)

    with pytest.raises(LedgerError, match="each only once"):
        desk.batch.launch([claim, other, claim], step=3)
    assert snapshot(desk.ledger) == before


def test_one_bad_claim_keeps_all_from_being_launched(desk: Desk) -> None:
    """All or nothing."""
    good, bad = desk.reserve(3), desk.reserve(3)
    desk.batch.rollback(bad)
    before = snapshot(desk.ledger)

    with pytest.raises(StaleHandle):
        desk.batch.launch([good, bad], step=3)
    assert snapshot(desk.ledger) == before
    desk.batch.rollback(good)


def pin(claim: BatchOwned) -> None:
    """What publishing or parking a working claim will do, once there is a verb for it."""
    record, _ = record_of(claim)
    assert record is not None
    record.pins += 1


def test_a_pinned_working_claim_is_not_launched(desk: Desk) -> None:
    """A step writes in place what the copy under way still reads."""
    claim = desk.working(3)
    pin(claim)

    with pytest.raises(LedgerError, match="is pinned by 1 copies under way: wait for them"):
        desk.batch.launch([claim], step=2)
    assert desk.ledger.view.describe(claim).pinned == 1


def test_two_rows_may_copy_out_of_one_base(desk: Desk) -> None:
    """Two pins, each ended by its own landing."""
    state = desk.committed(6)
    claims = [desk.reserve(9, desk.name()) for _ in range(2)]
    lease = desk.batch.launch(claims, step=2)
    desk.session.close(state)
    assert desk.ledger.view.draining_slots == 1

    desk.batch.land(lease, Absorbed((1, 2)))

    assert desk.ledger.view.draining_slots == 0
    desk.check()
    for claim in claims:
        desk.batch.rollback(claim)
    assert desk.is_empty()
