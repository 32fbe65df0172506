"""How claims end: once, whole, and at the last unpin at the latest."""

import pytest

from ownership import (
    BaseChanged,
    BaseName,
    BatchOwned,
    CacheOwned,
    Consume,
    Content,
    Kind,
    LedgerError,
    Need,
    Refused,
    SessionOwned,
    StaleHandle,
    StepFailed,
)
from tests.ownership.support import (
    CACHE,
    OTHER,
    SESSION,
    Desk,
    snapshot,
)


def test_rollback_gives_back_the_slot_and_the_pages_once(desk: Desk) -> None:
    """The same verb before the first step and after many."""
    early, late = desk.reserve(9), desk.working(9)

    desk.batch.rollback(early)
    desk.batch.rollback(late)

    assert desk.is_empty()
    for claim in (early, late):
        with pytest.raises(StaleHandle):
            desk.batch.rollback(claim)
    assert desk.is_empty()
    assert desk.ledger.view.counters.rollbacks == 2


@pytest.mark.parametrize("port", ["batch", "session", "cache"])
def test_whoever_can_receive_a_claim_can_give_it_back(desk: Desk, port: str) -> None:
    """Its type makes that safe: there is nothing else that it could free."""
    claim = desk.reserve(9)
    if port == "batch":
        desk.batch.rollback(claim)
    elif port == "session":
        desk.session.rollback(desk.hand(claim, SESSION))
    else:
        desk.cache.rollback(desk.hand(claim, CACHE))

    assert desk.is_empty()


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_rollback_of_a_later_turn_leaves_its_session_as_it_was(desk: Desk, steps: int) -> None:
    """The seed's bug can't be written: a turn starts from a copy."""
    state = desk.committed(6)
    before = desk.ledger.view.describe(state)
    claim = desk.reserve(20, desk.name())
    for _ in range(steps):
        desk.step([claim], 3)

    desk.batch.rollback(claim)

    assert desk.ledger.view.describe(state) == before
    desk.check()
    desk.session.close(state)
    assert desk.is_empty()


def test_commit_gives_the_claim_to_the_session(desk: Desk) -> None:
    """The claim's number, slot and position stay; owner and generation are new."""
    working = desk.hand(desk.working(6, covers=16))
    claim = desk.ledger.view.describe(working)
    assert desk.session.version == 0

    state = desk.session.commit(working, replaces=None)

    seen = desk.ledger.view.describe(state)
    assert (seen.claim, seen.slot, seen.position) == (claim.claim, claim.slot, 6)
    assert (seen.kind, seen.generation, seen.custodian) == (Kind.SESSION, 2, SESSION)
    assert (seen.name, desk.session.version) == (BaseName(SESSION, 1), 1)
    assert desk.ledger.view.resting() == (BaseName(SESSION, 1),)
    desk.check()


def test_commit_gives_back_the_pages_beyond_the_position(desk: Desk) -> None:
    """A prompt's pages are reserved before it is known where the turn ends."""
    working = desk.hand(desk.working(6, covers=30))
    assert desk.ledger.view.free_pages == 8

    state = desk.session.commit(working, replaces=None)

    assert desk.ledger.view.free_pages == 14
    assert desk.ledger.view.covered(state) == 8
    desk.check()
    desk.session.close(state)
    assert desk.is_empty()


def test_commit_ends_the_state_that_it_replaces(desk: Desk) -> None:
    """In the same verb: between two verbs the session would hold both, or neither."""
    first = desk.committed(6)
    second = desk.committed(4, desk.name(), replaces=first)

    with pytest.raises(StaleHandle, match="was given back by commit in the custody of session:a"):
        desk.session.close(first)
    assert desk.ledger.view.find_base(desk.name(1)) is None
    assert desk.ledger.view.position(second) == 10
    assert desk.ledger.view.audit().session == 1
    assert desk.ledger.view.counters.closes == 1
    desk.check()
    desk.session.close(second)
    assert desk.is_empty()


def test_commit_that_replaces_nothing_keeps_a_checkpoint(desk: Desk) -> None:
    """Both states rest, and share the pages of their common history."""
    first = desk.committed(8)
    second = desk.committed(8, desk.name())

    assert desk.ledger.view.resting() == (desk.name(1), desk.name(2))
    assert desk.ledger.view.free_pages == 12
    desk.session.close(second)
    assert desk.ledger.view.free_pages == 14
    desk.session.close(first)
    assert desk.is_empty()


def test_commit_on_another_base_is_told_and_changes_nothing(desk: Desk) -> None:
    """Compare and swap: a commit that comes too late is rolled back by its caller."""
    first = desk.committed(3)
    late = desk.hand(desk.working(2, desk.name()))
    second = desk.committed(4, desk.name(), replaces=first)
    before = snapshot(desk.ledger)
    violations = desk.ledger.view.counters.violations

    with pytest.raises(BaseChanged, match=r"slot 1 .* did not start from slot 2 .*version=2"):
        desk.session.commit(late, replaces=second)
    assert snapshot(desk.ledger) == before
    assert desk.ledger.view.counters.violations == violations
    with pytest.raises(StaleHandle):
        desk.session.commit(late, replaces=first)
    assert snapshot(desk.ledger) == before
    desk.session.rollback(late)
    desk.session.close(second)
    assert desk.is_empty()


