"""What a structured output must look like; checked here for its form alone.

Who understands schemas and grammars is an adapter: see
:class:`kernel.requests.logit_rules.TokenConstraint`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs

from kernel import checks
from kernel.errors import ValidationError

__all__ = ["StructuredOutputs", "structured_outputs"]


def _schema(value: str | Mapping[str, object] | bool | None) -> str | None:
    """A JSON schema as text; the order of its keys stays, since outputs follow it."""
    if value is None or isinstance(value, str):
        return value
    given = cast("object", value)  # whatever a JSON file held
    if not isinstance(given, Mapping | bool):
        why = "it must be a JSON schema: a mapping, or its text"
        raise ValidationError(parameter="structured_outputs.json", value=value, why=why)
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        why = f"it is no JSON: {error}"
        raise ValidationError(parameter="structured_outputs.json", value=value, why=why) from None


def _choice(value: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if value is None else checks.strings("structured_outputs.choice", value)


@attrs.frozen(kw_only=True)
class StructuredOutputs:
    """The form of an output: exactly one of the first five; names as in vLLM.

    Raises:
        ValidationError: none or several of the five are given, or one is empty.
    """

    json: str | None = attrs.field(default=None, converter=_schema)
    """A JSON schema, as a mapping or as its text."""
    regex: str | None = None
    """A regular expression for the whole output."""
    choice: tuple[str, ...] | None = attrs.field(default=None, converter=_choice)
    """One of these texts."""
    grammar: str | None = None
    """A context-free grammar, in the syntax of the library that serves it."""
    json_object: bool | None = None
    """``True``: any JSON object."""
    disable_any_whitespace: bool = False
    """JSON without any white space between its parts: fewer tokens to draw."""

    def __attrs_post_init__(self) -> None:
        given = [
            name
            for name in ("json", "regex", "choice", "grammar", "json_object")
            if getattr(self, name) not in (None, False)
        ]
        if len(given) != 1:
            raise ValidationError(
                parameter="structured_outputs",
                value=given,
                why="give exactly one of json, regex, choice, grammar, json_object",
            )
        for name in ("json", "regex", "grammar"):
            checks.name(f"structured_outputs.{name}", getattr(self, name))
        if self.choice == ():
            raise ValidationError(
                parameter="structured_outputs.choice", value=(), why="give at least one text"
            )
        if self.json_object is not None:
            checks.truth("structured_outputs.json_object", self.json_object)
        checks.truth("structured_outputs.disable_any_whitespace", self.disable_any_whitespace)
        if self.disable_any_whitespace and given[0] not in ("json", "json_object"):
            raise ValidationError(
                parameter="structured_outputs.disable_any_whitespace",
                value=True,
                why=f"it is about json and json_object, and {given[0]} is given; leave it out",
            )


def structured_outputs(
    value: StructuredOutputs | Mapping[str, object] | None,
) -> StructuredOutputs | None:
    """Read a value or a mapping of its fields (from JSON or a command line)."""
    if value is None or isinstance(value, StructuredOutputs):
        return value
    checks.instance("structured_outputs", value, cast("type", Mapping))
    checks.known_names(value, attrs.fields_dict(StructuredOutputs), of="StructuredOutputs")
    return StructuredOutputs(**cast("dict[str, Any]", dict(value)))
