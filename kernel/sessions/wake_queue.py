"""Dormant sessions that are wanted: first come, first served, each as soon as it has room.

Room is what the engine's bound on sessions in memory leaves. It is taken when the session's record
begins to be read, so that the record never has to wait, and grow old. While sessions wait, those at
rest are asked to go, however few there are; those that run come to rest by themselves. Only where
every session in memory is at rest and can't be left to the store would waiting be for callers, and
then it is refused.
"""

from collections import Counter
from collections.abc import Callable
from typing import final

from kernel.actors.reply import Reply
from kernel.ids import SessionId
from kernel.sessions.residents import LeastRecentlyUsed
from kernel.sessions.session import SessionActor

__all__ = ["WakeQueue"]

_Waiters = list[Reply[SessionActor]]


@final
class WakeQueue:
    """Who waits for which dormant session, in order of arrival.

    Args:
        residents: sessions in memory; asked to make room.
        read: begins to read a session; False: there is no store.
        is_stuck: whether no session in memory will ever go by itself.
        on_no_store: why nothing can be read.
    """

    def __init__(
        self,
        residents: LeastRecentlyUsed,
        read: Callable[[SessionId], bool],
        is_stuck: Callable[[], bool],
        on_no_store: Callable[[SessionId], BaseException],
    ) -> None:
        self._residents = residents
        self._read = read
        self._is_stuck = is_stuck
        self._on_no_store = on_no_store
        self._queue: dict[SessionId, _Waiters] = {}
        """Those without room."""
        self._reading: dict[SessionId, _Waiters] = {}
        """Those with one."""
        self._outdated: Counter[SessionId] = Counter()
        """Reads under way of sessions that were removed since; answered before later ones."""

    @property
    def num_reading(self) -> int:
        """Sessions that have room and aren't in memory yet."""
        return len(self._reading)

    @property
    def is_crowded(self) -> bool:
        """Whether a session waits for room."""
        return bool(self._queue)

    def join(self, session_id: SessionId) -> Reply[SessionActor]:
        """Wait for a session; answered once, with its actor or with why not."""
        reply: Reply[SessionActor] = Reply()
        waiters = self._reading.get(session_id)
        if waiters is None:
            waiters = self._queue.setdefault(session_id, [])
        waiters.append(reply)
        self.pump()
        return reply

    def leave(self, session_id: SessionId, reply: Reply[SessionActor]) -> None:
        """Wait no longer; idempotent. A session that is being read comes all the same."""
        for waiters in (self._queue.get(session_id, []), self._reading.get(session_id, [])):
            if reply in waiters:
                waiters.remove(reply)
        if session_id in self._queue and not self._queue[session_id]:
            del self._queue[session_id]
            self.pump()

    def pump(self) -> None:
        """Give room to those that wait longest, and ask for more."""
        while self._queue and self._residents.has_room(len(self._reading)):
            session_id = next(iter(self._queue))
            self._reading[session_id] = self._queue.pop(session_id)
            if not self._read(session_id):
                _fail(self._reading.pop(session_id), self._on_no_store(session_id))
        self._residents.awaits(len(self._queue) + len(self._reading))
        is_hopeless = self._queue and not self._reading and not self._residents.some_may_go
        if is_hopeless and self._is_stuck():
            while self._queue:
                _, waiters = self._queue.popitem()
                _fail(waiters, self._residents.too_many())
            self._residents.awaits(0)

    def is_outdated(self, session_id: SessionId) -> bool:
        """Whether a record that was read is of a session that was removed meanwhile."""
        if session_id not in self._outdated:
            return False
        self._outdated[session_id] -= 1
        if not self._outdated[session_id]:
            del self._outdated[session_id]
        return True

    def is_reading(self, session_id: SessionId) -> bool:
        """Whether a record is expected."""
        return session_id in self._reading

    def take(self, session_id: SessionId) -> _Waiters:
        """A session was read, or can't be: its room is free, and these want to know."""
        waiters = self._reading.pop(session_id)
        self._residents.awaits(len(self._queue) + len(self._reading))
        return waiters

    def forget(self, session_id: SessionId, error: BaseException) -> None:
        """A session is removed: it must not be woken as something that isn't there."""
        waiters = self._reading.pop(session_id, None)
        if waiters is not None:
            self._outdated[session_id] += 1
        _fail([*(waiters or ()), *self._queue.pop(session_id, ())], error)
        self.pump()

    def turn_away(self, error: BaseException) -> None:
        """Nobody is woken any more: tell all who wait."""
        for waiters in (*self._queue.values(), *self._reading.values()):
            _fail(waiters, error)
        self._queue.clear()
        self._residents.awaits(len(self._reading))


def _fail(waiters: _Waiters, error: BaseException) -> None:
    for reply in waiters:
        reply.fail(error)
