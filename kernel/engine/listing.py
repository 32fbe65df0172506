"""All sessions of an engine, one after another, with room for others in between."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, Self, final

from anyio.lowlevel import checkpoint

from kernel.engine import inspection
from kernel.engine.desk import Desk
from kernel.ids import SessionId
from kernel.outputs import SessionInfo

__all__ = ["SessionListing"]

_AT_ONCE: Final = 32
"""A millisecond or so; what there is to say of a session in memory is read in many places."""


@final
class SessionListing(AsyncIterator[SessionInfo]):
    """The sessions that there were when it was made; each is described when its turn comes.

    It holds nothing but their ids, and may be left at any time. Cancelling loses no session: the
    next one comes with the next call.
    """

    def __init__(self, desk: Desk, session_ids: Sequence[str]) -> None:
        """Not for callers; made by :meth:`Engine.iter_sessions`."""
        self._desk = desk
        self._left: Iterator[str] = iter(session_ids)
        self._looked_at = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionInfo:
        """The next session that is still there.

        Raises:
            WrongContext: another process, thread or event loop.
        """
        while True:
            if self._looked_at % _AT_ONCE == 0:
                await checkpoint()
            name = next(self._left, None)
            if name is None:
                raise StopAsyncIteration
            self._looked_at += 1
            info = self._describe(SessionId(name))
            if info is not None:
                return info

    def _describe(self, name: SessionId) -> SessionInfo | None:
        core = self._desk.check_context()
        actor = core.sessions.get(name)
        if actor is not None:
            return inspection.session_info(core, actor)
        return inspection.dormant_info(core, name) if core.holds(name) else None
