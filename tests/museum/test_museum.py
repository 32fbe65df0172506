"""The museum itself: each entry stands in one place, and what stands there is true."""

from typing import get_args

import pytest

from tests.museum.checking import TYPES
from tests.museum.entries import ENTRIES, PATTERNS
from tests.museum.exhibit import Guard
from tests.museum.page import PAGE, render
from tests.museum.register import (
    MOST_NOT_APPLICABLE,
    NOT_APPLICABLE,
    PENDING,
    Scenario,
    places,
    scenarios,
)
from tests.mutants.catalogue import all_mutants
from tests.mutants.mutant import ROOT
from tests.types.programs import REJECTED

ENTRIES_IN_ALL = 147


@pytest.fixture(scope="module", name="shown")
def shown_scenarios() -> dict[str, Scenario]:
    return scenarios()


def test_each_entry_stands_in_exactly_one_place() -> None:
    """A report that is nowhere is forgotten; one in two places is judged twice."""
    found = places()

    assert [place.entry.id for place in found] == list(ENTRIES)
    assert len(found) == ENTRIES_IN_ALL


def test_the_lists_name_entries_of_the_museum(shown: dict[str, Scenario]) -> None:
    """A number with a slip of the pen would be counted and never looked for."""
    assert {*shown, *PENDING, *NOT_APPLICABLE} <= {*ENTRIES}


def test_few_entries_are_not_applicable() -> None:
    """The way out for what is merely hard has a bound; each that takes it says why, in a line."""
    assert len(NOT_APPLICABLE) <= MOST_NOT_APPLICABLE
    for why in (*NOT_APPLICABLE.values(), *PENDING.values()):
        assert why
        assert "\n" not in why


def test_each_scenario_says_which_report_it_replays(shown: dict[str, Scenario]) -> None:
    """By the test's name, the beginning of its docstring, and the pattern of its file."""
    for name, scenario in shown.items():
        entry = ENTRIES[name]
        assert f"::test_{name.lower()}_" in scenario.node
        assert scenario.doc.startswith(f"{entry.address}: "), scenario.node
        assert scenario.exhibit.pattern in entry.patterns, scenario.node
        assert scenario.exhibit.pattern in PATTERNS
        assert f"/test_p{int(scenario.exhibit.pattern[1:]):02}_" in scenario.node
        assert scenario.exhibit.guard in get_args(Guard), scenario.node


def test_each_scenario_names_a_bug_that_can_be_planted(shown: dict[str, Scenario]) -> None:
    """A planted bug whose line has moved on shows nothing any more."""
    mutants = all_mutants()
    for scenario in shown.values():
        bug = scenario.exhibit.bug
        if bug.startswith(TYPES):
            assert bug.removeprefix(TYPES) in REJECTED, scenario.node
            continue
        mutant = mutants[bug]
        text = (ROOT / mutant.path).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"{bug}: its line in {mutant.path} has changed"


def test_the_page_says_what_the_tests_say() -> None:
    """Write it anew with ``python -m tests.museum --write``."""
    assert PAGE.read_text(encoding="utf-8") == render(places())
