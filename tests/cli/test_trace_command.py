"""``tenure trace audit``: the verdict in words, as an object, and in the exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapters.cli import main
from tests.cli.log_writer import LogWriter


@pytest.fixture
def sound() -> LogWriter:
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.release("rolled_back", 0, 1, [10])
    log.write("engine.closed")
    return log


def saved(log: LogWriter, folder: Path) -> str:
    path = folder / "events.jsonl"
    path.write_text("\n".join([*log.lines, "not an event"]) + "\n", encoding="utf-8")
    return str(path)


def test_a_sound_log_is_conserved_and_exits_with_0(sound: LogWriter, tmp_path: Path) -> None:
    """What a nightly job asserts."""
    result = CliRunner().invoke(main, ["trace", "audit", saved(sound, tmp_path)])

    assert result.exit_code == 0
    assert "1 reserved, 0 committed, 1 rolled back" in result.stdout
    assert result.stdout.endswith("conserved\n")


def test_a_double_free_is_shown_with_its_event_and_exits_with_1(
    sound: LogWriter, tmp_path: Path
) -> None:
    """Whoever reads the verdict wants to find the place in the log."""
    sound.release("rolled_back", 0, 1)
    result = CliRunner().invoke(main, ["trace", "audit", saved(sound, tmp_path)])

    assert result.exit_code == 1
    assert "seq 3: double free: slot 1 was given back by claim 0" in result.stdout
    assert result.stdout.endswith("NOT CONSERVED\n")


def test_the_json_form_is_one_object_with_every_engine(sound: LogWriter, tmp_path: Path) -> None:
    """A program reads it, problems included."""
    sound.release("rolled_back", 0, 1)
    result = CliRunner().invoke(main, ["trace", "audit", "--json", saved(sound, tmp_path)])
    verdict = json.loads(result.stdout)

    assert result.exit_code == 1
    assert (verdict["conserved"], verdict["double_frees"], verdict["skipped_lines"]) == (
        False,
        1,
        1,
    )
    assert verdict["engines"][0]["problems"][1]["kind"] == "double free"


def test_a_log_that_ends_early_says_so(sound: LogWriter, tmp_path: Path) -> None:
    """Nothing has leaked yet, and nobody should take that for the verdict on a whole run."""
    whole = CliRunner().invoke(main, ["trace", "audit", saved(sound, tmp_path)])
    assert json.loads(sound.lines.pop())["event"] == "engine.closed"
    cut = CliRunner().invoke(main, ["trace", "audit", saved(sound, tmp_path)])

    assert "still open" not in whole.stdout
    assert "still open where the log ends" in cut.stdout


def test_a_log_without_a_ledger_says_so(tmp_path: Path) -> None:
    """The usual reason is that events were switched off, so the message asks."""
    path = tmp_path / "empty.log"
    path.write_text("", encoding="utf-8")
    result = CliRunner().invoke(main, ["trace", "audit", str(path)])

    assert result.exit_code == 1
    assert "log_events" in result.stdout
