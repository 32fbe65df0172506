"""Custody: a live handle is good for the custodian that holds it, and for nobody else."""

from collections.abc import Callable
from typing import cast

import pytest

from ownership import (
    DEVICE,
    Absorbed,
    BatchOwned,
    LedgerError,
    Need,
    SessionOwned,
    StaleHandle,
    StepFailed,
)
from tests.ownership.support import (
    CACHE,
    MAIL,
    OTHER,
    SCHEDULER,
    SESSION,
    Desk,
    open_desk,
    snapshot,
)


def test_a_moved_handle_is_the_same_object_with_another_custodian(desk: Desk) -> None:
    """No fresh object at each hop."""
    claim = desk.reserve(3)

    desk.ledger.move(claim, SCHEDULER, MAIL, "post Finished")
    assert desk.ledger.view.describe(claim).custodian == MAIL
    desk.ledger.move(claim, MAIL, SESSION, "take Finished")
    desk.session.rollback(claim)

    assert desk.is_empty()


def test_sessions_and_caches_handles_move_too(desk: Desk) -> None:
    """Mailboxes carry any of the three."""
    state = desk.committed(3)
    cached = desk.cache.admit(desk.hand(desk.working(3), CACHE))

    desk.ledger.move(state, SESSION, MAIL, "there")
    desk.ledger.move(state, MAIL, SESSION, "and back")
    desk.ledger.move(cached, CACHE, MAIL, "away")

    desk.session.close(state)
    assert desk.ledger.reclaim(MAIL).cache == 1
    assert desk.is_empty()


def test_a_moved_handle_is_refused_where_it_was_and_told_where_it_is(desk: Desk) -> None:
    """The error names slot, generation, both custodians, and the site of the move."""
    claim = desk.reserve(3)
    desk.ledger.move(claim, SCHEDULER, MAIL, "post Finished")
    before = snapshot(desk.ledger)

    with pytest.raises(StaleHandle) as refused:
        desk.batch.rollback(claim)

    assert str(refused.value) == (
        "BatchPort.rollback: slot 0 (generation 1) was moved from scheduler to mail:session:a "
        "by post Finished; scheduler no longer holds it "
        "[last moves: #2 scheduler -> mail:session:a (post Finished)]"
    )
    assert snapshot(desk.ledger) == before


def test_a_handle_that_never_moved_is_refused_to_others(desk: Desk) -> None:
    """There is no move to tell of."""
    claim = desk.reserve(3)

    with pytest.raises(StaleHandle, match="is held by scheduler, not by session:a"):
        desk.session.rollback(claim)
    desk.batch.rollback(claim)


def test_a_handle_can_only_be_moved_by_its_custodian(desk: Desk) -> None:
    """Whoever takes mail twice has nothing to hand on the second time."""
    claim = desk.reserve(3)
    desk.ledger.move(claim, SCHEDULER, MAIL, "post")
    before = snapshot(desk.ledger)

    with pytest.raises(StaleHandle, match=r"move by post again: .* was moved from scheduler"):
        desk.ledger.move(claim, SCHEDULER, MAIL, "post again")
    assert snapshot(desk.ledger) == before


def test_a_spent_handle_cannot_be_moved(desk: Desk) -> None:
    """Nothing stands behind it."""
    claim = desk.reserve(3)
    desk.batch.rollback(claim)

    with pytest.raises(StaleHandle, match="this BatchOwned is spent"):
        desk.ledger.move(claim, SCHEDULER, MAIL, "post")


def test_a_claim_on_the_device_cannot_be_moved_away(desk: Desk) -> None:
    """Not even by naming the device as its source: the step may still write."""
    claim = desk.reserve(3)
    lease = desk.batch.launch([claim], step=4)
    before = snapshot(desk.ledger)

    for source in (SCHEDULER, DEVICE):
        with pytest.raises(StaleHandle, match=r"on the device in lease 0 \(step 4\)"):
            desk.ledger.move(claim, source, MAIL, "post")
    assert snapshot(desk.ledger) == before
    desk.batch.land(lease, StepFailed("it broke"))


