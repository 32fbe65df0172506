"""``tenure plan``: a table for people, an object for programs, a refusal with numbers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from adapters.cli import main
from tests.models.tiny import make_directory


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


def test_the_table_has_what_each_takes_and_the_largest_turn() -> None:
    """Of the bundled model, whose slot is 424 KiB and whose page is 16 KiB."""
    result = run("--memory", "1GiB", "--max-num-seqs", "8", "--max-sessions", "40")

    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["weights", "3,213,328", "12.3", "MiB"] in lines
    assert ["slots", "424", "KiB", "48", "+", "1", "20.3", "MiB"] in lines
    assert ["pages", "of", "16", "tokens", "16", "KiB", "12,288", "+", "1", "192", "MiB"] in lines
    assert "largest turn: 4,096 tokens" in result.stdout
    assert "96 sequences" not in result.stdout
    assert "48 sequences of 2,048 tokens, of which 8 can run" in result.stdout


def test_the_table_tells_what_host_memory_holds_beside() -> None:
    """States at rest; nothing is shown where there is none."""
    result = run("--num-slots", "4", "--num-pages", "512", "--host-memory", "32MiB")
    lines = [line.split() for line in result.stdout.splitlines()]
    none = run("--host-memory", "0")

    assert result.exit_code == none.exit_code == 0, result.output
    assert ["slots", "in", "host", "memory", "424", "KiB", "13", "5.39", "MiB"] in lines
    assert ["pages", "in", "host", "memory", "16", "KiB", "1,703", "26.6", "MiB"] in lines
    assert "in host memory, at rest or waiting: 13 more" in result.stdout
    assert "host" not in none.stdout
    facts = json.loads(run("--host-memory", "32MiB", "--json").stdout)
    assert facts["host_bytes"] <= 32 << 20
    assert facts["host_bytes"] == (
        facts["host_slots"] * facts["slot_bytes"] + facts["host_pages"] * facts["page_bytes"]
    )


def test_the_json_form_is_one_object() -> None:
    result = run("--memory", "1GiB", "--max-num-seqs", "8", "--json", "--dtype", "bfloat16")
    facts = json.loads(result.stdout)

    assert facts["total_bytes"] <= 1 << 30
    assert facts["total_bytes"] == sum(
        facts[name] for name in ("weights_bytes", "step_bytes", "slots_bytes", "pages_bytes")
    )
    assert (facts["dtype"], facts["state_dtype"]) == ("bfloat16", "float32")
    assert facts["checked_weights"]


def test_a_configuration_alone_is_enough_and_that_is_said(tmp_path: Path) -> None:
    """Before a download of 160 GB."""
    directory = make_directory(tmp_path)
    (directory / "model.safetensors").unlink()
    (directory / "tokenizer.json").unlink()
    result = run(str(directory))

    assert result.exit_code == 0, result.output
    assert "from the configuration alone" in result.stdout
    assert "slots" in result.stdout
    assert "recurrent state" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--memory", "50MiB"), "Error: not enough memory: 0 B are left for slots and pages"),
        (("--memory", "much"), "Error: memory_bytes='much' is refused"),
        (("--host-memory", "9KiB"), "the least for one state is 440 KiB; use 0 for none"),
        (("--num-slots", "100000", "--num-pages", "9"), "100000 slots of 424 KiB and 9 pages"),
        (("no-such-model",), "neither in the package nor on disk"),
        (("--state-dtype", "int4"), "use auto, float32"),
    ],
)
def test_a_plan_that_can_not_be_is_one_line_and_exit_code_1(
    arguments: tuple[str, ...], told: str
) -> None:
    result = run(*arguments)

    assert result.exit_code == 1
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_counts_that_are_given_are_planned() -> None:
    facts = json.loads(run("--num-slots", "3", "--num-pages", "5", "--json").stdout)

    assert (facts["num_slots"], facts["num_pages"], facts["largest_turn"]) == (3, 5, 80)
