"""Which sessions of an engine with a store stay in memory: the most recently used.

Beyond a number of them, those that rest longest are asked to go dormant; where dormant ones wait
for room, so many that they all find some. It is the session that decides; one that is in use, or
whose log isn't kept whole, stays.
"""

from collections.abc import Callable
from typing import Final, final

from kernel.errors import TooManySessions
from kernel.ids import SessionId

__all__ = ["LeastRecentlyUsed"]

_MOST_ASKED: Final = 16
"""Sessions on their way to rest at once: each has an image of its state in memory."""


@final
class LeastRecentlyUsed:
    """Counts resident sessions and asks some of them to go.

    Args:
        max_resident: sessions in memory beyond which some are asked.
        max_sessions: sessions in memory beyond which none comes in.
        ask: asks one; returns whether it is there.

    Attributes:
        on_stir: told when a session is in use or won't go, while others wait for its room.
    """

    def __init__(
        self, max_resident: int, max_sessions: int, ask: Callable[[SessionId], bool]
    ) -> None:
        self._max_resident = max_resident
        self._max_sessions = max_sessions
        self._ask = ask
        self._awaited = 0
        """Dormant sessions that are being read, or wait for room."""
        self.on_stir: Callable[[], None] = _ignore
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
        self._forget(session_id)
        self._make_room()

    def rests(self, session_id: SessionId, /) -> None:
        """A session has come to rest, and all that it has is kept."""
        self._forget(session_id)
        self._resting[session_id] = None
        self._make_room()

    def stirs(self, session_id: SessionId, /) -> None:
        """A session is in use, or won't go."""
        self._forget(session_id)
        if self._awaited:
            self.on_stir()

    def awaits(self, sessions: int) -> None:
        """So many dormant sessions are on their way into memory, or wait for it."""
        self._awaited = sessions
        self._make_room()

    def has_room(self, taken: int) -> bool:
        """Whether one more can come in, beside as many as are being read."""
        return self._count + taken < self._max_sessions

    @property
    def is_crowded(self) -> bool:
        """Whether dormant sessions wait to come in, or are being read."""
        return self._awaited > 0

    @property
    def some_may_go(self) -> bool:
        """Whether a session is at rest, or was asked to go and has not answered."""
        return bool(self._resting or self._asked)

    def too_many(self) -> TooManySessions:
        """Why one more can't come in."""
        return TooManySessions(open_sessions=self._count, limit=self._max_sessions)

    def all_to_rest(self) -> None:
        """The engine is about to close: whoever can, go, so that states are kept as well."""
        self._max_resident = 0
        self._make_room()

    @property
    def is_settled(self) -> bool:
        """Whether nobody is on the way to rest, or has to go."""
        return not self._asked and (self._count <= self._max_resident or not self._resting)

    def _forget(self, session_id: SessionId) -> None:
        self._asked.discard(session_id)
        self._resting.pop(session_id, None)

    def _make_room(self) -> None:
        most = min(self._max_resident, max(0, self._max_sessions - self._awaited))
        while (
            self._count - len(self._asked) > most
            and len(self._asked) < _MOST_ASKED
            and self._resting
        ):
            session_id = next(iter(self._resting))
            del self._resting[session_id]
            self._asked.add(session_id)
            if not self._ask(session_id):
                self._asked.discard(session_id)


def _ignore() -> None:
    """Nobody waits."""
