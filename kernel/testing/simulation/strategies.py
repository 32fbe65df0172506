"""Which of the tasks that could run runs next.

``fifo`` is asyncio's own order. ``random`` takes any. ``pct`` is probabilistic concurrency testing
(Burckhardt, Kothari, Musuvathi and Nagarakatte, *A Randomized Scheduler with Probabilistic
Guarantees of Finding Bugs*, ASPLOS 2010): each task has a random priority, the highest runs, and
at d - 1 random steps the one that would run drops below all others. A bug that needs d ordering
constraints among n tasks of k steps is found with a probability of at least 1 / (n * k^(d - 1)),
whatever the rest of the program does.

A task here may yield for ever while it waits for another one, which threads of that paper do not;
so the eldest in line runs once in a while.
"""

import random
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

__all__ = ["STRATEGIES", "Strategy", "StrategyName", "make_strategy", "mixed_strategy"]

StrategyName = Literal["fifo", "random", "pct"]
STRATEGIES: tuple[StrategyName, ...] = ("fifo", "random", "pct")

_CHANGE_POINTS = 3
_HORIZON = 1500
"""Steps among which the change points are drawn; about the length of a run."""
_PATIENCE = 48


class Strategy(Protocol):
    """Orders tasks, known by numbers; the first has waited longest."""

    def task(self, keys: Sequence[int]) -> int:
        """Place of the task that runs next."""
        ...

    def mail(self, keys: Sequence[int]) -> int:
        """Place of the mailbox that is served next."""
        ...


class _Fifo:
    def task(self, keys: Sequence[int]) -> int:
        del keys
        return 0

    mail = task


class _Random:
    def __init__(self, rng: random.Random) -> None:
        self._random = rng.random

    def task(self, keys: Sequence[int]) -> int:
        return int(self._random() * len(keys))

    mail = task


class _Pct:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._priorities: dict[int, float] = {}
        self._changes = {rng.randrange(_HORIZON): -1.0 - n for n in range(_CHANGE_POINTS)}
        self._step = 0

    def task(self, keys: Sequence[int]) -> int:
        self._step += 1
        if self._step % _PATIENCE == 0:
            return 0
        best = max(keys, key=self._priority)
        lower = self._changes.pop(self._step, None)
        if lower is not None:
            self._priorities[best] = lower
            best = max(keys, key=self._priority)
        return keys.index(best)

    def mail(self, keys: Sequence[int]) -> int:
        return int(self._rng.random() * len(keys))

    def _priority(self, key: int) -> float:
        priority = self._priorities.get(key)
        if priority is None:
            priority = self._priorities[key] = self._rng.random()
        return priority


_MAKERS: dict[StrategyName, Callable[[random.Random], Strategy]] = {
    "fifo": lambda _: _Fifo(),
    "random": _Random,
    "pct": _Pct,
}


def make_strategy(name: StrategyName, seed: int) -> Strategy:
    """A strategy whose choices are a function of the seed."""
    return _MAKERS[name](random.Random(f"strategy {seed}"))


def mixed_strategy(seed: int) -> StrategyName:
    """All strategies in turn: the one of this seed."""
    return STRATEGIES[seed % len(STRATEGIES)]
