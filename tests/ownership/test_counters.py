"""What the ledger counts of itself: dashboards and the demo show it, so it must be right."""

from ownership import Absorbed, Need, StepFailed
from tests.ownership.support import SCHEDULER, SESSION, Desk


def test_each_verb_move_and_quarantine_is_one_transition(desk: Desk) -> None:
    """A commit that replaces a state is two: one begins, one ends."""
    view = desk.ledger.view
    counted: list[int] = []

    def note() -> None:
        counted.append(view.counters.transitions - sum(counted))

    claim = desk.reserve(3)
    note()
    desk.batch.grow(claim, Need(9))
    note()
    desk.batch.grow(claim, Need(9))
    note()
    lease = desk.batch.launch([claim], step=1)
    note()
    desk.batch.land(lease, Absorbed((3,)))
    note()
    desk.ledger.move(claim, SCHEDULER, SESSION, "test")
    note()
    state = desk.session.commit(claim, replaces=None)
    note()
    working = desk.working(1, desk.name())
    note()
    desk.hand(working)
    note()
    state = desk.session.commit(working, replaces=state)
    note()
    desk.session.close(state)
    note()
    lease = desk.batch.launch([desk.reserve(1)], step=2)
    note()
    desk.ledger.quarantine(lease)
    note()
    desk.ledger.quarantine(lease)
    note()
    (lost,) = desk.batch.land(lease, StepFailed("it hung"))
    note()
    desk.batch.rollback(lost)
    note()

    assert counted == [1, 1, 0, 1, 1, 1, 1, 3, 1, 2, 1, 2, 1, 0, 1, 1]


def test_endings_are_counted_by_kind(desk: Desk) -> None:
    """Rollbacks, commits, closes and what was reclaimed are told apart."""

    def counts() -> tuple[int, int, int, int]:
        seen = desk.ledger.view.counters
        return seen.rollbacks, seen.commits, seen.closes, seen.reclaimed

    seen = [counts()]
    desk.batch.rollback(desk.reserve(1))
    seen.append(counts())
    state = desk.session.commit(desk.hand(desk.working(2)), replaces=None)
    seen.append(counts())
    desk.session.close(state)
    seen.append(counts())
    desk.committed(2)
    desk.ledger.reclaim(SESSION)
    seen.append(counts())

    assert seen == [(0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0), (1, 2, 1, 1)]
