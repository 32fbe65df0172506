"""The museum's runner: what it prints, and that a check which shows nothing does not count."""

import json

import pytest

from tests.museum import checking
from tests.museum.__main__ import main
from tests.museum.checking import check
from tests.museum.register import scenarios
from tests.museum.running import run_tests
from tests.mutants.mutant import ROOT, Mutant

# Each of these starts processes, which on a busy machine take their time.
pytestmark = pytest.mark.timeout(120)

ANSWERED = "M037"
"""A scenario that is quick and stands for all."""


def test_a_program_can_read_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """The counts, then what guards each entry, or why it has no scenario."""
    assert main(["--json", "--only", ANSWERED, "M068"]) == 0

    report = json.loads(capsys.readouterr().out)
    shown, waiting = report.pop("entries")
    assert report == {"total": 2, "passed": 1, "failed": 0, "not_applicable": 0, "pending": 1}
    assert shown["id"] == ANSWERED
    assert (shown["pattern"], shown["status"], shown["guard"]) == ("P4", "passed", "type")
    assert shown["bug"].startswith("types:")
    assert waiting == {
        "id": "M068",
        "pattern": "P17",
        "status": "pending",
        "feature": "several machines",
    }


HARMLESS = Mutant("m", "nothing", "kernel/actors/mailbox.py", "A mailbox moves", "A mail-box moves")
UNIMPORTABLE = Mutant(
    "m", "all", "kernel/actors/mailbox.py", "from typing import", "from typing_ import"
)
GONE = Mutant("m", "nothing", "kernel/actors/mailbox.py", "text that is not there", "")


@pytest.mark.parametrize(
    ("planted", "why"),
    [(HARMLESS, "it passed"), (UNIMPORTABLE, "it never ran"), (GONE, "stands 0 times")],
    ids=["harmless", "unimportable", "gone"],
)
def test_a_bug_counts_as_caught_when_a_test_has_seen_it(
    monkeypatch: pytest.MonkeyPatch, planted: Mutant, why: str
) -> None:
    """Not when the scenario passes, and not when nothing could be imported or planted."""
    scenario = scenarios()["M055"]
    said: list[str] = []
    monkeypatch.setattr(checking, "all_mutants", lambda: {scenario.exhibit.bug: planted})
    (result,) = check([scenario], say=said.append)

    assert not result.caught
    assert why in result.why
    assert said == [f"{scenario.exhibit.bug}: missed by M055"]


def test_a_run_that_was_ended_shows_nothing() -> None:
    """A machine that is too busy to begin has not caught a bug."""
    node = scenarios()[ANSWERED].node
    outcome = run_tests(ROOT, [node], is_quiet=True, limit_s=0.01)[node]

    assert not outcome.has_passed
    assert not outcome.was_caught
    assert outcome.broken == ("the run was ended after 0.01 s",)


def test_an_entry_that_is_not_there_is_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """A number with a slip of the pen would run nothing, and well."""
    with pytest.raises(SystemExit) as exited:
        main(["--only", ANSWERED, "M999"])

    assert exited.value.code == 2
    assert "no entry M999" in capsys.readouterr().err


def test_a_planted_bug_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    """The last line is what a script looks for."""
    assert main(["--check", "--only", "M055"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "caught 1 of 1"
