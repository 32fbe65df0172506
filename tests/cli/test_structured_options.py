"""``tenure generate`` with a form of output: from the command line or from a file."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from adapters.cli import main
from adapters.models.directory import model_path

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
)


def generate(*options: str) -> Result:
    small = ("--num-pages", "64", "--num-slots", "4", "--temperature", "0", "--max-tokens", "60")
    return CliRunner().invoke(main, ["generate", "--json", "Once", *small, *options])


def text_of(result: Result) -> str:
    assert result.exit_code == 0, result.stderr
    return str(json.loads(result.stdout)["text"])


def test_a_schema_may_be_typed_or_lie_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(SCHEMA, encoding="utf-8")

    typed, read = (
        text_of(generate("--json-schema", SCHEMA)),
        text_of(generate("--json-schema", str(path))),
    )

    assert typed == read
    assert json.loads(typed)["n"] in range(100)


@pytest.mark.parametrize(
    ("options", "expression"),
    [
        (("--regex", "[0-9]{2}"), "[0-9]{2}"),
        (("--choice", "red", "--choice", "green"), "red|green"),
        (("--grammar", 'start: "a" | "b"'), "[ab]"),
    ],
)
def test_other_forms_are_typed(options: tuple[str, ...], expression: str) -> None:
    assert re.fullmatch(expression, text_of(generate(*options)))


def test_a_grammar_may_lie_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "grammar.gbnf"
    path.write_text('root ::= "a" | "b"\n', encoding="utf-8")

    assert text_of(generate("--grammar", str(path))) in "ab"


def test_a_file_that_is_no_text_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "grammar"
    path.write_bytes(b"\xff")

    result = generate("--grammar", str(path))

    assert result.exit_code == 2
    assert "can't be read" in result.stderr


def test_two_forms_are_refused_before_the_model_is_opened() -> None:
    result = generate("--regex", "a", "--json-object", "--model", "nowhere")

    assert result.exit_code == 1
    assert "exactly one of" in result.stderr


def test_a_form_that_cannot_be_compiled_is_one_line() -> None:
    result = CliRunner().invoke(main, ["generate", "Once", "--regex", "["])

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: structured_outputs.regex='[' is refused")


def test_parameters_that_are_not_given_are_the_models_own(tmp_path: Path) -> None:
    for file in model_path("bundled").glob("*.*"):
        (tmp_path / file.name).symlink_to(file)
    defaults = {"do_sample": False, "max_new_tokens": 5}
    (tmp_path / "generation_config.json").write_text(json.dumps(defaults))

    def tokens(*options: str) -> list[int]:
        sizes = ("--num-pages", "64", "--num-slots", "4")
        asked = ["generate", "--json", "Once", *sizes, *options]
        result = CliRunner().invoke(main, asked)
        assert result.exit_code == 0, result.stderr
        return list(json.loads(result.stdout)["token_ids"])

    greedy = tokens("--temperature", "0", "--max-tokens", "7")
    assert tokens("--model", str(tmp_path)) == greedy[:5]
    assert tokens("--model", str(tmp_path), "--max-tokens", "7") == greedy
