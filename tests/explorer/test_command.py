"""``python -m kernel.testing explore``: what a person reads, what a program reads, exit codes."""

import json
from argparse import ArgumentParser
from pathlib import Path

import attrs
import pytest

from kernel.requests.output_buffer import TurnOutput
from kernel.testing.explorer import World
from kernel.testing.explorer.command import add_commands, as_json, find_worlds
from kernel.testing.explorer.large_worlds import LARGE
from kernel.testing.explorer.search import explore
from kernel.testing.explorer.worlds import CI
from tests.explorer.small_worlds import ONE_TURN

OWN_WORLD = "tests.explorer.small_worlds:ONE_TURN"


def silent(_self: object, _end: object) -> None:
    """In place of the end that a caller is told."""


def run(*arguments: str) -> int:
    parser = ArgumentParser()
    add_commands(parser.add_subparsers())
    given = parser.parse_args(["explore", *arguments])
    code: int = given.run(given)
    return code


def test_a_world_of_ones_own_is_explored(capsys: pytest.CaptureFixture[str]) -> None:
    """A user's configuration is proven by the same command."""
    code = run("--world", OWN_WORLD)

    assert code == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("one: 14 states, ")
    assert last.endswith("failed 0")


def test_the_report_for_a_program_has_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """Other tools stand on these names."""
    code = run("--world", OWN_WORLD, "--json")

    report = json.loads(capsys.readouterr().out)
    assert code == 0
    assert report["states"] == 14
    assert report.keys() >= {
        *("states", "transitions", "seconds", "depth", "failed", "sometimes", "worlds"),
        *("failures", "trace_length"),
    }
    (world,) = report["worlds"]
    assert world["world"] == "one"
    assert world["complete"]


def test_a_failure_is_told_with_its_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line an event, numbered, from the root."""
    monkeypatch.setattr(TurnOutput, "finish", silent)

    code = run("--world", OWN_WORLD)

    told = capsys.readouterr().out
    assert code == 1
    assert "one: a log is what was told: session:a has [1, 2, " in told
    assert "    1 the caller: start a" in told


def test_progress_goes_to_the_other_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """What a program reads stays what it is."""
    run("--world", OWN_WORLD, "--json", "--progress")

    told = capsys.readouterr()
    assert "one: 2 states" in told.err
    assert json.loads(told.out)["failed"] == 0


def test_several_processes_come_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """One world each; the figures are added up."""
    code = run("--world", OWN_WORLD, "--json", "--jobs", "2")

    assert code == 0
    assert json.loads(capsys.readouterr().out)["states"] == 14


@pytest.mark.parametrize("name", ["nowhere", "tests.explorer.small_worlds:engine", "no.such:world"])
def test_a_world_that_is_not_there_is_a_wrong_argument(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and nothing on stdout."""
    assert run("--world", name) == 2

    told = capsys.readouterr()
    assert "no world" in told.err
    assert told.out == ""


def test_the_list_names_every_world(capsys: pytest.CaptureFixture[str]) -> None:
    """With one line on what it is about."""
    assert run("--list") == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [world.name for world in LARGE]


def test_names_stand_for_sets_of_worlds() -> None:
    """``ci`` is what every run of the suite walks, ``all`` takes minutes."""
    assert find_worlds("ci") == list(CI)
    assert find_worlds("all") == list(LARGE)
    assert [world.name for world in find_worlds("pair-1,pages")] == ["pair-1", "pages"]


def test_what_was_not_seen_does_not_count_in_a_run_that_ends_early() -> None:
    """It ends at the first failure, so it can't have seen everything."""
    world: World = attrs.evolve(ONE_TURN, expects=("never",))
    found = explore(world)

    assert as_json([found], 0.0)["failed"] == 1
    assert as_json([found], 0.0, is_early=True)["failed"] == 0


def test_the_command_is_part_of_the_testing_package() -> None:
    """``python -m kernel.testing`` knows it."""
    text = Path("kernel/testing/__main__.py").read_text(encoding="utf-8")

    assert "explorer.add_commands" in text
