"""What an audit found, as values."""

from collections.abc import Mapping
from typing import Literal

import attrs

__all__ = ["EngineAudit", "Kind", "Problem", "TraceAudit"]

Kind = Literal[
    "alias",
    "double free",
    "leak",
    "gap",
    "changed",
    "misplaced",
    "run count",
    "order",
    "malformed",
    "mismatch",
]
"""What went wrong.

``alias``: a slot or page was taken while somebody owned it. ``double free``: something was given
back that its giver didn't own, or not alone. ``leak``: something never came back. ``gap``: events
are missing from the log. ``changed``: an event is not as it was written. ``misplaced``: an event
stands twice, or not where it was written. ``run count``: frozen pages were dropped while named, or
kept while not. ``order``: a verb that its claim's state forbids. ``malformed``: a field is missing
or of the wrong type. ``mismatch``: an event says otherwise than those before it, or the ledger's
own figures differ from the replay's.
"""


@attrs.frozen
class Problem:
    """One finding, with the sequence number of the event that shows it."""

    seq: int
    kind: Kind
    text: str
    about: str = ""
    """The claim, lease, turn or actor whose event it is; else ``ledger`` or ``engine``."""

    def __str__(self) -> str:
        return f"seq {self.seq}: {self.kind}: {self.text}"


@attrs.frozen(kw_only=True)
class EngineAudit:
    """The verdict on the events of one ledger."""

    engine: str
    problems: tuple[Problem, ...]
    """The first problems in order; ``num_problems`` counts all."""
    num_problems: int
    leaked: int
    """Slots and pages that no claim gave back although its end, or the engine's, was logged."""
    double_frees: int
    """Slots and pages that were given back by somebody who didn't own them, or not alone."""
    reclaimed: int
    """Claims taken from dead actors; above zero in a run without faults means a hidden leak."""
    quarantined: int
    """Claims inside leases of a device that never answered."""
    still_owned: int
    """Claims that somebody owns where the log ends, quarantine aside."""
    free_slots: int
    """On the device, where the log ends."""
    free_pages: int
    host_free_slots: int
    host_free_pages: int
    counts: Mapping[str, int]
    """How often each event of the ledger occurred."""
    closed: bool
    """The log tells that the engine was closed, so that what is still owned has leaked."""

    @property
    def conserved(self) -> bool:
        """True when every slot and page had one owner all along and came back once."""
        return self.num_problems == 0


@attrs.frozen(kw_only=True)
class TraceAudit:
    """The verdict on a whole log, which may hold several engines."""

    engines: tuple[EngineAudit, ...]
    lines: int
    skipped_lines: int
    """Lines that aren't JSON objects with an event name."""

    @property
    def conserved(self) -> bool:
        """True when at least one ledger was seen and each was conserved."""
        return bool(self.engines) and all(engine.conserved for engine in self.engines)

    @property
    def leaked(self) -> int:
        return sum(engine.leaked for engine in self.engines)

    @property
    def double_frees(self) -> int:
        return sum(engine.double_frees for engine in self.engines)

    @property
    def reclaimed(self) -> int:
        return sum(engine.reclaimed for engine in self.engines)

    @property
    def quarantined(self) -> int:
        return sum(engine.quarantined for engine in self.engines)

    @property
    def still_owned(self) -> int:
        return sum(engine.still_owned for engine in self.engines)

    def count(self, event: str) -> int:
        """How often the event occurred, over all engines."""
        return sum(engine.counts.get(event, 0) for engine in self.engines)
