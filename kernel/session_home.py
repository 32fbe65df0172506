"""What all sessions of an engine have in common: one object, so that each of them stays small."""

from collections.abc import Callable

import attrs

from kernel.active_turn import SessionLimits
from kernel.actor import System
from kernel.door import Door
from kernel.ids import SessionId
from kernel.probe import Probe
from kernel.turn_records import SessionCounters
from ownership import Ledger

__all__ = ["SessionHome"]


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
    """Told once of each session that has closed or died."""
