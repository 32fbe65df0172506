"""What an exploration came to."""

import attrs

from kernel.testing.explorer.events import Event

__all__ = ["Exploration", "Failure"]


@attrs.frozen
class Failure:
    """A property that does not hold, with a shortest trace to where it does not."""

    world: str
    property: str
    message: str
    trace: tuple[Event, ...]
    told: tuple[str, ...]
    """The trace in words, one line an event."""

    def __str__(self) -> str:
        lines = "\n".join(f"  {number:3} {line}" for number, line in enumerate(self.told, 1))
        return f"{self.world}: {self.property}: {self.message}\n{lines}"


@attrs.frozen(kw_only=True)
class Exploration:
    """The figures of one world, and what was found in it."""

    world: str
    states: int
    transitions: int
    depth: int
    seconds: float
    is_complete: bool
    """False when the bound of states was reached first."""
    failures: tuple[Failure, ...]
    sometimes: dict[str, int]
    """By name: in how many transitions it was seen."""
    unmet: tuple[str, ...]
    """What the world expects to see and has not."""

    @property
    def failed(self) -> int:
        """How many properties don't hold, and how many expectations were not met."""
        return len(self.failures) + len(self.unmet)
