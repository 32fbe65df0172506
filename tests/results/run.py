"""One long run: what it is called, what it measures, what has to hold of its figures."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from tests.results.digest import digest

__all__ = ["Condition", "Run", "figure", "troubles"]

Figures = Mapping[str, Any]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
}


@attrs.frozen
class Condition:
    """What has to hold of a figure, such as ``failed == 0``."""

    figure: str
    """Its key; dots lead into objects. Of a list its length counts."""
    how: str
    than: float | str
    """A number, or the key of another figure."""

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read ``KEY ==|>=|<= NUMBER-OR-KEY``.

        Raises:
            ValueError: it is written otherwise.
        """
        key, how, than = text.split()
        if how not in _OPERATORS:
            raise ValueError(f"{text!r}: {how!r} is not one of {', '.join(_OPERATORS)}")
        try:
            return cls(key, how, float(than))
        except ValueError:
            return cls(key, how, than)

    def __str__(self) -> str:
        return f"{self.figure} {self.how} {self.than}"

    def broken_by(self, figures: Figures) -> str | None:
        """Say how the figures break it; None when they don't."""
        try:
            value = figure(figures, self.figure)
            than = figure(figures, self.than) if isinstance(self.than, str) else self.than
        except KeyError as error:
            return f"there is no figure {error}"
        if isinstance(value, list):
            value = len(cast("list[object]", value))
        if _OPERATORS[self.how](value, than):
            return None
        return f"{self.figure} is {value}, and has to be {self.how} {self.than}"


@attrs.frozen(kw_only=True)
class Run:
    """A command that takes too long for each change, and whose result is kept."""

    name: str
    command: str
    """Prints one JSON object on stdout. ``python`` and ``tenure`` are those of this environment."""
    measures: tuple[str, ...]
    """Patterns of the code that the result speaks of; ``!`` takes away again."""
    conditions: tuple[str, ...]
    """What has to hold of the figures; see :meth:`Condition.parse`."""
    is_expected: bool
    """A test fails when there is no result. Off until the run has been made for the first time."""

    def code(self) -> str:
        """The digest of what it measures, as it is now."""
        return digest(self.measures)


def figure(figures: Figures, key: str) -> Any:
    """Look a figure up.

    Raises:
        KeyError: there is none of this key.
    """
    value: Any = figures
    for part in key.split("."):
        is_object = isinstance(value, Mapping)
        known = cast("Mapping[str, object]", value) if is_object else dict[str, object]()
        if part not in known:
            raise KeyError(key)
        value = known[part]
    return value


def troubles(run: Run, result: Mapping[str, Any] | None) -> list[str]:
    """Say why the result of a run can't be relied on; empty when it can."""
    again = f"run `python -m tests.results {run.name}`"
    if result is None:
        return [f"docs/results/{run.name}.json is missing: {again}"]
    found: list[str] = []
    if result["command"] != run.command:
        found.append(f"{run.name} was made by {result['command']!r}, not {run.command!r}: {again}")
    if result["code"] != run.code():
        found.append(
            f"{run.name} is older than the code it measures ({', '.join(run.measures)}): {again}"
        )
    broken = [Condition.parse(text).broken_by(result["figures"]) for text in run.conditions]
    return found + [f"{run.name}: {why}" for why in broken if why is not None]
