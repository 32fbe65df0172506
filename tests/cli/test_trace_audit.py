"""The replay of hand-made logs: a sound one passes, and each way of being unsound is named."""

from adapters.trace_audit import EngineAudit
from tests.cli.log_writer import LogWriter, two_turns


def kinds(audit: EngineAudit) -> list[str]:
    return [problem.kind for problem in audit.problems]


def test_a_session_of_two_turns_is_conserved() -> None:
    """The usual life: the second turn copies slot and tail, shares the full page, replaces."""
    log = LogWriter()
    two_turns(log)
    log.close(1, 2, [13, 12, 10], runs=[101, 100])
    log.write("ledger.audited", free_slots=4, free_pages=8)
    log.write("engine.closed")

    audit = log.audit()

    assert audit.problems == ()
    assert audit.conserved
    assert (audit.free_slots, audit.free_pages, audit.still_owned) == (4, 8, 0)
    assert audit.counts["claim.committed"] == 2


def test_what_is_owned_when_the_engine_closes_has_leaked() -> None:
    """Nobody is left who could give it back: a slot and a page of its own."""
    log = LogWriter()
    two_turns(log)
    log.write("engine.closed")

    audit = log.audit()

    assert not audit.conserved
    assert audit.leaked == 2
    assert kinds(audit) == ["leak"]


def test_a_slot_that_comes_back_twice_is_one_double_free() -> None:
    """The seed's bug as its pool saw it: the rollback frees what the close frees again."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.step(0, 0, 3)
    log.commit(0, 1, 3)
    log.release("rolled_back", 0, 1)
    log.close(0, 1, [10])

    audit = log.audit()

    assert audit.double_frees == 1
    assert "slot 1" in str(audit.problems[1])
    assert not audit.conserved


def test_an_ended_claim_can_give_nothing_back_again() -> None:
    """The second rollback of a claim hands out places that somebody else may own by then."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.release("rolled_back", 0, 1, [10])
    log.release("rolled_back", 0, 1, [10])

    audit = log.audit()

    assert audit.double_frees == 2
    assert kinds(audit) == ["order", "double free", "double free"]


def test_a_slot_reserved_twice_is_an_alias_and_the_first_return_a_double_free() -> None:
    """A free list that holds a slot twice shows in no release, only in the next reserve."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.reserve(1, 1, [11])
    log.release("rolled_back", 0, 1, [10])
    log.release("rolled_back", 1, 1, [11])

    audit = log.audit()

    assert kinds(audit) == ["alias", "double free"]
    assert audit.problems[0].seq == 2
    assert audit.free_slots == 4


def test_a_release_that_keeps_its_slot_is_a_leak_at_once() -> None:
    """Sglang #21404: the claim ends and its slot does not come back."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.write(
        "claim.rolled_back",
        claim=0,
        owner="batch",
        returned_slot=None,
        returned_pages=[],
        dropped_runs=[],
        unpinned=None,
    )

    audit = log.audit()

    assert audit.leaked == 2
    assert kinds(audit) == ["leak", "leak"]


def test_frozen_pages_given_back_while_named_are_a_double_free() -> None:
    """The page is shared with the session's state: the rollback of a copy may not return it."""
    log = LogWriter()
    log.reserve(0, 1, [10, 11])
    log.step(0, 0, 6, frozen=[10], run=100)
    log.commit(0, 1, 6)
    log.reserve(1, 2, [12], base=0, run=100, position=6)
    log.release("rolled_back", 1, 2, [12, 10], runs=[100], unpinned=0)

    audit = log.audit()

    assert kinds(audit) == ["run count", "double free"]
    assert "page 10" in audit.problems[1].text


def test_a_run_that_nobody_names_has_to_be_dropped() -> None:
    """A count that never reaches zero is a leak that no single owner shows."""
    log = LogWriter()
    log.reserve(0, 1, [10, 11])
    log.step(0, 0, 6, frozen=[10], run=100)
    log.commit(0, 1, 6)
    log.close(0, 1, [11])

    audit = log.audit()

    assert kinds(audit) == ["run count", "leak"]
    assert audit.leaked == 1


