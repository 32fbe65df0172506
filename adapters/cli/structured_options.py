"""The options of commands whose output may be asked to have a form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kernel import StructuredOutputs

__all__ = ["STRUCTURED_NAMES", "form_from", "structured_options"]

F = TypeVar("F", bound=Callable[..., Any])

STRUCTURED_NAMES = ("json_schema", "json_object", "regex", "choice", "grammar")


def structured_options(command: F) -> F:
    """Add the forms of output to a command; one of them may be given."""
    for option in (
        click.option(
            "--grammar",
            metavar="FILE|TEXT",
            help="Output follows this grammar (Lark, or GBNF: root ::= ...).",
        ),
        click.option(
            "--choice", multiple=True, metavar="TEXT", help="Output is one of these; repeat it."
        ),
        click.option("--regex", metavar="TEXT", help="Output matches this expression as a whole."),
        click.option("--json-object", is_flag=True, help="Output is a JSON object."),
        click.option(
            "--json-schema",
            metavar="FILE|TEXT",
            help="Output is JSON that this schema describes.",
        ),
    ):
        command = option(command)
    return command


def form_from(options: dict[str, Any]) -> StructuredOutputs | None:
    """The form that the options ask for, if any.

    Raises:
        kernel.ValidationError: several are given, or one is empty.
        click.UsageError: a file can't be read.
    """
    if not any(options[name] for name in STRUCTURED_NAMES):
        return None
    return StructuredOutputs(
        json=_text_or_file(options["json_schema"]),
        json_object=options["json_object"] or None,
        regex=options["regex"],
        choice=options["choice"] or None,
        grammar=_text_or_file(options["grammar"]),
    )


def _text_or_file(given: str | None) -> str | None:
    """What a file holds, where the option names one; else what was typed."""
    if given is None or "\n" in given or given.lstrip().startswith("{"):
        return given
    try:
        is_file = Path(given).is_file()
    except (OSError, ValueError):  # longer than a name may be, say
        return given
    try:
        return Path(given).read_text(encoding="utf-8") if is_file else given
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{given} can't be read: {error}") from error
