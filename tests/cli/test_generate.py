"""``tenure generate``: one prompt streamed, many at once, errors in one line."""

import json
from pathlib import Path

from click.testing import CliRunner

from adapters.cli import main

FAKE = ["--device", "fake", "--model", "fake", "--max-tokens", "8", "--seed", "1"]


def test_one_prompt_is_streamed_after_itself() -> None:
    """The reader sees a text that goes on."""
    result = CliRunner().invoke(main, ["generate", "Once upon a time", *FAKE])

    assert result.exit_code == 0
    assert result.stdout.startswith("Once upon a time")
    assert len(result.stdout) > len("Once upon a time\n")


def test_many_prompts_come_back_in_their_order() -> None:
    """Which of them ended first is nobody's business."""
    result = CliRunner().invoke(main, ["generate", "a", "b", "c", *FAKE])

    assert result.exit_code == 0
    assert [line[:5] for line in result.stdout.splitlines() if line.startswith("[")] == [
        "[0] a",
        "[1] b",
        "[2] c",
    ]


def test_a_file_holds_one_prompt_a_line(tmp_path: Path) -> None:
    """Empty lines are no prompts."""
    path = tmp_path / "prompts.txt"
    path.write_text("one\n\ntwo\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["generate", "--json", "-f", str(path), *FAKE])
    records = [json.loads(line) for line in result.stdout.splitlines()]

    assert [record["prompt"] for record in records] == ["one", "two"]
    assert all(record["completion_tokens"] == len(record["token_ids"]) for record in records)


def test_a_prompt_that_fails_costs_the_others_nothing() -> None:
    """Hours of generating must not be lost to one line that is too long."""
    options = ["--json", "--num-pages", "2", *FAKE]
    result = CliRunner().invoke(main, ["generate", "a", "b" * 100, "c", *options])
    records = [json.loads(line) for line in result.stdout.splitlines()]

    assert result.exit_code == 1
    assert ["text" in record for record in records] == [True, False, True]
    assert records[1]["error"]["type"] == "PromptTooLong"
    assert "[1] PromptTooLong" in result.stderr


def test_a_file_that_is_no_text_is_a_usage_error(tmp_path: Path) -> None:
    """One line, as for any other argument that can't be used."""
    path = tmp_path / "prompts.txt"
    path.write_bytes(b"caf\xe9\n")
    result = CliRunner().invoke(main, ["generate", "-f", str(path), *FAKE])

    assert result.exit_code == 2
    assert "isn't UTF-8 text" in result.stderr


def test_the_same_seed_gives_the_same_text() -> None:
    """Sampling is a function of the seed."""
    first, second = (CliRunner().invoke(main, ["generate", "--json", "x", *FAKE]) for _ in "12")

    assert first.stdout == second.stdout


def test_no_prompt_is_a_usage_error() -> None:
    """Exit code 2, as every command line has it."""
    assert CliRunner().invoke(main, ["generate", *FAKE]).exit_code == 2


def test_a_refused_parameter_is_one_line_and_exit_code_1() -> None:
    """Nobody wants to read a traceback about a typo."""
    result = CliRunner().invoke(main, ["generate", "x", *FAKE, "--top-p", "0"])

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "top_p" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_model_that_is_none_is_one_line_and_exit_code_1() -> None:
    """The error comes out of the engine's task group, and is unwrapped."""
    result = CliRunner().invoke(main, ["generate", "x", "--device", "fake", "--model", "nowhere"])

    assert result.exit_code == 1
    assert "nowhere" in result.stderr


def test_every_sampling_parameter_has_an_option() -> None:
    """What a library's caller can ask for, a shell's user can, too."""
    options = [
        *("--min-p", "0.1", "--typical-p", "0.9", "--presence-penalty", "0.5"),
        *("--frequency-penalty", "-0.5", "--repetition-penalty", "1.1", "--min-tokens", "2"),
        *("--logit-bias", "17=-2.5", "--logit-bias", "18=1", "--bad-word", "x", "--bad-word", "y"),
        *("--allowed-token-id", "300", "--allowed-token-id", "301", "--stop-token-id", "5"),
        "--ignore-eos",
    ]
    result = CliRunner().invoke(main, ["generate", "a", "--json", *options, *FAKE])

    assert result.exit_code == 0, result.stderr
    assert {*json.loads(result.stdout)["token_ids"]} == {300, 301}


def test_log_probabilities_are_printed_with_json() -> None:
    """By token id, with ranks; the prompt's first token has none."""
    asked = ["--logprobs", "2", "--prompt-logprobs", "1"]
    result = CliRunner().invoke(main, ["generate", "abc", "--json", *asked, *FAKE])
    record = json.loads(result.stdout)

    assert len(record["logprobs"]) == len(record["token_ids"])
    for token, told in zip(record["token_ids"], record["logprobs"], strict=True):
        assert {"logprob", "rank"} == told[str(token)].keys()
    assert record["prompt_token_ids"] == [97, 98, 99]
    assert record["prompt_logprobs"][0] is None
    assert "98" in record["prompt_logprobs"][1]

    without = CliRunner().invoke(main, ["generate", "abc", *asked, *FAKE])
    assert without.exit_code == 2
    assert "--json" in without.stderr


def test_a_bias_that_is_none_is_a_usage_error() -> None:
    """It names the form."""
    result = CliRunner().invoke(main, ["generate", "a", "--logit-bias", "17", *FAKE])

    assert result.exit_code == 2
    assert "17=-2.5" in result.stderr


def test_special_tokens_are_shown_when_asked_for() -> None:
    """The fake model's last id ends a text."""
    forced = ["--allowed-token-id", "999", "--ignore-eos", "--max-tokens", "2"]
    plain = CliRunner().invoke(main, ["generate", "a", "--json", *FAKE, *forced])
    shown = CliRunner().invoke(
        main, ["generate", "a", "--json", "--special-tokens", *FAKE, *forced]
    )

    assert json.loads(plain.stdout)["text"] == ""
    assert json.loads(shown.stdout)["text"] == "<|999|><|999|>"
