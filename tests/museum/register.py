"""Where each entry stands: a scenario that runs, pending with a feature, or not applicable."""

import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import attrs

from tests.museum.entries import ENTRIES, Entry
from tests.museum.exhibit import Exhibit, exhibit_of
from tests.museum.not_applicable import NOT_APPLICABLE
from tests.museum.pending import PENDING

__all__ = [
    "MOST_NOT_APPLICABLE",
    "NOT_APPLICABLE",
    "PENDING",
    "Place",
    "Scenario",
    "places",
    "scenarios",
]

HERE: Final = Path(__file__).parent
MOST_NOT_APPLICABLE: Final = 25


@attrs.frozen
class Scenario:
    """A test that is an entry's exhibit."""

    exhibit: Exhibit
    node: str
    """What pytest is asked for, from the root."""
    doc: str

    @property
    def claim(self) -> str:
        """What the test's name says, in words."""
        _, _, name = self.node.partition("::test_")
        return name.partition("_")[2].replace("_", " ")


@attrs.frozen
class Place:
    """Where an entry stands.

    Attributes:
        entry: which.
        status: in which of the three columns.
        scenario: of a scenario.
        why: of the others: the feature's name, or the reason.
    """

    entry: Entry
    status: Literal["scenario", "pending", "not applicable"]
    scenario: Scenario | None = None
    why: str = ""

    @property
    def pattern(self) -> str:
        """The pattern that it is shown under."""
        return self.entry.patterns[0] if self.scenario is None else self.scenario.exhibit.pattern


def scenarios() -> dict[str, Scenario]:
    """Every scenario by its entry's number.

    Raises:
        ValueError: two tests are exhibits of one entry.
    """
    found: dict[str, Scenario] = {}
    for path in sorted(HERE.glob("test_p*.py")):
        module = importlib.import_module(f"{__package__}.{path.stem}")
        for name, test in inspect.getmembers(module, inspect.isfunction):
            described = exhibit_of(test)
            if described is None or test.__module__ != module.__name__:
                continue
            if described.id in found:
                raise ValueError(f"{described.id} has two scenarios, one of them {name}")
            node = f"tests/museum/{path.name}::{name}"
            found[described.id] = Scenario(described, node, inspect.getdoc(test) or "")
    return found


def places(only: Sequence[str] = ()) -> list[Place]:
    """Each entry's place, in order of number.

    Args:
        only: the entries that are asked for; all of them by default.

    Raises:
        ValueError: an entry stands in no column, or in two.
    """
    shown = scenarios()
    names = [name for name in ENTRIES if not only or name in only]
    return [_place(ENTRIES[name], shown.get(name)) for name in names]


def _place(entry: Entry, scenario: Scenario | None) -> Place:
    columns: list[Place] = []
    if scenario is not None:
        columns.append(Place(entry, "scenario", scenario))
    if entry.id in PENDING:
        columns.append(Place(entry, "pending", why=PENDING[entry.id]))
    if entry.id in NOT_APPLICABLE:
        columns.append(Place(entry, "not applicable", why=NOT_APPLICABLE[entry.id]))
    if len(columns) != 1:
        raise ValueError(f"{entry.id} stands in {len(columns)} columns; each entry stands in one")
    return columns[0]
