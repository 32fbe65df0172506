"""Figures as text for people."""

from collections.abc import Iterator, Mapping
from typing import cast

__all__ = ["plain", "tables"]

_GAP = 2


def plain(value: object) -> str:
    """Objects as ``key: value, key: value``, lists as ``value, value``; all else as it is."""
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        return ", ".join(f"{key}: {plain(part)}" for key, part in parts.items())
    if isinstance(value, list):
        return ", ".join(map(plain, cast("list[object]", value)))
    return str(value)


def tables(figures: Mapping[str, object], sizes_are: str) -> Iterator[str]:
    """Lines of two tables: figures that were taken once, then those that were taken at each size.

    Args:
        figures: nested as they like; where the keys are numbers they are sizes, and columns.
        sizes_are: what the numbers count, to stand above them.
    """
    rows = list(_rows((), figures))
    once = {label: cell for label, size, cell in rows if not size}
    by_size: dict[str, dict[str, str]] = {}
    for label, size, cell in rows:
        if size:
            by_size.setdefault(label, {})[size] = cell
    width = max((len(label) for label, _, _ in rows), default=0)
    for label, cell in once.items():
        yield f"{label:{width}}{' ' * _GAP}{cell}"
    if by_size:
        yield ""
        yield from _grid(by_size, sizes_are)


def _grid(by_size: Mapping[str, Mapping[str, str]], sizes_are: str) -> Iterator[str]:
    sizes = sorted({size for cells in by_size.values() for size in cells}, key=int)
    first = max(map(len, (sizes_are, *by_size)))
    lines = {sizes_are: {size: f"{int(size):,}" for size in sizes}, **by_size}
    widths = {size: max(len(cells.get(size, "")) for cells in lines.values()) for size in sizes}
    for label, cells in lines.items():
        row = (f"{cells.get(size, ''):>{widths[size] + _GAP}}" for size in sizes)
        yield f"{label:{first}}{''.join(row)}".rstrip()


def _rows(path: tuple[str, ...], value: object) -> Iterator[tuple[str, str, str]]:
    """Each single figure: its names in one label, its size or nothing, and itself."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[str, object]", value).items():
            yield from _rows((*path, key), part)
        return
    size = next((name for name in path if name.isdecimal()), "")
    yield " ".join(name for name in path if name != size), size, plain(value)
