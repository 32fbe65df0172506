"""What a template may see of a message: JSON's own types, rebuilt, and nothing with methods.

A template is code of somebody else's. The sandbox knows which attributes of Python's own types are
dangerous; it can't know those of whatever object a caller puts into a message.
"""

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["plain", "plain_message"]

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names under which a message carries its thoughts; templates read the first."""


def plain(value: object) -> Any:
    """Rebuild a value out of JSON's types; what has no such form becomes its type's name."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {_name(key): plain(entry) for key, entry in entries.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in cast("list[object]", value)]
    return f"<{type(value).__name__}>"


def _name(key: object) -> Any:
    """A key; neither lists nor mappings can be one, which is what others would become."""
    known = key is None or isinstance(key, str | int | float)
    return plain(key) if known else f"<{type(key).__name__}>"


def plain_message(message: Mapping[str, object]) -> dict[str, Any]:
    """A message as templates expect it: no key without a value, thoughts under the usual name."""
    found: dict[str, Any] = {
        str(key): plain(value) for key, value in message.items() if value is not None
    }
    thoughts = next((found[name] for name in _REASONING if name in found), None)
    if thoughts is not None:
        found = {"thinking": thoughts, **found, "reasoning_content": thoughts}
    return found
