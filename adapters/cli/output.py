"""What the commands share: JSON for programs, plain lines for pipes, errors as one line."""

import json
from typing import Any, cast

import attrs
import click
from rich.console import Console

from kernel import TenureError

__all__ = ["ErrorsAsMessages", "counted", "error_console", "shown", "write_json"]


class ErrorsAsMessages(click.Group):
    """A command group whose subcommands may raise our errors: one line, exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand.

        Raises:
            click.ClickException: in place of a :class:`kernel.TenureError`, with its message.
        """
        try:
            return super().invoke(ctx)
        except TenureError as error:
            raise click.ClickException(str(error)) from error
        except BaseExceptionGroup as group:
            leaf = _first_leaf(group)
            if isinstance(leaf, TenureError):
                raise click.ClickException(str(leaf)) from group
            raise


def write_json(value: object) -> None:
    """Print one JSON object on a line of its own; attrs objects become objects."""
    plain = attrs.asdict(cast("Any", value)) if attrs.has(type(value)) else value
    click.echo(json.dumps(plain, ensure_ascii=False))


def shown(name: str) -> str:
    """A name that anyone may have given, without what would move a terminal's cursor or text."""
    return name if name.isprintable() else repr(name)


def counted(count: int, what: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def error_console() -> Console:
    """Where progress goes, so that standard output holds results only."""
    return Console(stderr=True)


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
