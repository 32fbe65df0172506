"""The general mutation run: what it changes, and that a change which a test sees is killed."""

import ast
import subprocess
import sys

import pytest

from tests.mutants.changes import changes_of, ownership_files
from tests.mutants.mutant import ROOT

SCRIPT = """
from tests.mutants.changes import Change
from tests.mutants.forked import fates

text = open("ownership/runs.py").read()
seen = Change("ownership/runs.py", "seen", 1, "", "", text.replace("count -= 1", "count -= 2"))
unseen = Change("ownership/runs.py", "unseen", 1, "", "", text + "# more")
hangs = Change("ownership/runs.py", "hangs", 1, "", "", text + "while True: pass")
tests = ["-x", "-q", "-p", "no:cacheprovider", "tests/ownership/test_runs.py"]
tests += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
for changes, timeout_s in ([seen, unseen], 60), ([hangs], 0.5):
    for change, fate in fates(changes, tests, jobs=2, timeout_s=timeout_s):
        print(change.operator, fate)
"""
"""In a process of its own, in which the changed module was never imported."""


def test_every_change_is_another_program_in_one_place() -> None:
    """A change that is none, or no program, would count as survived or as killed by nothing."""
    path = ROOT / "ownership" / "runs.py"
    text = path.read_text(encoding="utf-8")
    changes = list(changes_of(path))

    assert len(changes) > 10
    for change in changes:
        assert ast.dump(ast.parse(change.source)) != ast.dump(ast.parse(text))
        assert change.was != change.is_now
        assert change.module == "ownership.runs"


def test_the_move_checker_is_left_out() -> None:
    """It has golden tests of its own, which are slow."""
    names = {path.relative_to(ROOT).as_posix() for path in ownership_files()}

    assert "ownership/endings.py" in names
    assert not any("lint" in name for name in names)


@pytest.mark.timeout(120)
def test_a_change_is_killed_by_a_test_that_sees_it() -> None:
    """And survives one that doesn't; one that never ends is stopped."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert sorted(run.stdout.splitlines()) == ["hangs timeout", "seen killed", "unseen survived"]
