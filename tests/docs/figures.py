"""Writes the output of ``tenure bench core --json`` into the table of docs/performance.md.

``python -m tests.docs.figures bench.json``
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from tests.docs.markdown import ROOT

__all__ = ["BEGIN", "END", "NOT_MEASURED", "fill", "flatten", "names"]

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
NOT_MEASURED = "not measured yet"


def flatten(figures: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """``{"step_ms": {"1": 0.1}}`` as ``{"step_ms.1": "0.1"}``."""
    flat: dict[str, str] = {}
    for key, value in figures.items():
        if isinstance(value, dict):
            flat |= flatten(cast("dict[str, object]", value), f"{prefix}{key}.")
        else:
            flat[prefix + key] = str(value)
    return flat


def names(page: str) -> list[str]:
    """The figures that the table has a row for."""
    table = page[page.index(BEGIN) : page.index(END)]
    return [row.split("`")[1] for row in table.splitlines() if row.startswith("| `")]


def fill(page: str, figures: Mapping[str, object]) -> str:
    """The page with its last column filled; a figure that is not given keeps what it says."""
    flat = flatten(figures)
    start, end = page.index(BEGIN), page.index(END)
    rows = page[start:end].splitlines()
    for number, row in enumerate(rows):
        if row.startswith("| `") and row.split("`")[1] in flat:
            cells = row.rstrip(" |").split(" | ")
            rows[number] = " | ".join([*cells[:-1], flat[row.split("`")[1]]]) + " |"
    return page[:start] + "\n".join(rows) + "\n" + page[end:]


if __name__ == "__main__":
    performance = ROOT / "docs" / "performance.md"
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    filled = fill(performance.read_text(encoding="utf-8"), given)
    performance.write_text(filled, encoding="utf-8")
