"""``python -m kernel.testing simulate`` and ``replay``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from kernel.testing.__main__ import main
from kernel.testing.simulation import Failure, Settings, run_seed, run_twice, simulate
from tests.mutants.mutant import ROOT, Mutant, mutated_copy
from tests.simulation.test_failures import is_another_each_time, planted

pytestmark = pytest.mark.timeout(300)  # Seconds alone, minutes beside a busy machine's work.

PLANTED = "tests.simulation.test_failures:planted"


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads it: seeds, failed, sometimes, seconds."""
    code = main(["simulate", "--seeds", "1..20", "--json", "--progress"])
    facts = json.loads(capsys.readouterr().out)

    assert code == 0
    assert (facts["seeds"], facts["failed"], facts["failures"]) == (20, 0, [])
    assert facts["sometimes"]["cancel in flight"]
    assert facts["seconds"] > 0
    assert facts["seeds_per_second"] > 0


def test_a_failing_seed_gives_its_tape_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its scenario is found by name, and so it is by the replay."""
    code = main(
        ["simulate", "--seeds", "0..9", "--json", "--scenario", PLANTED, "--tapes", str(tmp_path)]
    )
    facts = json.loads(capsys.readouterr().out)
    failure = facts["failures"][0]

    assert code == 1
    assert facts["unseen"] == []
    assert failure["kind"] == "scenario"
    assert main(["replay", failure["tape"]]) == 1
    told = capsys.readouterr().out
    assert "turn.started" in told
    assert "FAILED  scenario: RuntimeError('planted')" in told
    assert main(["replay", failure["tape"], "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["failures"] == [facts["expected"]]


def test_a_tape_of_a_run_that_differs_from_itself_is_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once it would look sound."""
    outcome = run_twice(1, scenario=is_another_each_time)
    outcome.tape.save(tmp_path / "tape.json")

    assert main(["replay", str(tmp_path / "tape.json")]) == 1
    assert "FAILED  determinism: " in capsys.readouterr().out


def test_a_tape_whose_failure_does_not_come_again_says_which_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code has changed since: that nothing failed may mean that nothing was tried."""
    failure = Failure("deadlock", "every task waits for ever")
    attrs.evolve(run_seed(1).tape, failure=failure).save(tmp_path / "tape.json")

    assert main(["replay", str(tmp_path / "tape.json")]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "nothing failed",
        "the tape was made of another failure: deadlock: every task waits for ever",
    ]


def test_it_stops_at_the_first_failure_when_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    """A planted bug is caught once or a hundred times."""
    first = simulate(planted, range(100), Settings(until_failure=True)).failures[0].seed
    main(["simulate", "--seeds", "0..99", "--until-failure", "--json", "--scenario", PLANTED])
    facts = json.loads(capsys.readouterr().out)

    assert (facts["failed"], facts["seeds"]) == (1, first + 1)


@pytest.mark.parametrize("seeds", ["five", "9..1", "1..x"])
def test_what_is_no_range_of_seeds_is_refused(seeds: str) -> None:
    """Exit code 2, as for any wrong argument."""
    with pytest.raises(SystemExit) as exited:
        main(["simulate", "--seeds", seeds])

    assert exited.value.code == 2


def test_processes_share_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Each seed is run once, by whichever."""
    assert main(["simulate", "--seeds", "1..104", "--jobs", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == 104


@pytest.mark.parametrize(
    "bug",
    [
        Mutant(
            id="commit-beyond-the-log",
            breaks="a state is committed that lies beyond what its log keeps",
            path="kernel/sessions/state.py",
            old="if not 0 < position <= len(self.log) - 1:",
            new="if not 0 < position:",
        ),
        Mutant(
            id="a-late-claim-stays",
            breaks="what arrives for a forgotten turn goes back",
            path="kernel/sessions/turn_ends.py",
            old='forgotten turn goes back."""\n        self.state.roll_back(claim)\n',
            new='forgotten turn goes back."""\n',
        ),
    ],
    ids=lambda bug: bug.id,
)
def test_a_planted_bug_is_found(bug: Mutant) -> None:
    """The check is checked: by the command that `make mutants` runs."""
    command = [sys.executable, "-m", "kernel.testing", "simulate", "--seeds", "1..200"]
    with mutated_copy(bug) as root:
        found = subprocess.run(
            [*command, "--until-failure", "--json", "--tapes", str(root / "tapes")],
            cwd=root,
            env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )

    assert found.returncode == 1, found.stderr
    assert json.loads(found.stdout)["failed"] == 1


def test_a_tape_gives_the_same_log_in_every_process(tmp_path: Path) -> None:
    """Hashes of strings are salted by the process, and addresses differ; no order is theirs."""
    outcome = run_seed(7, "random")
    outcome.tape.save(tmp_path / "tape.json")
    command = [sys.executable, "-m", "kernel.testing", "replay", str(tmp_path / "tape.json")]
    digests = {
        json.loads(
            subprocess.run(
                [*command, "--json"],
                env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                check=False,
            ).stdout
        )["digest"]
        for salt in ("1", "2")
    }

    assert len(digests) == 1
