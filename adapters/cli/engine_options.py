"""The options of every command that opens an engine."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from kernel import EngineConfig
from kernel.session_store import SyncPolicy

__all__ = ["config_from", "engine_options", "store_options"]

F = TypeVar("F", bound=Callable[..., Any])


def engine_options(command: F) -> F:
    """Add ``--model``, ``--device``, number types and the sizes of the pools to a command."""
    for option in (
        click.option(
            "--enable-prefix-caching/--disable-prefix-caching",
            default=None,
            help="Keep states at the beginnings of prompts for others that begin alike.",
        ),
        click.option("--progress/--no-progress", default=True, help="A bar while a model loads."),
        click.option("--memory", "memory_bytes", help="Memory of the engine, like 8GiB."),
        click.option(
            "--host-memory", "host_memory_bytes", help="For states at rest, like 16GiB; 0: none."
        ),
        click.option("--num-pages", type=click.IntRange(min=1), help="Key/value pages."),
        click.option("--num-slots", type=click.IntRange(min=1), help="Recurrent states kept."),
        click.option(
            "--state-dtype", default="auto", show_default=True, help="Of the recurrent state."
        ),
        click.option("--dtype", default="auto", show_default=True, help="Number type of weights."),
        click.option("--device", default="cpu", show_default=True, help="cpu, cuda or fake."),
        click.option(
            "--model", default="bundled", show_default=True, help="A name or a model directory."
        ),
    ):
        command = option(command)
    return command


def store_options(command: F) -> F:
    """Add ``--session-store`` and how it keeps sessions to a command that has some."""
    for option in (
        click.option("--session-store-bytes", help="Most bytes of kept states, like 20GiB."),
        click.option(
            "--session-store-sync",
            type=click.Choice(get_args(SyncPolicy)),
            help="What a kept turn survives: the loss of power (full), or the process (normal).",
        ),
        click.option(
            "--session-store",
            type=click.Path(file_okay=False),
            help="A directory that keeps sessions beyond this process.",
        ),
    ):
        command = option(command)
    return command


def config_from(options: dict[str, Any], **more: Any) -> EngineConfig:
    """The configuration that the options ask for; options that weren't given are left out.

    Raises:
        kernel.ValidationError: a value is out of range or contradicts another.
    """
    given = {name: value for name, value in {**options, **more}.items() if value is not None}
    given.pop("progress", None)  # the command line's own
    return EngineConfig.from_dict(given)
