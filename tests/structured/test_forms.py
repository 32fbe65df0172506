"""Each kind of form takes the texts that have it and no others, and says what it can't be."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import StructuredOutputs, ValidationError
from tests.structured.forms import PERSON, constraint_of, takes


@pytest.mark.parametrize(
    ("form", "text", "has_it"),
    [
        (StructuredOutputs(regex=r"\d{2}:\d{2}"), "12:34", True),
        (StructuredOutputs(regex=r"\d{2}:\d{2}"), "12:345", False),
        (StructuredOutputs(regex="^ab$"), "ab", True),
        (StructuredOutputs(regex="a/b\nc"), "a/b\nc", True),
        (StructuredOutputs(regex="(?i)yes"), "YeS", True),
        (StructuredOutputs(regex="."), "\n", False),
        (StructuredOutputs(choice=["a.b", "c"]), "a.b", True),
        (StructuredOutputs(choice=["a.b", "c"]), "axb", False),
        (StructuredOutputs(json_object=True), '{"a": [1, {"b": null}]}', True),
        (StructuredOutputs(json_object=True), "[1]", False),
        (StructuredOutputs(json=True), "[1]", True),
        (StructuredOutputs(json={}), '"text"', True),
        (StructuredOutputs(json=PERSON), '{"name":"Ada","age":36,"tags":["red"]}', True),
        (StructuredOutputs(json=PERSON), '{"name":"Ada","age":121,"tags":[]}', False),
        (StructuredOutputs(json=PERSON), '{"age":36,"name":"Ada","tags":[]}', False),
        (StructuredOutputs(json=PERSON), '{"name":"Ada","age":36}', False),
        (StructuredOutputs(grammar='start: "a" b+\nb: "b" | "c"'), "abcb", True),
        (StructuredOutputs(grammar='start: "a" b+\nb: "b" | "c"'), "a", False),
        (StructuredOutputs(grammar='root ::= "a" [b-d]*'), "abcd", True),
        (StructuredOutputs(grammar='root ::= "a" [b-d]*'), "e", False),
    ],
)
def test_a_form_takes_the_texts_that_have_it(
    form: StructuredOutputs, text: str, has_it: bool
) -> None:
    assert takes(form, text) is has_it


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4, unique=True))
def test_any_texts_can_be_a_choice(texts: list[str]) -> None:
    """Signs of regular expressions, line breaks, and what no single token holds."""
    form = StructuredOutputs(choice=texts)

    assert all(takes(form, text) for text in texts)
    assert not takes(form, texts[0] + "!") or texts[0] + "!" in texts


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json_may_be_printed_as_printers_do(indent: int | str | None) -> None:
    value: dict[str, object] = {"a": [1, {"b": None}], "c": "d"}

    assert takes(StructuredOutputs(json_object=True), json.dumps(value, indent=indent))
    assert takes(StructuredOutputs(json_object=True), json.dumps(value, separators=(",", ":")))


@pytest.mark.parametrize("blank", ["   ", "\n\n", "\n" + 33 * " "])
def test_white_space_between_parts_is_bounded(blank: str) -> None:
    """A model at a loss would go on with it until max_tokens."""
    assert not takes(StructuredOutputs(json_object=True), '{"a":' + blank + "1}")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (StructuredOutputs(regex="[0-9"), "unclosed character class"),
        (StructuredOutputs(regex="(?=a)b"), "look-ahead and look-behind, is not supported"),
        (StructuredOutputs(regex=r"(a)\1"), "backreferences are not supported"),
        (StructuredOutputs(regex=r"[^\s\S]"), "no text has this form"),
        (StructuredOutputs(json="{"), "Expecting property name"),
        (StructuredOutputs(json="[1]"), "a JSON schema is an object or a boolean"),
        (StructuredOutputs(json=False), "no text has this form"),
        (StructuredOutputs(json={"type": "person"}), "Invalid type: person"),
        (StructuredOutputs(json={"not": {}}), 'Unimplemented keys: ["not"]'),
        (StructuredOutputs(json={"type": "string", "format": "x"}), "Unknown format: x"),
        (StructuredOutputs(json={"$ref": "https://example.org/"}), "does not fetch resources"),
        (
            StructuredOutputs(json={"allOf": [{"type": "string"}, {"type": "null"}]}),
            "Unsatisfiable schema",
        ),
        (StructuredOutputs(grammar="start: person"), 'unknown name: "person"'),
        (StructuredOutputs(grammar="hello"), "Expected token ':'"),
        (StructuredOutputs(grammar="root ::= person"), "Rule 'person' not found"),
        (StructuredOutputs(grammar='root ::= "a'), "Unexpected end of input"),
    ],
)
def test_a_form_that_cannot_be_compiled_is_refused_and_named(
    form: StructuredOutputs, why: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(why)) as caught:
        constraint_of(form)

    assert caught.value.parameter.startswith("structured_outputs.")
    assert getattr(form, caught.value.parameter.removeprefix("structured_outputs.")) is not None


def test_alternatives_that_exclude_each_other_are_served() -> None:
    """What pydantic writes for tagged unions."""
    kinds = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}},
            "required": ["kind"],
            "additionalProperties": False,
        }
        for kind in ("cat", "dog")
    ]
    form = StructuredOutputs(json={"oneOf": kinds})

    assert takes(form, '{"kind":"dog"}')
    assert not takes(form, '{"kind":"cow"}')
    with pytest.raises(ValidationError, match="oneOf constraints are not supported"):
        constraint_of(StructuredOutputs(json={"oneOf": [{"type": "integer"}, {"type": "number"}]}))


def test_a_form_of_the_empty_text_needs_an_end_of_sequence() -> None:
    form = StructuredOutputs(regex="()")

    assert takes(form, "")
    with pytest.raises(ValidationError, match="only the empty text has it"):
        constraint_of(form, stop_ids=())


def test_json_without_white_space_takes_none() -> None:
    form = StructuredOutputs(json_object=True, disable_any_whitespace=True)

    assert takes(form, '{"a":[1,{"b":"c d"}]}')
    assert not takes(form, '{"a": 1}')


def test_white_space_is_nothing_to_say_of_other_forms() -> None:
    with pytest.raises(ValidationError, match="disable_any_whitespace=True is refused"):
        StructuredOutputs(regex="a", disable_any_whitespace=True)
