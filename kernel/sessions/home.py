"""What all sessions of an engine have in common: one object, so that each of them stays small."""

import itertools
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs

from kernel.actors.actor import System
from kernel.actors.door import Door
from kernel.ids import SessionId
from kernel.probe import Probe
from kernel.sessions.active_turn import SessionLimits
from kernel.sessions.dormant_sessions import DormantSessions
from kernel.sessions.image_shelf import ImageShelf
from kernel.sessions.turn_records import SessionCounters
from ownership import Ledger

__all__ = ["Residents", "SessionHome"]


class Residents(Protocol):
    """Who decides which sessions stay in memory."""

    @property
    def is_crowded(self) -> bool:
        """Whether dormant sessions wait to come in, or are being read."""
        ...

    def rests(self, session_id: SessionId, /) -> None:
        """It has come to rest, and all that it has is kept."""
        ...

    def stirs(self, session_id: SessionId, /) -> None:
        """It is in use, or won't go."""
        ...


@attrs.frozen(eq=False)
class SessionHome:
    """Where sessions live."""

    system: System
    ledger: Ledger
    limits: SessionLimits
    door: Door
    counters: SessionCounters
    probe: Probe
    on_end: Callable[[SessionId], None]
    """Told once of each session that has closed, died or gone dormant."""
    residents: Residents | None = None
    """``None``: there is no store, and sessions end with the engine."""
    numbers: Iterator[int] = attrs.field(factory=itertools.count)
    """Of what sessions ask of the store."""
    dormant: DormantSessions | None = None
    """Told of each session that goes dormant what is to be remembered of it."""
    shelf: ImageShelf = attrs.field(factory=ImageShelf)
    """Where the images count that sessions keep."""
