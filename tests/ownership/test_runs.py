"""Runs: a chain is alive as long as anybody names it, and each page goes back once."""

from ownership import PageIndex
from ownership.runs import RunTable


def pages(*numbers: int) -> tuple[PageIndex, ...]:
    return tuple(map(PageIndex, numbers))


def test_a_dropped_chain_gives_back_all_its_pages_once() -> None:
    """The whole history of a claim that nobody shares."""
    table = RunTable()
    tip = table.freeze(table.freeze(None, pages(1, 2)), pages(3))
    freed: list[PageIndex] = []

    assert table.drop(tip, freed) == [1, 0]
    assert freed == [3, 1, 2]
    assert table.alive == {}


def test_a_shared_prefix_stays_until_its_last_branch_is_dropped() -> None:
    """Two continuations of one history: the count of the fork is two."""
    table = RunTable()
    fork = table.freeze(None, pages(1, 2))
    fork.count += 1
    left, right = table.freeze(fork, pages(3)), table.freeze(fork, pages(4, 5))
    freed: list[PageIndex] = []

    assert table.drop(left, freed) == [1]
    assert (freed, fork.count) == ([3], 1)
    assert table.drop(right, freed) == [2, 0]
    assert freed == [3, 4, 5, 1, 2]


def test_a_run_that_is_named_stays_when_what_follows_it_is_dropped() -> None:
    """A session's state in the middle of a longer chain."""
    table = RunTable()
    middle = table.freeze(None, pages(1))
    middle.count += 1
    tip = table.freeze(middle, pages(2))
    freed: list[PageIndex] = []

    assert table.drop(tip, freed) == [1]
    assert table.drop(middle, freed) == [0]
    assert freed == [2, 1]


def test_a_chain_is_walked_from_the_newest() -> None:
    """The order in which it is dropped."""
    table = RunTable()
    first = table.freeze(None, pages(1))
    second = table.freeze(first, pages(2))

    assert list(second.chain()) == [second, first]
