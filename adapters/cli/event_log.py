"""``--log FILE``: the event log of a command that opens an engine, for ``tenure trace``."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from structlog.typing import FilteringBoundLogger

from adapters.logs import open_event_log

__all__ = ["event_log", "log_option", "make_way"]

F = TypeVar("F", bound=Callable[..., Any])


def log_option(command: F) -> F:
    """Add ``--log`` to a command, as ``log: Path | None``."""
    option = click.option(
        "--log",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the event log there, anew; tenure trace audit and view read it.",
    )
    return option(command)


def make_way(log: Path) -> None:
    """Remove the log of an earlier run, which would be taken for the beginning of this one.

    Raises:
        click.UsageError: nothing can be written there.
    """
    if not log.parent.is_dir():
        raise click.UsageError(f"--log: {log.parent} is no directory")
    try:
        log.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(log, error) from error


@contextmanager
def event_log(log: Path | None) -> Generator[FilteringBoundLogger | None]:
    """The logger to open an engine with; ``None`` where no log was asked for.

    Raises:
        click.UsageError: nothing can be written there; told before a model is loaded.
    """
    if log is None:
        yield None
        return
    make_way(log)
    with ExitStack() as stack:
        try:
            logger = stack.enter_context(open_event_log(log))
        except OSError as error:
            raise _unusable(log, error) from error
        yield logger


def _unusable(log: Path, error: OSError) -> click.UsageError:
    return click.UsageError(f"--log: {log} can't be written: {error.strerror}")
