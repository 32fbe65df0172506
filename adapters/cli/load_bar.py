"""The bar that a terminal shows while a large model is loaded."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from adapters.cli.output import error_console
from kernel import LoadProgress
from kernel.loading import OnProgress, no_progress

__all__ = ["load_bar"]

_LEAST_BYTES = 64 << 20
"""A smaller model is loaded before a bar can be read."""


@contextmanager
def load_bar(shown: bool = True, console: Console | None = None) -> Generator[OnProgress]:
    """What ``Engine.open`` is given to draw a bar on standard error; gone when all is loaded.

    Args:
        shown: false draws nothing, and so does a console that is no terminal.
        console: where to draw.
    """
    console = console or error_console()
    if not shown or not console.is_terminal:
        yield no_progress
        return
    columns = ("loading", BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("loading", total=None)

    def tell(now: LoadProgress) -> None:
        if now.total_bytes < _LEAST_BYTES:
            return
        bar.start()
        bar.update(task, total=now.total_bytes, completed=now.done_bytes)
        if now.done_bytes == now.total_bytes and not now.tensor:
            bar.stop()

    try:
        yield tell
    finally:
        bar.stop()
