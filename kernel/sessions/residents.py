"""Which sessions of an engine with a store stay in memory: the most recently used.

Beyond a number of them, those that rest longest are asked to go dormant. It is the session that
decides; one that is in use, or whose log isn't kept whole, stays.
"""

from collections.abc import Callable
from typing import Final, final

from kernel.ids import SessionId

__all__ = ["LeastRecentlyUsed"]

_MOST_ASKED: Final = 16
"""Sessions on their way to rest at once: each has an image of its state in memory."""


@final
class LeastRecentlyUsed:
    """Counts resident sessions and asks some of them to go.

    Args:
        max_resident: sessions in memory beyond which some are asked.
        ask: asks one; returns whether it is there.
    """

    def __init__(self, max_resident: int, ask: Callable[[SessionId], bool]) -> None:
        self._max_resident = max_resident
        self._ask = ask
        self._resting: dict[SessionId, None] = {}
        """Those that may be asked, the longest at rest first."""
        self._asked: set[SessionId] = set()
        self._count = 0

    def came(self) -> None:
        """A session has become resident."""
        self._count += 1
        self._make_room()

    def went(self, session_id: SessionId) -> None:
        """A session isn't resident any more."""
        self._count -= 1
        self.stirs(session_id)
        self._make_room()

    def rests(self, session_id: SessionId, /) -> None:
        """A session has come to rest, and all that it has is kept."""
        self.stirs(session_id)
        self._resting[session_id] = None
        self._make_room()

    def stirs(self, session_id: SessionId, /) -> None:
        """A session is in use, or won't go."""
        self._asked.discard(session_id)
        self._resting.pop(session_id, None)

    def all_to_rest(self) -> None:
        """The engine is about to close: whoever can, go, so that states are kept as well."""
        self._max_resident = 0
        self._make_room()

    @property
    def is_settled(self) -> bool:
        """Whether nobody is on the way to rest, or has to go."""
        return not self._asked and (self._count <= self._max_resident or not self._resting)

    def _make_room(self) -> None:
        while (
            self._count - len(self._asked) > self._max_resident
            and len(self._asked) < _MOST_ASKED
            and self._resting
        ):
            session_id = next(iter(self._resting))
            del self._resting[session_id]
            self._asked.add(session_id)
            if not self._ask(session_id):
                self._asked.discard(session_id)
