"""Where events go: to structlog, or nowhere at the price of one attribute test.

Each event is sealed. ``check`` is a checksum of what was written, and ``after`` says which event
came before it: its number, what it was about, and its checksum. So an audit of the log sees an
event that was changed, and can name one that is missing, although it is not there to be read.
"""

import json
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

__all__ = ["EventProbe", "NullProbe", "Probe"]

_ENDED_KEPT = 1024
"""Contexts of ended turns that are kept for late events."""

_canonical = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=str).encode


class Probe(Protocol):
    """Takes the events of the ledger and of the kernel."""

    @property
    def enabled(self) -> bool: ...

    def record(self, event: str, fields: Mapping[str, object], /) -> None: ...

    def bind_turn(self, turn: str, context: Mapping[str, object], /) -> None: ...

    def forget_turn(self, turn: str, /) -> None: ...


@final
class NullProbe:
    """Records nothing. Callers test ``enabled`` and build no event."""

    enabled = False

    def record(self, event: str, fields: Mapping[str, object], /) -> None:
        """Do nothing."""

    def bind_turn(self, turn: str, context: Mapping[str, object], /) -> None:
        """Do nothing."""

    def forget_turn(self, turn: str, /) -> None:
        """Do nothing."""


@final
class EventProbe:
    """Writes each event through a structlog logger, with the caller's contextvars of its turn.

    structlog's own configuration is not touched: the logger is the caller's, or a default one
    that follows the application's configuration.

    Args:
        logger: a structlog bound logger; one call of ``info(event, **fields)`` an event.
        engine: id that tells two engines in one log apart.
        clock: seconds, stamped as ``at``.
    """

    enabled = True

    def __init__(self, logger: Any, *, engine: str, clock: Callable[[], float]) -> None:
        self._log: Callable[..., Any] = logger.info
        self._engine = engine
        self._clock = clock
        self._contexts: dict[str, Mapping[str, object]] = {}
        self._ended: deque[str] = deque()
        self._written = 0
        self._after: tuple[int, str, int] | None = None
        self.lost = 0
        """Events that the logger refused with an error; an audit of the log sees the gap."""

    def record(self, event: str, fields: Mapping[str, object], /) -> None:
        """Write one event; the caller's context never overwrites a field of the schema."""
        turn = fields.get("turn")
        context = self._contexts.get(turn) if isinstance(turn, str) else None
        own = {"engine": self._engine, "at": round(self._clock(), 6), **fields}
        self._seal(event, own)
        if context:
            own = {**context, **own}
        try:
            self._log(event, **own)
        except Exception:
            # A full disk or a closed pipe must not end the turn whose claim has just moved.
            self.lost += 1

    def _seal(self, event: str, own: dict[str, object]) -> None:
        # A lost event counts as written: the next one then names what is missing.
        own["after"] = self._after
        check = own["check"] = zlib.crc32(f"{event} {_canonical(own)}".encode())
        self._after = (self._written, _subject(event, own), check)
        self._written += 1

    def bind_turn(self, turn: str, context: Mapping[str, object], /) -> None:
        """Let the events of a turn carry its caller's context."""
        if context:
            clean = {key: value for key, value in context.items() if key != "event"}
            self._contexts[turn] = clean

    def forget_turn(self, turn: str, /) -> None:
        """Drop the context of an ended turn, a little later: its claim may still be on the way."""
        if turn in self._contexts:
            self._ended.append(turn)
            if len(self._ended) > _ENDED_KEPT:
                self._contexts.pop(self._ended.popleft(), None)


def _subject(event: str, fields: Mapping[str, object]) -> str:
    """What the event is about, as an audit would name it."""
    for kind in ("claim", "lease", "turn", "actor"):
        if kind in fields:
            return f"{kind} {fields[kind]}"
    return event.partition(".")[0]
