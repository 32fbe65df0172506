"""Events: each change of owner, with all that an audit of the log alone needs."""

from typing import cast

from ownership import Absorbed, BaseName, Need, StepFailed
from tests.ownership.support import OTHER, SCHEDULER, Desk, Recorder, open_desk


def test_a_ledger_opens_its_log_with_its_capacity(recorder: Recorder) -> None:
    """An audit starts from everything free."""
    open_desk(observer=recorder)

    assert recorder.events == [
        (
            "ledger.opened",
            {
                "slots": 4,
                "pages": 16,
                "page_size": 4,
                "host_slots": 0,
                "host_pages": 0,
                "seq": 0,
            },
        )
    ]


def test_reserve_tells_what_was_taken_shared_and_pinned(watched: Desk, recorder: Recorder) -> None:
    """From nothing, and from a base."""
    watched.committed(6)
    recorder.events.clear()
    first = watched.reserve(5, turn="turn-1")
    second = watched.reserve(9, watched.name(), turn="turn-2")

    assert recorder.events == [
        (
            "claim.reserved",
            {
                "claim": 1,
                "place": "device",
                "slot": 1,
                "generation": 1,
                "first_page": 0,
                "pages": [2, 3],
                "run": None,
                "base": None,
                "base_name": None,
                "position": 0,
                "owner": "batch",
                "to": "scheduler",
                "turn": "turn-1",
                "seq": 5,
            },
        ),
        (
            "claim.reserved",
            {
                "claim": 2,
                "place": "device",
                "slot": 2,
                "generation": 1,
                "first_page": 0,
                "pages": [4, 5],
                "run": 0,
                "base": 0,
                "base_name": "session:a@1",
                "position": 6,
                "owner": "batch",
                "to": "scheduler",
                "turn": "turn-2",
                "seq": 6,
            },
        ),
    ]
    watched.batch.rollback(first)
    watched.batch.rollback(second)


def test_grow_tells_the_new_pages(watched: Desk, recorder: Recorder) -> None:
    """And nothing when there are none."""
    claim = watched.reserve(3, turn="turn-1")
    recorder.events.clear()
    watched.batch.grow(claim, Need(4))
    watched.batch.grow(claim, Need(9))

    assert recorder.only("claim.grown") == {
        "claim": 0,
        "slot": 0,
        "generation": 1,
        "pages": [1, 2],
        "owner": "batch",
        "to": "scheduler",
        "turn": "turn-1",
        "seq": 2,
    }
    assert len(recorder.events) == 1


def test_launch_and_landing_are_one_event_each(watched: Desk, recorder: Recorder) -> None:
    """With the lease's claims, what each row filled, and the bases that were unpinned."""
    watched.committed(6)
    claims = [watched.reserve(14, watched.name()), watched.reserve(3)]
    recorder.events.clear()
    lease = watched.batch.launch(claims, step=7)
    watched.batch.land(lease, Absorbed((7, 2)))

    assert recorder.events == [
        (
            "lease.launched",
            {
                "lease": 1,
                "step": 7,
                "claims": [1, 2],
                "slots": [1, 2],
                "from": "scheduler",
                "seq": 7,
            },
        ),
        (
            "lease.landed",
            {
                "lease": 1,
                "step": 7,
                "outcome": "ok",
                "rows": [
                    {"claim": 1, "position": 13, "frozen": [2, 3], "run": 1, "parent": 0},
                    {"claim": 2, "position": 2, "frozen": [], "run": None, "parent": None},
                ],
                "unpinned": [0],
                "to": "scheduler",
                "seq": 8,
            },
        ),
    ]


def test_a_first_run_has_no_parent(watched: Desk, recorder: Recorder) -> None:
    """The chain begins there."""
    claim = watched.working(4)

    (row,) = [fields["rows"] for name, fields in recorder.events if name == "lease.landed"]
    assert row == [{"claim": 0, "position": 4, "frozen": [0], "run": 0, "parent": None}]
    watched.batch.rollback(claim)


