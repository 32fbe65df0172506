"""Counts that the ledger keeps so that nobody looks at every session: audited like the rest."""

from ownership import Ledger, Place
from ownership.book import Book
from tests.ownership.support import Desk


def book_of(ledger: Ledger) -> Book:
    book = ledger._book  # pyright: ignore[reportPrivateUsage]  # what is looked at here is inside
    assert isinstance(book, Book)
    return book


def test_states_at_rest_are_counted_in_each_place(roomy: Desk) -> None:
    """A commit, a move, a replacement and a close; a wrong count is told."""
    view, pools = roomy.ledger.view, book_of(roomy.ledger).pools

    def counted() -> tuple[int, int]:
        assert view.audit().conserved
        return pools[Place.DEVICE].at_rest, pools[Place.HOST].at_rest

    state, other = roomy.committed(6), roomy.committed(3)
    assert counted() == (2, 0)
    parked = roomy.parked(state)
    assert counted() == (1, 1)
    newest = roomy.committed(1, view.name_of(parked), replaces=parked)
    assert counted() == (2, 0)
    roomy.session.close(other)
    assert counted() == (1, 0)
    pools[Place.DEVICE].at_rest = 2
    assert view.audit().problems == ("2 states at rest in device, not 1",)
    pools[Place.DEVICE].at_rest = 1
    roomy.session.close(newest)
    assert counted() == (0, 0)


def test_copies_into_another_place_are_listed_until_they_have_landed(roomy: Desk) -> None:
    """A planned end of a state looks at these alone, however many claims there are."""
    book = book_of(roomy.ledger)
    state = roomy.committed(6)
    name = roomy.name()
    turn = roomy.reserve(7, name)
    assert not book.moving, "it is in the same place"
    copies = [roomy.reserve(0, name, place=place) for place in (Place.HOST, Place.FILE)]
    assert len(book.moving) == 2
    assert roomy.ledger.view.audit().conserved
    (gone,) = (number for number, record in book.moving.items() if record.pool.num_slots)
    record = book.moving.pop(gone)
    assert roomy.ledger.view.audit().problems
    book.moving[gone] = record
    for claim in (turn, *copies):
        roomy.batch.rollback(claim)
    assert not book.moving
    roomy.session.close(state)
    assert roomy.is_empty()