def test_no_claim_is_moved_to_the_device(desk: Desk) -> None:
    """Launch alone leads there: what is moved there no lease would give back."""
    claim = desk.reserve(3)
    before = snapshot(desk.ledger)

    with pytest.raises(LedgerError, match="goes to the device by launch alone"):
        desk.ledger.move(claim, SCHEDULER, DEVICE, "post")
    assert snapshot(desk.ledger) == before


def test_a_lease_is_not_moved(desk: Desk) -> None:
    """It is the device's from launch to land, wherever its token travels."""
    lease: object = desk.batch.launch([desk.reserve(3)], step=1)
    move = cast("Callable[..., None]", desk.ledger.move)

    with pytest.raises(TypeError, match=r"not Lease; a Lease ends by BatchPort.land"):
        move(lease, DEVICE, MAIL, "post")


def test_an_error_tells_the_last_moves_and_keeps_only_some(desk: Desk) -> None:
    """A session's handle may travel for ever; its trail may not grow for ever."""
    claim = desk.reserve(3)
    for lap in range(20):
        desk.ledger.move(claim, SCHEDULER, MAIL, f"out {lap}")
        desk.ledger.move(claim, MAIL, SCHEDULER, f"back {lap}")
    desk.batch.rollback(claim)

    with pytest.raises(StaleHandle) as refused:
        desk.batch.rollback(claim)
    trail = str(refused.value).partition("last moves: ")[2].split(", ")
    assert 4 <= len(trail) <= 8
    assert "back 19" in trail[-1]


def test_a_handle_of_an_earlier_owner_is_told_who_came_after(desk: Desk) -> None:
    """DF-9: whoever kept the batch's handle after the commit learns that it is the session's."""
    working = desk.hand(desk.working(3))
    state = desk.session.commit(working, replaces=None)
    before = snapshot(desk.ledger)

    with pytest.raises(StaleHandle) as refused:
        desk.session.rollback(working)
    assert "slot 0 (generation 2) has another owner since" in str(refused.value)
    assert "this BatchOwned is generation 1, and its claim is session now" in str(refused.value)
    assert snapshot(desk.ledger) == before
    desk.session.close(state)


def untyped_calls(desk: Desk) -> list[tuple[Callable[..., object], tuple[object, ...], str]]:
    state: object = desk.committed(3)
    claim: object = desk.reserve(3)
    cached: object = desk.cache.admit(desk.hand(desk.working(3), CACHE))
    lease: object = desk.batch.launch([desk.reserve(3)], step=1)
    ended = StepFailed("it broke")
    closed = "a SessionOwned ends by SessionPort.close, or replaced by SessionPort.commit"
    given_back = "a BatchOwned ends by rollback, commit or admit"
    landed = "a Lease ends by BatchPort.land"
    return [
        (desk.batch.rollback, (state,), f"takes a BatchOwned, not SessionOwned; {closed}"),
        (desk.session.rollback, (state,), f"takes a BatchOwned, not SessionOwned; {closed}"),
        (desk.cache.rollback, (state,), f"takes a BatchOwned, not SessionOwned; {closed}"),
        (desk.batch.rollback, (cached,), "not CacheOwned; a CacheOwned ends by CachePort.evict"),
        (desk.batch.rollback, (lease,), f"takes a BatchOwned, not Lease; {landed}"),
        (desk.batch.rollback, (3,), "BatchPort.rollback takes a BatchOwned, not int"),
        (desk.batch.rollback, (None,), "BatchPort.rollback takes a BatchOwned, not NoneType"),
        (desk.batch.grow, (state, Need(1)), "BatchPort.grow takes a BatchOwned, not SessionOwned"),
        (desk.batch.land, (claim, ended), f"takes a Lease, not BatchOwned; {given_back}"),
        (desk.session.close, (claim,), f"takes a SessionOwned, not BatchOwned; {given_back}"),
        (desk.cache.evict, (state,), f"takes a CacheOwned, not SessionOwned; {closed}"),
        (desk.cache.admit, (state,), f"takes a BatchOwned, not SessionOwned; {closed}"),
        (desk.ledger.quarantine, (claim,), f"takes a Lease, not BatchOwned; {given_back}"),
        (desk.ledger.view.position, (lease,), f"takes a BatchOwned, not Lease; {landed}"),
    ]


