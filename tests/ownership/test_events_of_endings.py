"""Events of endings: all that is free again, and what was unpinned."""

from tests.ownership.support import CACHE, SESSION, Desk, Recorder


def test_rollback_tells_all_that_is_free_again(watched: Desk, recorder: Recorder) -> None:
    """Slot, own pages, the pages of runs that ended with it, and the base that it unpinned."""
    first = watched.working(9, covers=12)
    state = watched.committed(2)
    second = watched.reserve(3, watched.name(), turn="turn-2")
    recorder.events.clear()
    watched.batch.rollback(first)
    watched.batch.rollback(second)

    assert recorder.events == [
        (
            "claim.rolled_back",
            {
                "claim": 0,
                "slot": 0,
                "generation": 1,
                "owner": "batch",
                "from": "scheduler",
                "turn": "turn",
                "position": 9,
                "returned_slot": 0,
                "returned_pages": [2, 0, 1],
                "dropped_runs": [0],
                "unpinned": None,
                "seq": 9,
            },
        ),
        (
            "claim.rolled_back",
            {
                "claim": 2,
                "slot": 2,
                "generation": 1,
                "owner": "batch",
                "from": "scheduler",
                "turn": "turn-2",
                "position": 2,
                "returned_slot": 2,
                "returned_pages": [4],
                "dropped_runs": [],
                "unpinned": 1,
                "seq": 10,
            },
        ),
    ]
    watched.session.close(state)


def test_commit_is_followed_by_the_end_of_what_it_replaced(
    watched: Desk, recorder: Recorder
) -> None:
    """Two events of one verb, in this order."""
    first = watched.committed(6)
    working = watched.hand(watched.working(3, watched.name(), covers=14))
    recorder.events.clear()
    second = watched.session.commit(working, replaces=first)

    assert recorder.events == [
        (
            "claim.committed",
            {
                "claim": 1,
                "slot": 1,
                "generation": 2,
                "owner": "session",
                "from": "session:a",
                "to": "session:a",
                "version": 2,
                "position": 9,
                "returned_pages": [4],
                "replaces": 0,
                "turn": "turn",
                "seq": 8,
            },
        ),
        (
            "claim.closed",
            {
                "claim": 0,
                "slot": 0,
                "generation": 2,
                "owner": "session",
                "from": "session:a",
                "turn": "turn",
                "position": 6,
                "returned_slot": 0,
                "returned_pages": [1],
                "dropped_runs": [],
                "unpinned": None,
                "seq": 9,
            },
        ),
    ]
    watched.session.close(second)


def test_a_replaced_base_that_is_pinned_is_told_as_drained(
    watched: Desk, recorder: Recorder
) -> None:
    """It is not free yet."""
    first = watched.committed(6)
    working = watched.hand(watched.working(3, watched.name()))
    fork = watched.reserve(9, watched.name())
    recorder.events.clear()
    second = watched.session.commit(working, replaces=first)
    watched.batch.rollback(fork)

    assert recorder.names == [
        "claim.committed",
        "claim.drained",
        "claim.rolled_back",
        "claim.drain_ended",
    ]
    assert recorder.only("claim.drained") == {
        "claim": 0,
        "slot": 0,
        "generation": 2,
        "owner": "session",
        "pins": 1,
        "seq": 10,
    }
    assert recorder.only("claim.rolled_back")["unpinned"] == 0
    watched.session.close(second)


def test_the_caches_events_are_like_the_sessions(watched: Desk, recorder: Recorder) -> None:
    """Admitted, then evicted."""
    working = watched.hand(watched.working(5), CACHE)
    recorder.events.clear()
    watched.cache.evict(watched.cache.admit(working))

    assert recorder.names == ["claim.admitted", "claim.evicted"]
    assert recorder.only("claim.admitted") == {
        "claim": 0,
        "slot": 0,
        "generation": 2,
        "owner": "cache",
        "from": "cache",
        "to": "cache",
        "version": 1,
        "position": 5,
        "returned_pages": [],
        "replaces": None,
        "turn": "turn",
        "seq": 4,
    }
    evicted = recorder.only("claim.evicted")
    assert (evicted["owner"], evicted["from"], evicted["dropped_runs"]) == ("cache", CACHE, [0])
    assert evicted["returned_pages"] == [1, 0]


def test_reclaim_tells_each_claim_by_its_owner(watched: Desk, recorder: Recorder) -> None:
    """Working claims first: their pins go before the base that they pin."""
    watched.committed(2)
    claim = watched.hand(watched.reserve(4, watched.name()))
    assert watched.ledger.view.describe(claim).claim == 1
    recorder.events.clear()
    watched.ledger.reclaim(SESSION)

    assert recorder.names == ["claim.reclaimed", "claim.reclaimed"]
    one, two = (fields for _, fields in recorder.events)
    assert (one["claim"], one["owner"], one["from"], one["unpinned"]) == (1, "batch", SESSION, 0)
    assert (two["claim"], two["owner"], two["returned_slot"]) == (0, "session", 0)
