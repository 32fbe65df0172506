"""The mailbox: custody moves with the mail, in synchronous calls, or not at all."""

import ast
import inspect
from pathlib import Path

import pytest

import kernel
from kernel.actors.mailbox import Mailbox, MailboxOverflow
from ownership import BatchOwned, BatchPort, Capacity, CustodianId, Ledger, StaleHandle
from tests.kernel.toys import Note, Parcel, reserve

SENDER = CustodianId("scheduler")
OWNER = CustodianId("session:a")

# Where callers wait; everything else in the kernel is plain calls.
EDGE = {
    "actors/reply",
    "engine/blocking",
    "engine/blocking_turn",
    "engine/choices",
    "engine/desk",
    "engine/engine",
    "engine/generation",
    "engine/listing",
    "engine/many",
    "engine/request",
    "engine/session_handle",
    "engine/sessions",
    "engine/shell",
    "engine/streaming_session",
    "engine/wake_calls",
    "environment",
    "requests/constraining",
    "requests/output_buffer",
}


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Capacity(4, 16, 4))


@pytest.fixture
def port(ledger: Ledger) -> BatchPort:
    return ledger.batch_port(SENDER)


def mailbox(ledger: Ledger, *, bound: int = 10, rung: list[str] | None = None) -> Mailbox[Parcel]:
    bell = [] if rung is None else rung
    return Mailbox(OWNER, ledger, bound=bound, ready=lambda box: bell.append(box.owner))


def custodian(ledger: Ledger, claim: BatchOwned) -> str:
    return ledger.view.describe(claim).custodian


def test_a_handle_is_with_the_sender_then_the_mailbox_then_the_owner(
    ledger: Ledger, port: BatchPort
) -> None:
    """At no moment is it with nobody, or with two."""
    box, claim = mailbox(ledger), reserve(port)
    posts = [box.post(Parcel(claim), SENDER)]
    under_way = ledger.view.held_by(box.custodian)
    taken = box.take()

    assert posts == [None]
    assert len(under_way) == 1
    assert box.custodian == "mail:session:a"
    assert taken.claim is claim
    assert custodian(ledger, taken.claim) == OWNER


def test_post_after_close_returns_the_message_and_moves_nothing(
    ledger: Ledger, port: BatchPort
) -> None:
    """The sender still owns what is in it, and can give it back."""
    box, parcel = mailbox(ledger), Parcel(reserve(port))
    box.close()

    left = box.post(parcel, SENDER)
    assert left is parcel
    assert left is not None
    assert custodian(ledger, left.claim) == SENDER
    port.rollback(left.claim)


def test_a_handle_that_the_sender_does_not_hold_fails_at_post(
    ledger: Ledger, port: BatchPort
) -> None:
    """In the sender's own handler, where the mistake is; nothing is delivered."""
    box, claim = mailbox(ledger), reserve(port)

    with pytest.raises(StaleHandle, match="Parcel"):
        box.post(Parcel(claim), CustodianId("session:b"))

    assert len(box) == 0
    assert not box.queued
    assert custodian(ledger, claim) == SENDER


def test_a_handle_can_be_sent_once(ledger: Ledger, port: BatchPort) -> None:
    """A second message with it would give it two owners."""
    box, claim = mailbox(ledger), reserve(port)
    box.post(Parcel(claim), SENDER)

    with pytest.raises(StaleHandle):
        box.post(Parcel(claim), SENDER)
    assert len(box) == 1


def test_the_bound_is_asserted_before_anything_moves(ledger: Ledger, port: BatchPort) -> None:
    """Unbounded mail would hide a bug of the protocol until the memory is gone."""
    box, claims = mailbox(ledger, bound=1), [reserve(port), reserve(port)]
    box.post(Parcel(claims[0]), SENDER)
    parcel = Parcel(claims[1])

    with pytest.raises(MailboxOverflow, match="session:a: more than 1"):
        box.post(parcel, SENDER)
    assert custodian(ledger, parcel.claim) == SENDER


def test_without_mail_there_is_no_queue(ledger: Ledger, port: BatchPort) -> None:
    """A session at rest has none; a post that was refused has left none behind either."""
    box, claim = mailbox(ledger), reserve(port)
    with pytest.raises(StaleHandle):
        box.post(Parcel(claim), OWNER)
    after_refusal = box.waiting
    box.post(Parcel(claim), SENDER)
    under_way = len(box)
    box.take()

    assert (after_refusal, under_way, box.waiting) == (None, 1, None)
    assert (len(box), list(box)) == (0, [])
    with pytest.raises(IndexError, match="session:a: there is no mail"):
        box.take()


def test_close_returns_what_was_not_delivered_in_the_custody_of_the_mailbox(
    ledger: Ledger, port: BatchPort
) -> None:
    """Supervision reclaims it from there, by type and counted."""
    box, parcels = mailbox(ledger), [Parcel(reserve(port)), Parcel(reserve(port))]
    for parcel in parcels:
        box.post(parcel, SENDER)

    left = box.close()
    assert left == parcels
    assert box.close() == []
    assert {custodian(ledger, parcel.claim) for parcel in left} == {box.custodian}
    assert ledger.reclaim(box.custodian).batch == 2


def test_take_of_no_mail_raises(ledger: Ledger) -> None:
    """Taking never waits: the dispatcher asks first."""
    with pytest.raises(IndexError):
        mailbox(ledger).take()


def test_mail_comes_in_order_of_posting(ledger: Ledger, port: BatchPort) -> None:
    """A session decides by the order of its mail; looking at it changes nothing."""
    box, claims = mailbox(ledger), [reserve(port) for _ in range(3)]
    for claim in claims:
        box.post(Parcel(claim), SENDER)

    assert [parcel.claim for parcel in box] == claims
    assert [box.take().claim for _ in range(3)] == claims


def test_the_run_queue_is_rung_once_for_waiting_mail(ledger: Ledger, port: BatchPort) -> None:
    """A mailbox stands on the run queue at most once, however much mail it has."""
    rung: list[str] = []
    box = mailbox(ledger, rung=rung)
    box.post(Parcel(reserve(port)), SENDER)
    box.post(Parcel(reserve(port)), SENDER)
    first = list(rung)
    box.queued = False
    box.post(Parcel(reserve(port)), SENDER)

    assert first == [OWNER]
    assert rung == [OWNER, OWNER]


def test_a_message_of_values_moves_no_custody(ledger: Ledger) -> None:
    """What carries nothing costs the ledger nothing."""
    box: Mailbox[Note] = Mailbox(OWNER, ledger, bound=1, ready=lambda box: None)
    before = ledger.view.counters.transitions
    box.post(Note("hello"), SENDER)

    assert box.take() == Note("hello")
    assert ledger.view.counters.transitions == before


def test_no_actor_and_no_mailbox_can_wait() -> None:
    """Cancellation strikes at an await alone, so where there is none it can't strike a handle."""
    waits = ast.Await | ast.AsyncFunctionDef | ast.AsyncWith | ast.AsyncFor
    package = Path(inspect.getfile(kernel)).parent
    found = {
        path.relative_to(package).with_suffix("").as_posix()
        for path in package.rglob("*.py")
        if "testing" not in path.relative_to(package).parts
        and any(isinstance(node, waits) for node in ast.walk(ast.parse(path.read_text())))
    }

    assert found <= EDGE, found - EDGE
    assert "engine/shell" in found