@pytest.mark.parametrize("index", range(14))
def test_a_handle_of_the_wrong_type_is_a_type_error_that_tells_the_right_verb(index: int) -> None:
    """In untyped code the port is where the seed's bug ends."""
    desk = open_desk(slots=6)
    verb, arguments, message = untyped_calls(desk)[index]
    before = snapshot(desk.ledger)

    with pytest.raises(TypeError) as refused:
        verb(*arguments)
    assert message in str(refused.value)
    assert snapshot(desk.ledger) == before


def test_launch_and_commit_check_the_type_of_each_handle(desk: Desk) -> None:
    """Also where handles come in a sequence or by keyword."""
    state = desk.committed(3)
    claim, other = desk.reserve(3), desk.hand(desk.reserve(3), SESSION)
    launch = cast("Callable[..., object]", desk.batch.launch)
    commit = cast("Callable[..., object]", desk.session.commit)
    before = snapshot(desk.ledger)

    with pytest.raises(TypeError, match=r"BatchPort.launch takes a BatchOwned, not SessionOwned"):
        launch([claim, state], step=1)
    with pytest.raises(TypeError, match=r"SessionPort.commit takes a BatchOwned, not SessionOwn"):
        commit(state, replaces=None)
    assert snapshot(desk.ledger) == before
    desk.session.rollback(other)
    working = desk.hand(desk.working(2, desk.name()))
    with pytest.raises(TypeError, match=r"SessionPort.commit takes a SessionOwned, not BatchOwned"):
        commit(working, replaces=claim)


def test_no_verb_but_land_finds_a_claim_on_the_device(desk: Desk) -> None:
    """Release waits for the device by construction."""
    claim = desk.working(1, covers=9)
    lease = desk.batch.launch([claim], step=4)
    before = snapshot(desk.ledger)

    verbs: list[Callable[[BatchOwned], object]] = [
        desk.batch.rollback,
        desk.session.rollback,
        desk.cache.rollback,
        desk.cache.admit,
        lambda claim: desk.batch.grow(claim, Need(20)),
        lambda claim: desk.batch.launch([claim], step=5),
        lambda claim: desk.session.commit(claim, replaces=None),
    ]
    for verb in verbs:
        with pytest.raises(StaleHandle, match=r"on the device in lease \d+ \(step 4\) until"):
            verb(claim)
    assert desk.ledger.reclaim(SCHEDULER).batch == 0
    assert snapshot(desk.ledger) == before
    (claim,) = desk.batch.land(lease, Absorbed((1,)))
    desk.batch.rollback(claim)
    assert desk.is_empty()


def test_another_sessions_state_is_not_closed(desk: Desk) -> None:
    """Custody is by actor, not by kind of actor."""
    state: SessionOwned = desk.committed(3)

    with pytest.raises(StaleHandle, match="was moved from scheduler to session:a by test"):
        desk.ledger.session_port(OTHER).close(state)
    desk.session.close(state)


def test_refused_uses_are_counted_and_kept(desk: Desk) -> None:
    """A handler that swallows the error can't hide it."""
    claim = desk.reserve(3)
    desk.batch.rollback(claim)
    for _ in range(300):
        with pytest.raises(StaleHandle):
            desk.batch.rollback(claim)

    view = desk.ledger.view
    assert view.counters.violations == 300
    assert len(view.violations) == 256
    assert view.violations[-1].kind == "StaleHandle"


def test_a_mover_is_the_move_itself_bound_once(desk: Desk) -> None:
    """What a mailbox calls on every hop, with the same checks."""
    claim, move = desk.reserve(3), desk.ledger.mover()

    move(claim, SCHEDULER, MAIL, "post Finished")
    assert desk.ledger.view.describe(claim).custodian == MAIL
    with pytest.raises(StaleHandle, match="was moved from scheduler to mail:session:a by post"):
        move(claim, SCHEDULER, MAIL, "post Finished")
