"""The command line: what it prints, how it exits, and how it is configured."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from ownership.lint import Config, ConfigError
from ownership.lint.__main__ import main

WRONG = """\
from ownership import BatchOwned, BatchPort, Consume
def end(port: BatchPort, claim: Consume[BatchOwned]) -> None:
    port.rollback(claim)
    port.rollback(claim)
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG, encoding="utf-8")
    return path


def test_the_text_form_shows_the_use_the_move_and_the_way_out(
    wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this order, each with its line."""
    assert main([str(wrong), "--statistics"]) == 1

    said = capsys.readouterr()
    assert said.out == (
        f"{wrong}:4:19: OWN001 `claim` is used after it was moved\n"
        "    4 |     port.rollback(claim)\n"
        "      |                   ^^^^^\n"
        f"  note: moved here ({wrong}:3)\n"
        "    3 |     port.rollback(claim)\n"
        "      |                   ^^^^^\n"
        "  help: a handle is single-use: use it before the move, or use what the call gave back\n"
        "\n"
        "OWN001 1\n"
    )
    assert said.err == "1 findings in 1 files (4 lines)\n"


def test_json_is_one_object(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs to read."""
    assert main([str(wrong), "--json"]) == 1

    said = json.loads(capsys.readouterr().out)
    (finding,) = said["findings"]
    assert (finding["rule"], finding["line"], finding["note"]["line"]) == ("OWN001", 4, 3)
    assert (said["files"], said["lines"], said["statistics"]) == (1, 4, {"OWN001": 1})
    assert said["unreadable"] == []


def test_a_clean_file_exits_with_zero_and_an_unreadable_one_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hook needs no more than that."""
    (tmp_path / "fine.py").write_text("x = 1\n", encoding="utf-8")
    assert main([str(tmp_path)]) == 0
    (tmp_path / "broken.py").write_text("import ownership\n(", encoding="utf-8")
    assert main([str(tmp_path)]) == 2
    assert "broken.py" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["no such file"], ["{wrong}", "--config", "no such"]])
def test_a_usage_error_exits_with_two(wrong: Path, arguments: list[str]) -> None:
    """As argparse does."""
    with pytest.raises(SystemExit) as left:
        main([argument.format(wrong=wrong) for argument in arguments])

    assert left.value.code == 2


def test_the_module_can_be_run(wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m ownership.lint``."""
    monkeypatch.setattr(sys, "argv", ["lint", str(wrong)])
    monkeypatch.delitem(sys.modules, "ownership.lint.__main__")
    with pytest.raises(SystemExit) as left:
        runpy.run_module("ownership.lint", run_name="__main__")

    assert left.value.code == 1


def test_the_nearest_project_file_configures(tmp_path: Path) -> None:
    """At or above what is checked; a file of its own has the keys at its top."""
    assert Config.find(Path("/")) == Config()
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.tenure.lint]\nexclude = ["*.py"]\n', encoding="utf-8")
    (tmp_path / "below").mkdir()
    assert Config.find(tmp_path / "below").exclude == ("*.py",)
    own = tmp_path / "lint.toml"
    own.write_text('usable-after = ["a.B.c"]\n', encoding="utf-8")
    assert Config.load(own).usable_after == ("a.B.c",)


def test_a_configured_run_leaves_files_out(wrong: Path, tmp_path: Path) -> None:
    """``--config`` is read instead of the project's."""
    own = tmp_path / "lint.toml"
    own.write_text('exclude = ["*wrong*"]\n', encoding="utf-8")

    assert main([str(wrong), "--config", str(own)]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linaer = []", "unknown key 'linaer'"),
        ("linear = 3", "wants a list of strings"),
        ("linear = [3]", "wants a list of strings"),
        ("linear = [", "lint.toml"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    """A misspelt key would silently check nothing."""
    path = tmp_path / "lint.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=message):
        Config.load(path)
