"""Each golden program has exactly the findings that are stored beside it."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.lint.golden import FOLDER, Program, as_stored, programs, stored

WRONG = programs("wrong")
RIGHT = programs("right")
RULES = {f"OWN00{number}" for number in range(1, 9)}


def _name(program: Program) -> str:
    return program.name


@pytest.mark.parametrize("program", WRONG, ids=_name)
def test_a_wrong_program_is_told_exactly_what_is_wrong(program: Program, tmp_path: Path) -> None:
    """Rule, place, message, note, help and the text as printed: a message is an interface."""
    assert as_stored(program.check(tmp_path)) == stored(program)


@pytest.mark.parametrize("program", RIGHT, ids=_name)
def test_nothing_is_found_in_a_right_program(program: Program, tmp_path: Path) -> None:
    """One false finding teaches people to ignore the true ones."""
    assert [finding.render() for finding in program.check(tmp_path)] == []


@pytest.mark.parametrize("program", WRONG, ids=_name)
def test_a_wrong_program_breaks_the_rule_that_it_is_named_after(program: Program) -> None:
    """Else it would be filed under what it does not show."""
    golden = json.loads(program.golden.read_text(encoding="utf-8"))
    assert program.rule in {finding["rule"] for finding in golden["findings"]}


def test_every_rule_is_broken_in_several_ways_and_enough_is_right() -> None:
    """A rule with one example is a rule that matches that example."""
    count = Counter(program.rule for program in WRONG)

    assert count.keys() == RULES
    assert min(count.values()) >= 6, count
    assert len(WRONG) >= 60
    assert len(RIGHT) >= 30


def test_no_golden_file_is_left_over() -> None:
    """A renamed program must not leave its old findings behind."""
    golden = {path.stem for path in (FOLDER / "wrong").glob("*.json")}
    assert golden == {program.name for program in WRONG}