def test_a_failed_landing_says_so(watched: Desk, recorder: Recorder) -> None:
    """Positions stay, and the drained base is free after it."""
    state = watched.committed(6)
    claim = watched.reserve(9, watched.name())
    lease = watched.batch.launch([claim], step=7)
    watched.ledger.quarantine(lease)
    watched.session.close(state)
    recorder.events.clear()
    watched.batch.land(lease, StepFailed("it broke"))

    assert recorder.names == ["lease.landed", "claim.drain_ended"]
    landed = recorder.only("lease.landed")
    assert landed["outcome"] == "failed"
    assert landed["rows"] == [
        {"claim": 1, "position": 6, "frozen": [], "run": None, "parent": None}
    ]
    assert recorder.only("claim.drain_ended") == {
        "claim": 0,
        "returned_slot": 0,
        "returned_pages": [1],
        "dropped_runs": [],
        "seq": 10,
    }
    watched.batch.rollback(claim)


def test_quarantine_is_told_once(watched: Desk, recorder: Recorder) -> None:
    """Its claims are out of reach from there on."""
    lease = watched.batch.launch([watched.reserve(3)], step=7)
    watched.ledger.quarantine(lease)
    watched.ledger.quarantine(lease)

    assert recorder.only("lease.quarantined") == {"lease": 0, "step": 7, "claims": [0], "seq": 3}
    watched.batch.land(lease, StepFailed("it broke"))


def test_the_audit_is_told_with_its_columns(watched: Desk, recorder: Recorder) -> None:
    """A log says at which points the ledger itself found all in order."""
    claim = watched.reserve(5)
    watched.ledger.audit()

    assert recorder.only("ledger.audited") == {
        "free_slots": 3,
        "free_pages": 14,
        "batch": 1,
        "session": 0,
        "cache": 0,
        "draining": 0,
        "quarantined_slots": 0,
        "quarantined_pages": 0,
        "host_free_slots": 0,
        "host_free_pages": 0,
        "host_quarantined_slots": 0,
        "host_quarantined_pages": 0,
        "conserved": True,
        "seq": 2,
    }
    watched.batch.rollback(claim)


def test_a_claim_without_a_slot_is_told_with_none(recorder: Recorder) -> None:
    """JSON's null."""
    desk = open_desk(slots=0, observer=recorder)
    lease = desk.batch.launch([desk.reserve(3)], step=1)
    (claim,) = desk.batch.land(lease, Absorbed((3,)))
    desk.batch.rollback(claim)

    assert recorder.only("claim.reserved")["slot"] is None
    assert recorder.only("lease.launched")["slots"] == [None]
    assert recorder.only("claim.rolled_back")["returned_slot"] is None


def test_a_base_of_another_holder_is_told_by_its_name(watched: Desk, recorder: Recorder) -> None:
    """A fork's child names its parent's state."""
    port = watched.ledger.session_port(OTHER)
    state = port.commit(watched.hand(watched.working(2), OTHER), replaces=None)
    recorder.events.clear()
    claim = watched.reserve(3, BaseName(OTHER, 1))

    assert recorder.only("claim.reserved")["base_name"] == "session:b@1"
    watched.batch.rollback(claim)
    port.close(state)


def test_a_refused_verb_tells_nothing(watched: Desk, recorder: Recorder) -> None:
    """No change of owner, no event, and no gap in the numbers."""
    recorder.events.clear()
    watched.batch.reserve(Need(1000), watched.name(5), turn="t")
    watched.batch.rollback(watched.reserve(3))

    assert [fields["seq"] for _, fields in recorder.events] == [1, 2]
    assert {str(fields.get("to", SCHEDULER)) for _, fields in recorder.events} == {"scheduler"}


def test_a_copy_from_another_place_tells_of_all_its_runs(recorder: Recorder) -> None:
    """A history of two runs is frozen as two; the log names both, the older one apart."""
    desk = open_desk(host=(2, 8), observer=recorder)
    desk.committed(5)
    longer = desk.committed(4, desk.name())
    recorder.events.clear()
    copy = desk.copied(desk.ledger.view.name_of(longer))

    (row,) = cast("list[dict[str, object]]", recorder.only("lease.landed")["rows"])
    (earlier,) = cast("list[dict[str, object]]", row["earlier"])
    assert [earlier["run"], earlier["parent"]] == [row["parent"], None]
    assert [earlier["frozen"], row["frozen"]] == [[page] for page in desk.pages(copy)[:2]]
