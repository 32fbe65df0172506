"""A run's log in words, one line an event, for whoever reads a replay."""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from kernel.testing.simulation.runner import Outcome

__all__ = ["tell"]

_NOISE = ("at", "seq")
"""Fields that say when, as the beginning of the line does."""


def tell(outcome: Outcome) -> Iterator[str]:
    """Lines: faults, events of the kernel, what callers saw, what is wrong."""
    yield from _lines(outcome.log or ())
    for failure in outcome.failures:
        yield f"FAILED  {failure}"
    if not outcome.failures:
        yield "nothing failed"


def _lines(log: Iterable[tuple[object, ...]]) -> Iterator[str]:
    steps = 0
    for entry in log:
        match entry:
            case ("step", *_):
                steps += 1
            case ("event", str(name), fields):
                yield f"{steps:6}  {name:20} {_fields(cast('Mapping[str, object]', fields))}"
            case ("fault", what, whom):
                yield f"{steps:6}  FAULT {what}: {whom}"
            case ("failure", kind, message):
                yield f"{steps:6}  WRONG {kind}: {message}"
            case _:
                yield f"{steps:6}  {' '.join(map(str, entry))}"


def _fields(fields: Mapping[str, object]) -> str:
    shown = {name: value for name, value in fields.items() if name not in _NOISE}
    told = {name: value for name, value in shown.items() if value not in (None, [], ())}
    return " ".join(f"{name}={value}" for name, value in told.items())
