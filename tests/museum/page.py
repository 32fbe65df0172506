"""The table of ``docs/museum.md``, from what stands in the tests."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.museum.entries import PATTERNS
from tests.museum.register import Place
from tests.mutants.mutant import ROOT

__all__ = ["PAGE", "render"]

PAGE: Final[Path] = ROOT / "docs" / "museum.md"

_HEAD: Final = """\
# The museum

Public reports of one family of bugs: a slot, a page or a session's state that two hold, or nobody.
Each one that makes sense for this system is a test in `tests/museum/`, named after its entry, that
replays the report's steps on the real engine and asserts the right outcome. Each test names the
planted bug that makes it fail (a one-line change of the real code, `tests/mutants/catalogue/`), or
the wrong program that no type checker lets through (`types:`, in `tests/types/programs.py`).

    make museum             # run all; python -m tests.museum --json for a program to read
    make museum CHECK=1     # plant each bug as well: each scenario must fail

`python -m tests.museum --write` writes this page; a test compares it with the tests.

"""


def render(places: Sequence[Place]) -> str:
    """The whole page."""
    count = Counter(place.status for place in places)
    figures = ", ".join(
        f"{count[status]} {status if count[status] == 1 or status != 'scenario' else 'scenarios'}"
        for status in ("scenario", "pending", "not applicable")
    )
    parts = [_HEAD, f"{len(places)} entries: {figures}.\n\n## Patterns\n\n| | |\n|---|---|\n"]
    parts += [f"| {name} | {text} |\n" for name, text in PATTERNS.items()]
    parts.append("\n## Scenarios\n\n| entry | report | pattern | claim | guard | planted bug |\n")
    parts.append("|---|---|---|---|---|---|\n")
    parts += [_scenario(place) for place in places if place.scenario is not None]
    parts.append("\n## Pending\n\nEach waits for a feature, and is done with it.\n\n")
    parts.append("| entry | report | pattern | feature |\n|---|---|---|---|\n")
    parts += [_other(place) for place in places if place.status == "pending"]
    parts.append("\n## Not applicable\n\n| entry | report | pattern | why |\n|---|---|---|---|\n")
    parts += [_other(place) for place in places if place.status == "not applicable"]
    return "".join(parts)


def _report(place: Place) -> str:
    return f"| {place.entry.id} | [{place.entry.address}]({place.entry.url}) | {place.pattern} |"


def _scenario(place: Place) -> str:
    if place.scenario is None:
        return ""
    exhibit = place.scenario.exhibit
    return f"{_report(place)} {place.scenario.claim} | {exhibit.guard} | `{exhibit.bug}` |\n"


def _other(place: Place) -> str:
    return f"{_report(place)} {place.why} |\n"
