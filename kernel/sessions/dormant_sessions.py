"""What an engine remembers of sessions that are only in the store: an index entry each, and seats.

Of a session that nobody has used in this life of the engine there is no entry: to know more than
its name, the disk would have to be read.
"""

from typing import Final, final
from weakref import WeakValueDictionary

import attrs

from kernel.ids import SessionId
from kernel.outputs import CheckpointInfo
from kernel.sessions.seat import Seat
from kernel.sessions.state import SessionState

__all__ = ["DormantEntry", "DormantSessions", "entry_of"]

_MOST_MARKS: Final = 8
_MOST_NAME_CHARS: Final = 256
"""Of the names of all marks in one entry together."""


@attrs.frozen
class DormantEntry:
    """A session as it was when it went dormant. Nobody has changed it since."""

    num_tokens: int
    turns: int
    state_position: int
    """Of the snapshot that it left; 0: there was none."""
    last_used_s: float
    is_detached: bool
    marks: tuple[CheckpointInfo, ...] | None
    """``None``: they take too much room; they are on the disk."""


def entry_of(
    state: SessionState, *, state_position: int, last_used_s: float, is_detached: bool
) -> DormantEntry:
    """What is to be remembered of a session that is about to go dormant."""
    kept = state.states.marks
    is_small = len(kept) <= _MOST_MARKS and sum(map(len, kept)) <= _MOST_NAME_CHARS
    marks = tuple(
        CheckpointInfo(name=name, turns=mark.turns, num_tokens=mark.length)
        for name, mark in kept.items()
        if is_small
    )
    return DormantEntry(
        num_tokens=len(state.log),
        turns=state.turns,
        state_position=state_position,
        last_used_s=last_used_s,
        is_detached=is_detached,
        marks=marks if is_small else None,
    )


@final
class DormantSessions:
    """Entries and seats of one engine's dormant sessions, by name."""

    def __init__(self) -> None:
        self._entries: dict[SessionId, DormantEntry] = {}
        self._seats = WeakValueDictionary[SessionId, Seat]()
        """Those that a caller still has."""

    def remember(self, session_id: SessionId, entry: DormantEntry) -> None:
        """A session goes dormant."""
        self._entries[session_id] = entry

    def entry(self, session_id: SessionId) -> DormantEntry | None:
        """What is remembered of a session; ``None``: nothing, or it isn't dormant."""
        return self._entries.get(session_id)

    def leave_seat(self, session_id: SessionId, seat: Seat) -> None:
        """Callers who have this seat find the session there when it is woken."""
        self._seats[session_id] = seat

    def seat_of(self, session_id: SessionId) -> Seat:
        """The seat of a dormant session, for one more caller."""
        seat = self._seats.get(session_id)
        if seat is None:
            seat = self._seats[session_id] = Seat(None)
        return seat

    def has_callers(self, session_id: SessionId) -> bool:
        """Whether a caller has an object of this dormant session."""
        return session_id in self._seats

    def wake(self, session_id: SessionId, birth: str) -> Seat | None:
        """Forget a session that is woken. Returns the seat that its callers have, if they do.

        A seat that was taken while it was dormant is anybody's of this name, until then.
        """
        self._entries.pop(session_id, None)
        seat = self._seats.pop(session_id, None)
        if seat is None or seat.birth not in ("", birth):
            return None
        seat.birth = birth
        return seat

    def forget(self, session_id: SessionId) -> None:
        """A session is taken off the disk: whoever has its seat has nothing any more."""
        self._entries.pop(session_id, None)
        seat = self._seats.pop(session_id, None)
        if seat is not None:
            seat.is_removed = True
