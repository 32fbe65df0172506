"""Sizes in bytes, as people write and read them: ``"8GiB"``, ``"512 MB"``, ``8589934592``."""

import re

from kernel.errors import ValidationError

__all__ = ["format_bytes", "parse_bytes"]

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)


def parse_bytes(parameter: str, value: object, *, least: int = 1) -> int:
    """A whole number of bytes, at least ``least``, from a number or a text with a unit.

    ``K``, ``M``, ``G`` and ``T`` are powers of 1000, ``Ki``, ``Mi``, ``Gi`` and ``Ti`` of 1024;
    a ``B`` behind them and the case don't matter.

    Raises:
        ValidationError: it is neither, or less.
    """
    size = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        unit = (_UNITS | _BINARY).get(found[2].lower())
        size = None if unit is None else int(float(found[1]) * unit)
    if size is None or size < least:
        raise ValidationError(
            parameter=parameter, value=value, why="it must be a size, like 8589934592 or '8GiB'"
        )
    return size


def format_bytes(size: int) -> str:
    """A size to be read: three digits and a binary unit."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.3g} {unit}"
