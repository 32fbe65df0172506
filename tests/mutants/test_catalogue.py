"""The planted bugs are still bugs of this code: quick enough for every test run.

That each is caught takes minutes: ``python -m tests.mutants``.
"""

import ast
from pathlib import Path

import pytest

from tests.mutants import table
from tests.mutants.catalogue import all_mutants, system_mutants
from tests.mutants.ladder import BrokenLayerError, Verdict, check_clean, judge_all
from tests.mutants.layers import LADDER, Layer, narrowed
from tests.mutants.mutant import ROOT, Mutant, mutated_copy
from tests.mutants.rules import RULES

EVERY_MUTANT = all_mutants()
MUTANTS = system_mutants()


@pytest.mark.parametrize("mutant", EVERY_MUTANT.values(), ids=list(EVERY_MUTANT))
def test_a_mutant_applies_and_is_still_a_program(mutant: Mutant) -> None:
    """Its line stands exactly once; what a parser refuses would be caught by everything."""
    text = (ROOT / mutant.path).read_text(encoding="utf-8")

    assert text.count(mutant.old) == 1
    assert mutant.new != mutant.old
    ast.parse(text.replace(mutant.old, mutant.new))


def test_there_are_forty_mutants_and_each_says_what_it_breaks() -> None:
    assert len(MUTANTS) >= 40
    assert [one.id for one in EVERY_MUTANT.values() if not one.breaks] == []


@pytest.mark.parametrize("rule", RULES)
def test_each_marked_rule_is_undone_by_a_mutant_or_waits_for_its_feature(rule: str) -> None:
    """A rule that nothing undoes may be one that nothing needs, or that nothing checks."""
    undone = any(mutant.rule == rule for mutant in MUTANTS.values())

    assert undone != bool(RULES[rule].pending)


def test_the_page_shows_every_mutant_and_every_rule() -> None:
    """``python -m tests.mutants --write`` puts the mutants there."""
    page = table.PAGE.read_text(encoding="utf-8")
    shown = page.partition(table.BEGIN)[2].partition(table.END)[0]

    assert {line.split("`")[1] for line in shown.splitlines() if line.startswith("| `")} == set(
        MUTANTS
    )
    assert "**nothing**" not in shown
    assert [rule for rule in RULES if f"**{rule}**" not in page] == []


def test_tests_that_are_near_a_mutant_are_there_and_belong_to_a_layer_that_sees_it() -> None:
    """Else it would be caught by nothing, or by a test that isn't there."""
    for mutant in EVERY_MUTANT.values():
        for near in mutant.near:
            path, _, name = near.partition("::")
            assert f"def {name or 'test_'}" in (ROOT / path).read_text(encoding="utf-8"), near
            (layer,) = narrowed(LADDER, [near])
            assert layer.can_see(mutant.path), mutant.id
            assert layer.module[-1] == near


def test_a_layer_without_such_tests_is_not_narrowed() -> None:
    names = [layer.name for layer in narrowed(LADDER, ["tests/store/test_jobs.py"])]

    assert names == ["store"]


LOOKS_FOR_A_WORD = Layer(
    "looks for a word",
    ("ownership/",),
    ("ast", "ownership/marks.py"),
    20,
)
"""A layer that costs nothing: whether the file is Python at all."""

BROKEN = Mutant("broken", "It is Python.", "ownership/marks.py", "import enum", "import (")
FINE = Mutant("fine", "It is Python.", "ownership/marks.py", "import enum", "import enum  #")
ELSEWHERE = Mutant("elsewhere", "It is.", "kernel/ids.py", "import NewType", "import NewType  #")


def test_a_layer_catches_what_it_can_see_and_is_not_asked_about_the_rest() -> None:
    """The runner itself: caught, let through, and out of sight."""
    mutants = [BROKEN, FINE, ELSEWHERE]
    with mutated_copy() as root:
        assert set(check_clean([LOOKS_FOR_A_WORD], mutants, root, jobs=1)) == {"looks for a word"}
        verdicts = judge_all([LOOKS_FOR_A_WORD], mutants, root, jobs=2, all_layers=True)
        caught = {verdict.mutant: verdict.caught_by for verdict in verdicts}

    assert caught == {"broken": ("looks for a word",), "fine": (), "elsewhere": ()}


def test_a_layer_that_fails_on_the_clean_tree_says_nothing_of_any_mutant() -> None:
    with mutated_copy(BROKEN) as root, pytest.raises(BrokenLayerError, match="looks for a word"):
        check_clean([LOOKS_FOR_A_WORD], [FINE], root, jobs=1)


def test_the_table_is_written_between_its_markers_and_keeps_other_rows(tmp_path: Path) -> None:
    """So that one mutant can be run again without the others."""
    first, second = list(MUTANTS)[:2]
    page = tmp_path / "protocol.md"
    page.write_text(f"before {table.BEGIN} {table.END} after", encoding="utf-8")
    table.write({first: Verdict(first, ("types",), "said", None, 1.0)}, page)
    table.write({second: Verdict(second, ("explorer",), "said", 7, 1.0)}, page)

    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before {table.BEGIN}")
    assert text.endswith(f"{table.END} after")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [first, second]
    assert rows[0].endswith("| types |  |")
    assert rows[1].endswith("| explorer | 7 |")
