"""Where random tests take their choices from."""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

import attrs
import hypothesis.strategies as st

T = TypeVar("T")


class Chooser(Protocol):
    """Where the next choice comes from: hypothesis, which shrinks, or a seed, which is fast."""

    def number(self, low: int, high: int) -> int: ...

    def one(self, options: Sequence[T], /) -> T: ...

    def some(self, options: Sequence[T], /) -> list[T]: ...


@attrs.frozen
class Drawn:
    """Choices by hypothesis."""

    data: st.DataObject

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def one(self, options: Sequence[T], /) -> T:
        return self.data.draw(st.sampled_from(options))

    def some(self, options: Sequence[T], /) -> list[T]:
        return self.data.draw(st.lists(st.sampled_from(options), unique_by=id))


@attrs.frozen
class Seeded:
    """Choices by a seed."""

    random: random.Random

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def one(self, options: Sequence[T], /) -> T:
        return self.random.choice(options)

    def some(self, options: Sequence[T], /) -> list[T]:
        return self.random.sample(options, self.random.randint(0, min(len(options), 3)))
