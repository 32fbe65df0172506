"""Figures as text for people."""

from typing import cast

__all__ = ["plain"]


def plain(value: object) -> str:
    """Objects as ``key: value, key: value``; all else as it is."""
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        return ", ".join(f"{key}: {plain(part)}" for key, part in parts.items())
    return str(value)