def test_commit_from_nothing_replaces_nothing(desk: Desk) -> None:
    """A claim that was computed again did not start from the old state."""
    state = desk.committed(3)
    again = desk.hand(desk.working(3))

    with pytest.raises(BaseChanged):
        desk.session.commit(again, replaces=state)
    desk.session.commit(again, replaces=None)
    desk.session.close(state)


@pytest.mark.parametrize("verb", ["commit", "admit"])
@pytest.mark.parametrize("content", list(Content))
def test_only_a_landed_claim_is_kept(desk: Desk, verb: str, content: Content) -> None:
    """Nobody may start from what no step has written, or what one has spoiled."""
    desk.committed(3)
    claim = desk.reserve(9, desk.name()) if content is Content.COPY else desk.reserve(9)
    if content is Content.VALID:
        desk.step([claim], 0)
    elif content is Content.UNDEFINED:
        desk.fail(claim)
    desk.hand(claim, SESSION if verb == "commit" else CACHE)
    before = snapshot(desk.ledger)

    with pytest.raises(LedgerError) as refused:
        _keep(desk, verb, claim)
    expected = "has absorbed nothing" if content is Content.VALID else f"is {content.value}, not"
    assert expected in str(refused.value)
    assert snapshot(desk.ledger) == before


def _keep(desk: Desk, verb: str, claim: Consume[BatchOwned]) -> SessionOwned | CacheOwned:
    if verb == "commit":
        return desk.session.commit(claim, replaces=None)
    return desk.cache.admit(claim)


def test_admit_and_evict_are_the_caches_commit_and_close(desk: Desk) -> None:
    """No cache calls them yet; the ledger is ready."""
    working = desk.hand(desk.working(6, covers=16), CACHE)
    cached = desk.cache.admit(working)

    seen = desk.ledger.view.describe(cached)
    assert (seen.kind, seen.generation, seen.name) == (Kind.CACHE, 2, BaseName(CACHE, 1))
    assert desk.ledger.view.resting() == ()
    assert desk.ledger.view.find_base(BaseName(CACHE, 1)) is not None
    assert desk.ledger.view.free_pages == 14
    desk.check()
    with pytest.raises(StaleHandle):
        desk.cache.rollback(working)
    desk.cache.evict(cached)
    assert desk.is_empty()
    with pytest.raises(StaleHandle):
        desk.cache.evict(cached)


def test_shared_runs_are_free_when_nobody_names_them(desk: Desk) -> None:
    """Three states of one history, ended in every order that matters."""
    first = desk.committed(8)
    second = desk.committed(8, desk.name(1))
    third = desk.committed(4, desk.name(2))
    assert desk.ledger.view.free_pages == 11

    desk.session.close(second)
    assert desk.ledger.view.free_pages == 11
    desk.session.close(third)
    assert desk.ledger.view.free_pages == 14
    desk.session.close(first)
    assert desk.is_empty()


def test_versions_count_the_commits_of_one_holder(desk: Desk) -> None:
    """Names of different holders never meet, and a name is never given twice."""
    other = desk.ledger.session_port(OTHER)
    desk.session.close(desk.committed(3))
    theirs = other.commit(desk.hand(desk.working(2), OTHER), replaces=None)
    mine = desk.committed(3)

    assert (desk.session.version, other.version) == (2, 1)
    assert desk.ledger.session_port(SESSION).version == 2
    assert desk.ledger.view.resting() == (BaseName(OTHER, 1), BaseName(SESSION, 2))
    other.close(theirs)
    desk.session.close(mine)


def test_no_name_is_ever_given_twice(desk: Desk) -> None:
    """Who still names a state of a closed session never finds one of its namesake's."""
    port = desk.ledger.session_port(OTHER)
    state = port.commit(desk.hand(desk.working(2), OTHER), replaces=None)
    del port
    assert desk.ledger.session_port(OTHER).version == 1

    desk.ledger.session_port(OTHER).close(state)
    namesake = desk.ledger.session_port(OTHER)
    again = namesake.commit(desk.hand(desk.working(2), OTHER), replaces=None)

    assert desk.batch.reserve(Need(4), BaseName(OTHER, 1), turn="t") == Refused("base", 0, 0)
    assert namesake.version == 2
    namesake.close(again)


def test_no_name_of_the_caches_is_given_twice_either(desk: Desk) -> None:
    """Admissions give names as commits do."""
    port = desk.ledger.cache_port(OTHER)
    state = port.admit(desk.hand(desk.working(2), OTHER))
    port.evict(state)
    del port, state
    namesake = desk.ledger.cache_port(OTHER)
    again = namesake.admit(desk.hand(desk.working(2), OTHER))

    assert desk.ledger.view.describe(again).name == BaseName(OTHER, 2)
    namesake.evict(again)


def test_a_slot_given_back_is_used_next(desk: Desk) -> None:
    """It is warm in the cache, and a stale user shows soonest."""
    first, second = desk.reserve(3), desk.reserve(3)
    desk.batch.rollback(first)

    assert desk.ledger.view.slot_of(desk.reserve(3)) == 0
    desk.batch.land(desk.batch.launch([second], step=1), StepFailed("it broke"))
