"""Handles: sealed, so that a verb is the only way to come by one."""

import copy
import gc
import pickle
from collections.abc import Callable
from typing import TypeVar

import pytest

from ownership import (
    BatchOwned,
    CacheOwned,
    ForeignHandle,
    Lease,
    SessionOwned,
    StaleHandle,
    StepFailed,
    WrongOwner,
)
from ownership.handles import lease_of, record_of
from tests.ownership.support import CACHE, SCHEDULER, SESSION, Desk, open_desk, snapshot

T = TypeVar("T")
HANDLE_TYPES: list[type[object]] = [BatchOwned, SessionOwned, CacheOwned, Lease]


def one_of_each(desk: Desk) -> list[object]:
    cached = desk.cache.admit(desk.hand(desk.working(3), CACHE))
    lease = desk.batch.launch([desk.reserve(3)], step=9)
    return [desk.reserve(3), desk.committed(3), cached, lease]


@pytest.mark.parametrize("handle_type", HANDLE_TYPES)
def test_a_handle_cannot_be_built(handle_type: Callable[..., object]) -> None:
    """Whoever could build one could give back what is not his."""
    with pytest.raises(TypeError):
        handle_type()
    with pytest.raises(TypeError, match="handles are made by the verbs of a port"):
        handle_type(None, None, *([None, None] if handle_type is Lease else []))


@pytest.mark.parametrize("handle_type", HANDLE_TYPES)
def test_a_handle_type_cannot_be_subclassed(handle_type: type[object]) -> None:
    """A subclass would be a second name for one owner."""
    with pytest.raises(TypeError, match=f"{handle_type.__name__} can't be subclassed"):
        type("Forged", (handle_type,), {})


@pytest.mark.parametrize("handle_type", HANDLE_TYPES)
def test_handle_types_have_nothing_in_common(handle_type: type[object]) -> None:
    """A common base would be a door for a verb that accepts all of them."""
    assert handle_type.__mro__ == (handle_type, object)


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("index", range(4))
def test_a_handle_cannot_be_copied(
    desk: Desk, index: int, copier: Callable[[object], object]
) -> None:
    """Two handles of one claim are two owners."""
    handle = one_of_each(desk)[index]

    with pytest.raises(TypeError, match="can't be copied or pickled"):
        copier(handle)


def test_handles_compare_by_identity(desk: Desk) -> None:
    """Equal values would make a stale handle equal to the live one."""
    first, second = desk.reserve(3), desk.reserve(3)

    assert first != second
    assert len({first, second, first}) == 2
    assert [first, second].index(second) == 1


@pytest.mark.parametrize("name", ["note", "slot"])
def test_handles_have_no_attributes_to_write(desk: Desk, name: str) -> None:
    """A note on a handle would travel with it, unseen by the ledger."""
    with pytest.raises(AttributeError):
        setattr(desk.reserve(3), name, 1)


def test_repr_tells_kind_slot_and_generation(desk: Desk) -> None:
    """It is what stands in a log or a traceback."""
    batch, session, cached, lease = one_of_each(desk)

    assert repr(batch) == "<BatchOwned slot 2 generation 1>"
    assert repr(session) == "<SessionOwned slot 3 generation 2>"
    assert repr(cached) == "<CacheOwned slot 0 generation 2>"
    assert repr(lease) == "<Lease 1 of step 9>"


def test_repr_of_a_claim_without_slot_tells_the_claim() -> None:
    """Models without recurrent state have claims of pages only."""
    assert repr(open_desk(slots=0).reserve(3)) == "<BatchOwned claim 0 generation 1>"


def test_repr_of_a_forged_handle_does_not_fail() -> None:
    """Errors about forged handles print them."""
    for handle_type in HANDLE_TYPES:
        assert repr(object.__new__(handle_type)) == f"<{handle_type.__name__}, forged>"


def test_what_a_handle_says_of_itself_is_only_for_messages(desk: Desk) -> None:
    """Both readers accept anything."""
    assert record_of(3) == (None, 0)
    assert lease_of(3) is None
    record, generation = record_of(desk.reserve(3))
    assert record is not None
    assert (record.custodian, generation) == (SCHEDULER, 1)


def forge(handle_type: type[T], source: object) -> T:
    """Copy all that a handle keeps into a fresh object of another type, by force."""
    forged = object.__new__(handle_type)
    for slot in handle_type.__dict__["__slots__"]:
        if slot != "__weakref__":
            object.__setattr__(forged, slot, getattr(source, slot))
    return forged


def test_a_batch_handle_forged_from_a_session_is_the_wrong_owner(desk: Desk) -> None:
    """The seed's bug, by force: a rollback of what a session keeps is refused by the ledger."""
    state = desk.committed(3)
    forged = forge(BatchOwned, state)
    before = snapshot(desk.ledger)

    with pytest.raises(WrongOwner, match=r"slot 0 .* is SessionOwned, held by session:a"):
        desk.session.rollback(forged)
    with pytest.raises(WrongOwner):
        desk.batch.rollback(forged)
    assert snapshot(desk.ledger) == before
    desk.session.close(state)
    assert desk.is_empty()


