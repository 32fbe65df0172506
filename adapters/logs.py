"""Writes the events of engines to a JSON-lines file, whatever the application does with structlog.

The logger is built by hand from structlog's parts. ``structlog.configure`` is never called: it is
the application's, and a library that called it would change every log line of its host.
"""

from collections.abc import Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

__all__ = ["event_logger", "open_event_log"]

Watcher = Callable[[str, Mapping[str, object]], None]
"""Is shown each event's name and fields as it is written; must not keep or change the mapping."""


@contextmanager
def open_event_log(path: Path, *, watch: Watcher | None = None) -> Generator[FilteringBoundLogger]:
    """Append events to a file, one JSON object a line; the file is closed at the end.

    Args:
        path: the log; ``tenure trace audit`` reads it.
        watch: is shown each event, for a live view.

    Raises:
        OSError: the file can't be written.
    """
    # Buffered by line, so that a log holds every whole event even when its process is killed.
    with path.open("a", encoding="utf-8", buffering=1) as file:
        yield event_logger(file, watch=watch)


def event_logger(file: TextIO, *, watch: Watcher | None = None) -> FilteringBoundLogger:
    """A structlog logger that writes JSON lines to an open text file."""
    processors: list[Processor] = [] if watch is None else [_showing(watch)]
    processors.append(structlog.processors.JSONRenderer(separators=(",", ":")))
    logger = structlog.wrap_logger(
        _LineWriter(file),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return cast("FilteringBoundLogger", logger.bind())


class _LineWriter:
    """The end of the chain; structlog's own WriteLogger flushes each line twice."""

    def __init__(self, file: TextIO) -> None:
        self._write = file.write

    def msg(self, message: str) -> None:
        self._write(message + "\n")

    info = warning = error = critical = msg


def _showing(watch: Watcher) -> Processor:
    def show(
        _logger: object, _method: str, fields: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        watch(str(fields.get("event", "")), fields)
        return fields

    return show
