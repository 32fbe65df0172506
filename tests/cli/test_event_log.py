"""``--log FILE`` of the commands that open an engine: what anybody may audit afterwards."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapters.cli import main

FAKE = ("--device", "fake", "--model", "fake", "--max-tokens", "8", "--seed", "1")
COMMANDS = {
    "a chat": (["chat", *FAKE], "hello\nagain\n/undo\n/quit\n"),
    "a prompt that is streamed": (["generate", "hello", *FAKE], ""),
    "prompts at once": (["generate", "--json", "a", "b", *FAKE], ""),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_log_of_a_command_is_kept_and_audited(name: str, tmp_path: Path) -> None:
    """Of this run alone: an earlier one at the same place is gone."""
    command, typed = COMMANDS[name]
    log = tmp_path / "events.jsonl"
    log.write_text("left from an earlier run\n", encoding="utf-8")
    plain = CliRunner().invoke(main, command, input=typed)
    ran = CliRunner().invoke(main, [*command, "--log", str(log)], input=typed)
    audited = CliRunner().invoke(main, ["trace", "audit", "--json", str(log)])
    events = [json.loads(line)["event"] for line in log.read_text(encoding="utf-8").splitlines()]

    assert (ran.exit_code, audited.exit_code) == (0, 0)
    assert ran.stdout == plain.stdout
    assert json.loads(audited.stdout)["skipped_lines"] == 0
    assert {"turn.ended", "lease.landed", "engine.closed"} <= set(events)


@pytest.mark.parametrize("command", [("chat",), ("generate", "hello"), ("demo",)])
@pytest.mark.parametrize("place", ["nowhere/events.jsonl", "a-file/events.jsonl"])
def test_a_log_that_cannot_be_written_is_a_usage_error(
    command: Sequence[str], place: str, tmp_path: Path
) -> None:
    """Told before a model is loaded."""
    (tmp_path / "a-file").touch()
    result = CliRunner().invoke(main, [*command, "--log", str(tmp_path / place)])

    assert result.exit_code == 2
    assert "is no directory" in result.stderr


def test_a_log_that_the_system_refuses_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reason in one line, and no traceback."""

    def refuse(path: Path, *_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    result = CliRunner().invoke(main, ["chat", *FAKE, "--log", str(tmp_path / "events.jsonl")])

    assert result.exit_code == 2
    assert "events.jsonl can't be written: Permission denied" in result.stderr
