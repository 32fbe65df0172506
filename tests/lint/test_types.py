"""The golden programs are programs: they type-check, so that only the move checker can tell."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lint.golden import programs
from tests.lint.sites import ROOT

UNTYPED = {
    "own001_both_sides_of_an_or": "mypy asks why a result that is always None is used",
    "own002_short_circuit": "the same",
    "own005_generator_expression": "the same",
    "own005_list_comprehension": "the same",
    "own007_built_by_hand": "the constructor takes a seal that nobody has",
}
"""Wrong programs that a type checker refuses as well, and why."""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_golden_programs_type_check_but_for_those_that_are_listed(tmp_path: Path) -> None:
    """What a type checker finds anyway needs no move checker."""
    for program in (*programs("wrong"), *programs("right")):
        if len(program.modules) == 1:
            name = tmp_path / f"{program.name}.py"
            name.write_text(program.modules["program.py"], encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    command += ["--cache-dir", str(tmp_path / "cache"), str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    refused = set(re.findall(r"(\w+)\.py:\d+: error", run.stdout))

    assert refused == UNTYPED.keys(), run.stdout + run.stderr
