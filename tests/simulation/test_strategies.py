"""Which task runs next."""

import itertools

import pytest

from kernel.testing.simulation.strategies import STRATEGIES, StrategyName, make_strategy


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_a_function_of_its_seed(name: StrategyName) -> None:
    """The seed that a failure prints must give the same run."""
    keys = [1, 2, 3, 4]
    first, second = make_strategy(name, 5), make_strategy(name, 5)

    assert [first.task(keys) for _ in range(300)] == [second.task(keys) for _ in range(300)]


def test_fifo_is_the_order_of_arrival() -> None:
    """What an application sees on a quiet day."""
    strategy = make_strategy("fifo", 1)

    assert {strategy.task([3, 1, 2]) for _ in range(20)} == {0}


def test_pct_keeps_to_its_priorities_but_for_the_change_points() -> None:
    """One task runs as long as it can, which no fair order would ever try."""
    strategy = make_strategy("pct", 1)
    keys = [1, 2, 3]
    ran = [keys[strategy.task(keys)] for _ in range(40)]
    changes = sum(one != other for one, other in itertools.pairwise(ran))

    assert changes <= 3


def test_pct_lets_the_eldest_run_once_in_a_while() -> None:
    """A task that yields for ever must not keep the one that it waits for from running."""
    strategy = make_strategy("pct", 1)
    keys = [1, 2, 3]

    assert 0 in {strategy.task(keys) for _ in range(100)}
    assert {strategy.task([9, *keys]) for _ in range(200)} >= {0}