def test_a_handle_whose_class_was_changed_opens_nothing(desk: Desk) -> None:
    """Whether Python lets an object change its class depends on its version."""
    state: object = desk.committed(3)

    def roll_back_by_force() -> None:
        object.__setattr__(state, "__class__", BatchOwned)
        assert isinstance(state, BatchOwned)
        desk.session.rollback(state)

    with pytest.raises((TypeError, WrongOwner)):
        roll_back_by_force()
    assert desk.ledger.view.audit().session == 1


def test_a_forged_copy_of_a_live_handle_is_foreign(desk: Desk) -> None:
    """It says all the right things; only it is not the object that was issued."""
    claim = desk.reserve(3)
    before = snapshot(desk.ledger)

    with pytest.raises(ForeignHandle, match="forged copy"):
        desk.batch.rollback(forge(BatchOwned, claim))
    assert snapshot(desk.ledger) == before
    desk.batch.rollback(claim)


def test_an_empty_forged_handle_is_foreign(desk: Desk) -> None:
    """``object.__new__`` can't be forbidden; it opens nothing."""
    with pytest.raises(ForeignHandle, match="not made by this ledger"):
        desk.batch.rollback(object.__new__(BatchOwned))
    with pytest.raises(ForeignHandle, match="not made by this ledger"):
        desk.batch.land(object.__new__(Lease), StepFailed("no"))


def test_a_forged_copy_of_a_live_lease_is_foreign(desk: Desk) -> None:
    """Landing it would give the rows back while the device still writes."""
    lease = desk.batch.launch([desk.reserve(3)], step=1)
    forged = forge(Lease, lease)

    with pytest.raises(ForeignHandle, match="forged copy"):
        desk.batch.land(forged, StepFailed("no"))
    desk.batch.land(lease, StepFailed("it broke"))


def test_a_handle_of_another_ledger_is_foreign(desk: Desk) -> None:
    """Two engines in one process have the same slot numbers."""
    other = open_desk()
    lease = other.batch.launch([other.reserve(3)], step=1)

    with pytest.raises(ForeignHandle):
        desk.batch.rollback(other.reserve(3))
    with pytest.raises(ForeignHandle):
        desk.batch.land(lease, StepFailed("no"))
    assert desk.is_empty()


def test_a_lost_live_handle_is_recorded_and_frees_nothing(desk: Desk) -> None:
    """Freeing in a finaliser would hide the leak, and free at a moment nobody chose."""
    claim = desk.reserve(3)
    free = desk.ledger.view.free_slots
    del claim
    gc.collect()

    assert desk.ledger.view.free_slots == free
    (violation,) = desk.ledger.view.violations
    assert violation.kind == "lost"
    assert "slot 0 (generation 1) of batch, in custody of scheduler" in violation.message
    assert not desk.ledger.view.audit().conserved
    assert desk.ledger.reclaim(SCHEDULER).batch == 1
    assert desk.is_empty()


def test_a_lost_lease_is_recorded_and_frees_nothing(desk: Desk) -> None:
    """Nothing can land the step any more: its claims stay out of reach, and the audit tells."""
    lease = desk.batch.launch([desk.reserve(3)], step=7)
    bystander = desk.batch.launch([desk.reserve(3)], step=8)
    del lease
    gc.collect()

    (violation,) = desk.ledger.view.violations
    assert violation.message == "the live handle of lease 0 (step 7) was garbage collected"
    assert desk.ledger.view.audit().problems == ("lease 0: its handle was garbage collected",)
    desk.batch.land(bystander, StepFailed("it broke"))


def test_a_spent_handle_may_be_collected(desk: Desk) -> None:
    """Only a live one is missed."""
    claim = desk.reserve(3)
    desk.batch.rollback(claim)
    del claim
    gc.collect()

    assert desk.ledger.view.violations == ()


def test_a_leased_claim_needs_no_handle_outside_the_lease(desk: Desk) -> None:
    """The lease keeps the handles alive, and gives out the same ones."""
    lease = desk.batch.launch([desk.reserve(3)], step=1)
    gc.collect()
    (claim,) = desk.batch.land(lease, StepFailed("it broke"))

    desk.batch.rollback(claim)

    assert desk.is_empty()


def test_a_stale_handle_stays_stale_when_its_slot_has_a_new_claim(desk: Desk) -> None:
    """The slot's number is the same; the handle is not."""
    old = desk.reserve(3)
    desk.batch.rollback(old)
    new = desk.reserve(3)

    with pytest.raises(StaleHandle, match=r"slot 0 \(generation 1\) was given back by rollback"):
        desk.batch.rollback(old)
    assert desk.ledger.view.describe(new).generation == 2
    assert desk.ledger.view.held_by(SESSION) == ()
    desk.batch.rollback(new)
