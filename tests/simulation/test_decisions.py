"""The one source of decisions, and the tape that keeps them."""

from pathlib import Path

import pytest

from kernel.testing.simulation import Failure, Tape
from kernel.testing.simulation.decisions import Decisions


def draw(decisions: Decisions) -> list[int]:
    plan, other = decisions.track("plan"), decisions.track("other")
    return [plan.draw(10), other.draw(3), plan.weighted((1, 5)), plan.draw(1), other.draw(100)]


def test_a_replay_of_what_was_made_draws_the_same() -> None:
    """Otherwise a tape would say nothing about the run that it is of."""
    first = Decisions(7)
    drawn = draw(first)

    assert draw(Decisions(8, first.made)) == drawn


def test_cutting_one_track_leaves_the_others_alone() -> None:
    """So a shrinker can blank the order of tasks and keep the plan."""
    first = Decisions(7)
    drawn = draw(first)
    cut = draw(Decisions(7, {**first.made, "other": []}))

    assert [cut[0], cut[2]] == [drawn[0], drawn[2]]
    assert (cut[1], cut[4]) == (0, 0)


def test_a_decision_beyond_its_choices_is_the_last_of_them() -> None:
    """A shrunk tape may be read where fewer choices are left."""
    assert Decisions(0, {"plan": [9]}).track("plan").draw(4) == 3


def test_a_tape_is_read_as_it_was_written(tmp_path: Path) -> None:
    """It is sent to whoever mends the fault."""
    tape = Tape(
        seed=3,
        strategy="pct",
        backend="trio",
        tracks={"plan": [1, 2], "tasks": []},
        failure=Failure("tokens", "wrong"),
    )
    tape.save(tmp_path / "tape.json")

    assert Tape.load(tmp_path / "tape.json") == tape


def test_what_is_no_tape_is_refused(tmp_path: Path) -> None:
    """A file of another format must not be replayed as something else."""
    path = tmp_path / "tape.json"
    path.write_text('{"format": 99}', encoding="utf-8")

    with pytest.raises(ValueError, match="no tape of format"):
        Tape.load(path)
