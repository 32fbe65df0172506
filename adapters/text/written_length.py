"""How long a value's text would be, without writing it."""

from typing import Any

__all__ = ["written_length"]

_SCALAR = 16
"""A number, a truth value, quotes and commas."""


def written_length(value: Any) -> int:
    """About the length of a value as text; linear in its distinct parts.

    A list that holds another one twice, which holds another one twice, and so on, has few parts
    and endless text.
    """
    return _length(value, {})


def _length(value: Any, known: dict[int, int]) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, list | tuple | dict):
        return _SCALAR
    key, parts = _parts(value)
    if key not in known:
        known[key] = 0  # it may hold itself
        known[key] = sum(_SCALAR + _length(part, known) for part in parts)
    return known[key]


def _parts(value: Any) -> tuple[int, Any]:
    """What tells a value from others, and what it holds."""
    # Not items(): its pairs come and go, and so do their identities.
    return id(value), [*value, *value.values()] if isinstance(value, dict) else value