def test_a_base_closed_under_a_copy_drains_and_comes_back_at_the_landing() -> None:
    """Close never waits: the state has no owner, stays readable, and is free at the last unpin."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.step(0, 0, 3)
    log.commit(0, 1, 3)
    log.reserve(1, 2, [11], base=0, position=3)
    log.launch(1, 1)
    log.write("claim.drained", claim=0, slot=1, generation=2, owner="session", pins=1)
    log.land(1, 1, 4, frozen=[11], run=100, unpinned=[0])
    log.write("claim.drain_ended", claim=0, returned_slot=1, returned_pages=[10], dropped_runs=[])
    log.release("rolled_back", 1, 2, [11], runs=[100])
    log.write("engine.closed")

    audit = log.audit()

    assert audit.problems == ()
    assert (audit.free_slots, audit.free_pages) == (4, 8)


def test_a_drained_base_that_never_comes_back_is_a_leak() -> None:
    """No owner is left to miss it, so only a replay does."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.step(0, 0, 3)
    log.commit(0, 1, 3)
    log.reserve(1, 2, [11], base=0, position=3)
    log.write("claim.drained", claim=0, slot=1, generation=2, owner="session", pins=1)
    log.release("rolled_back", 1, 2, [11], unpinned=0)

    audit = log.audit()

    assert kinds(audit) == ["leak"]
    assert audit.leaked == 2


def test_a_pinned_base_may_not_be_closed_outright() -> None:
    """A copy out of it is under way: its slot would be written by the next owner meanwhile."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.step(0, 0, 3)
    log.commit(0, 1, 3)
    log.reserve(1, 2, [11], base=0, position=3)
    log.close(0, 1, [10])

    assert kinds(log.audit()) == ["double free"]


def test_nothing_comes_back_while_its_step_is_in_flight() -> None:
    """The device still writes into it."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.launch(0, 0)
    log.release("rolled_back", 0, 1, [10])

    assert kinds(log.audit()) == ["double free"]


def test_quarantine_is_counted_apart_and_is_no_leak() -> None:
    """A device that never answered keeps what it may still write into, and everybody knows."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.launch(0, 0)
    log.write("lease.quarantined", lease=0, step=0, claims=[0])
    log.write("engine.closed")

    audit = log.audit()

    assert audit.conserved
    assert (audit.quarantined, audit.still_owned, audit.leaked) == (1, 0, 0)


def test_a_quarantined_lease_lands_only_as_failed() -> None:
    """Its turns were told that they failed; a late success would give their claims a second end."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.launch(0, 0)
    log.write("lease.quarantined", lease=0, step=0, claims=[0])
    log.land(0, 0, 2)

    assert kinds(log.audit()) == ["order"]


def test_a_failed_claim_can_only_be_rolled_back() -> None:
    """Nobody knows what its slot holds; a commit would make that a session's state."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.step(0, 0, 3)
    log.fail(1, 0, 3)
    log.commit(0, 1, 3)

    assert kinds(log.audit()) == ["order"]


def test_a_reclaim_is_counted_and_conserved() -> None:
    """Reclaim hides leaks, so the number is part of the verdict and no error by itself."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.release("reclaimed", 0, 1, [10])
    log.write("engine.closed")

    audit = log.audit()

    assert audit.conserved
    assert audit.reclaimed == 1


def test_figures_of_the_ledger_that_differ_from_the_log_are_a_leak() -> None:
    """The ledger's own audit says less free than the log gave back."""
    log = LogWriter()
    log.write("ledger.audited", free_slots=3, free_pages=8)

    audit = log.audit()

    assert kinds(audit) == ["leak"]
    assert audit.leaked == 1


def test_a_commit_keeps_no_page_beyond_its_position() -> None:
    """Pages that were reserved for tokens that never came go back in the commit."""
    log = LogWriter()
    log.reserve(0, 1, [10, 11, 12])
    log.step(0, 0, 3)
    log.commit(0, 1, 3)

    audit = log.audit()

    assert kinds(audit) == ["leak"]
    assert audit.leaked == 2


def test_a_model_without_slots_is_audited_by_its_pages() -> None:
    """Attention-only models reserve no slot; ``None`` isn't slot zero."""
    log = LogWriter(slots=0)
    log.reserve(0, None, [10])
    log.step(0, 0, 3)
    log.commit(0, None, 3)
    log.close(0, None, [10])
    log.write("engine.closed")

    assert log.audit().problems == ()
