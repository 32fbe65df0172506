"""Who is told of each change of owner."""

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Observer"]


class Observer(Protocol):
    """Takes the ledger's events, in order; must not raise, and must not call a verb."""

    def record(self, event: str, fields: Mapping[str, object], /) -> None:
        """Take one event; ``fields`` is the observer's to keep."""
        ...
