"""What the demo's clients saw, counted by themselves."""

from collections import Counter, deque
from collections.abc import Iterable
from statistics import median

import attrs

from adapters.cli.demo.plan import Fate

__all__ = ["Tally", "median_ms"]


@attrs.define(eq=False)
class Tally:
    """Counts of one run of the demo."""

    sessions: int = 0
    turns: int = 0
    """Turns of sessions that were started, whatever became of them."""
    one_shots: int = 0
    tokens: int = 0
    """Tokens that clients received."""
    cancelled: int = 0
    """Turns and one-shots that their client left, lost or closed before they ended."""
    errors: list[str] = attrs.field(factory=list[str])
    fates: Counter[Fate] = attrs.field(factory=Counter[Fate])
    ttft_first_s: list[float] = attrs.field(factory=list[float])
    """Time to the first token, queueing included, on the first turn of a session."""
    ttft_later_s: list[float] = attrs.field(factory=list[float])
    texts: deque[tuple[str, str]] = attrs.field(factory=lambda: deque[tuple[str, str]](maxlen=6))
    """The newest finished texts, with the client's name."""

    def saw_first_token(self, seconds: float, *, turn: int) -> None:
        """Note a time to first token; ``turn`` counts from 0, and only sessions have later ones."""
        (self.ttft_later_s if turn else self.ttft_first_s).append(seconds)


def median_ms(seconds: Iterable[float]) -> float | None:
    """The median in milliseconds, or None of nothing."""
    values = list(seconds)
    return round(median(values) * 1000, 2) if values else None
