"""What the page draws of one engine, as plain values that become JSON."""

from typing import Any

import attrs

__all__ = ["OWNERS", "ClaimLife", "Picture"]

OWNERS = ("batch", "session", "cache", "draining", "quarantined")
"""Who can hold a slot, in the order of the legend; in the page an owner is an index into this."""


@attrs.define(eq=False)
class ClaimLife:
    """One claim from its reserve to its end."""

    number: int
    turn: str
    session: str
    lane: int
    base: int | None
    begun: int
    """Number of the event, among those of its engine."""
    ended: int | None = None
    events: list[tuple[int, str, str]] = attrs.field(factory=list[tuple[int, str, str]])
    """Number, what happened, and the facts of it."""


@attrs.define(eq=False)
class Picture:
    """One engine's log, ready to be drawn."""

    engine: str
    slots: int = 0
    """On the device."""
    host_slots: int = 0
    """In host memory; their lanes follow those of the device."""
    pages: int = 0
    """Of all places."""
    page_size: int = 0
    at: list[float] = attrs.field(factory=list[float])
    """Seconds on the engine's clock, for each of its events."""
    lanes: int = 0
    """As many as slots in all places, and one for each claim at once that has no slot."""
    spans: list[tuple[int, int, int, int, int]] = attrs.field(
        factory=list[tuple[int, int, int, int, int]]
    )
    """Lane, first event, event that ended it, owner, claim."""
    steps: list[tuple[int, int, int, int, int, int]] = attrs.field(
        factory=list[tuple[int, int, int, int, int, int]]
    )
    """Lane, first event, event that ended it, lease, claim, and how it ended: 1 ok, 0 not."""
    usage: list[tuple[int, ...]] = attrs.field(factory=list[tuple[int, ...]])
    """Event, and from it on the pages of each owner, and frozen ones."""
    marks: list[tuple[int, str]] = attrs.field(factory=list[tuple[int, str]])
    """Deaths and failures."""
    claims: list[ClaimLife] = attrs.field(factory=list[ClaimLife])
    problems: list[str] = attrs.field(factory=list[str])
    """What the audit found wrong."""
    conserved: bool = True

    def as_json(self) -> dict[str, Any]:
        """Numbers and short lists: a hundred thousand events make a page of a few megabytes."""
        first = self.at[0] if self.at else 0.0
        return {
            "engine": self.engine,
            "slots": self.slots,
            "host_slots": self.host_slots,
            "pages": self.pages,
            "lanes": self.lanes,
            "at": [round((at - first) * 1e6) for at in self.at],
            "spans": self.spans,
            "steps": self.steps,
            "usage": self.usage,
            "marks": self.marks,
            "conserved": self.conserved,
            "problems": self.problems,
            "claims": [
                [
                    life.number,
                    life.turn,
                    life.session,
                    life.lane,
                    life.base,
                    life.begun,
                    life.ended,
                    life.events,
                ]
                for life in self.claims
            ],
        }
