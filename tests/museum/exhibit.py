"""What an exhibit of the museum says of itself: the entry, its pattern, what guards against it."""

from collections.abc import Callable
from typing import Literal, TypeVar

import attrs

__all__ = ["Exhibit", "Guard", "exhibit", "exhibit_of"]

Guard = Literal[
    "type", "move checker", "ledger", "protocol", "position check", "admission rule", "deadline"
]
F = TypeVar("F", bound=Callable[..., object])


@attrs.frozen
class Exhibit:
    """One entry of the museum as a runnable scenario.

    Attributes:
        id: the entry's number, ``M001``.
        pattern: the first of the patterns that the entry is listed under, ``P1``.
        guard: what makes the fault impossible here.
        bug: the planted bug (a mutant's id) that makes the scenario fail; or, where the fault
            can't be written down, the type test that stands in: ``types:NAME`` of a wrong program
            in ``tests/types``.
    """

    id: str
    pattern: str
    guard: Guard
    bug: str


def exhibit(id: str, *, pattern: str, guard: Guard, bug: str) -> Callable[[F], F]:  # noqa: A002
    """Mark a test as the scenario of an entry; its docstring begins with the entry's address."""
    described = Exhibit(id, pattern, guard, bug)

    def mark(test: F) -> F:
        test.__dict__["exhibit"] = described
        return test

    return mark


def exhibit_of(test: Callable[..., object]) -> Exhibit | None:
    """What a test was marked with."""
    found: Exhibit | None = test.__dict__.get("exhibit")
    return found
