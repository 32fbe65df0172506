"""The forms that a caller can ask for, as grammars of the library."""

import json
import re
from typing import Any, Final

from kernel.errors import ValidationError
from kernel.structured_outputs import StructuredOutputs

__all__ = ["FORMS", "form_of", "grammar_of"]

FORMS: Final = ("json", "regex", "choice", "grammar", "json_object")

_ANY_OBJECT = '{"type": "object"}'
_BLANKS = r" {1,2}|\r?\n[ \t]{0,32}"
"""White space between the parts of a JSON text, as people and printers write it: a space or two, or
a new line and its indentation. Bounded, because a model at a loss would go on with line breaks
until ``max_tokens``."""


def form_of(wanted: StructuredOutputs) -> tuple[str, object]:
    """Which form is asked for, and its value."""
    name = next(name for name in FORMS if getattr(wanted, name) not in (None, False))
    return name, getattr(wanted, name)


def grammar_of(wanted: StructuredOutputs, library: Any) -> str:
    """A grammar in the library's own notation; whether it holds, the matcher says.

    Raises:
        ValidationError: a schema that is no JSON, or a grammar in a notation that can't be read.
    """
    name, value = form_of(wanted)
    try:
        return str(_built(wanted, library.LLMatcher))
    except Exception as error:  # what the library raises has no type of its own
        raise ValidationError(
            parameter=f"structured_outputs.{name}", value=value, why=str(error)
        ) from error


def _built(wanted: StructuredOutputs, matcher: Any) -> object:
    if wanted.regex is not None:
        return matcher.grammar_from_regex(wanted.regex)
    if wanted.choice is not None:
        # An expression compiles three times faster than rules do, and its first mask 100 times.
        return matcher.grammar_from_regex("|".join(map(re.escape, wanted.choice)))
    if wanted.grammar is not None:
        return matcher.grammar_from_lark(_lark(wanted.grammar))
    schema = _ANY_OBJECT if wanted.json is None else _checked(wanted.json)
    if wanted.disable_any_whitespace:
        return matcher.grammar_from_json_schema(schema, {"whitespace_flexible": False})
    return matcher.grammar_from_json_schema(schema, {"whitespace_pattern": _BLANKS})


def _lark(text: str) -> str:
    """A grammar in Lark's notation; from GBNF (llama.cpp's, ``root ::= ...``) where it isn't."""
    if "::=" not in text:
        return text
    from llguidance.gbnf_to_lark import any_to_lark  # noqa: PLC0415 - an extra

    return any_to_lark(text)


def _checked(schema: str) -> str:
    """A schema as the library takes it; its words for what is none are hard to read."""
    parsed = json.loads(schema)
    if parsed is True:
        return "{}"
    if parsed is False:
        raise ValueError("no text has this form")
    if not isinstance(parsed, dict):
        raise ValueError("a JSON schema is an object or a boolean")
    return schema
