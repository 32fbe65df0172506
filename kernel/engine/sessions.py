"""The sessions of an engine, as its callers open, find, bring in and remove them."""

import os
from functools import partial
from pathlib import Path

from kernel import checks
from kernel.config import OnLimit
from kernel.engine import inspection
from kernel.engine.desk import Desk
from kernel.engine.listing import SessionListing
from kernel.engine.opening import file_header
from kernel.engine.streaming_session import (
    Session,
    check_session_id,
    keep_or_close,
    open_session,
)
from kernel.errors import SessionNotFound, ValidationError
from kernel.ids import SessionId
from kernel.outputs import SessionInfo
from kernel.requests.rules import check_vocabulary
from kernel.sessions.record import DamagedRecord

__all__ = ["EngineSessions"]


class EngineSessions:
    """The part of an engine that is about sessions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def session(
        self,
        *,
        session_id: str | None = None,
        idle_timeout_s: float | None = None,
        detached: bool = False,
        on_limit: OnLimit | None = None,
        resume: bool = False,
    ) -> Session:
        """A streaming session; an async context manager.

        Args:
            session_id: a name of your own; a fresh one by default.
            idle_timeout_s: close it after so long without a turn, or let it go dormant where there
                is a store; the config's by default.
            detached: leave it open when the block is left; :meth:`attach` finds it again.
            on_limit: ``"refuse"`` a turn that would not fit any more, or ``"slide"``: drop the
                oldest positions of attention layers; the config's by default.
            resume: go on with the session of this id, if there is one, open or in the store;
                what it was opened with stays, so one that was detached isn't closed by this block
                either. Without it ``SessionExists`` is raised for such a session.

        Raises:
            ValidationError: a bad name or time, or a model that can't slide.
        """
        return open_session(
            self._desk,
            session_id=session_id,
            idle_timeout_s=idle_timeout_s,
            detached=detached,
            on_limit=on_limit,
            resume=resume,
        )

    def attach(self, session_id: str) -> Session:
        """A session by its id; usable at once and as a block, which never closes it.

        One that is only in the store is read when it is first used, or at its block.

        Raises:
            SessionNotFound: there is none.
        """
        return Session(
            self._desk,
            SessionId(session_id),
            closes=False,
            opens=False,
            idle_timeout_s=None,
            detached=True,
        )

    def session_ids(self) -> list[str]:
        """The ids of all sessions, open or dormant; cheap, however many there are."""
        core = self._desk.check_context()
        found: list[str] = [name for name, actor in core.sessions.items() if not actor.is_one_shot]
        if core.stored is not None:
            known = core.sessions
            found += [name for name in core.stored.worker.session_ids() if name not in known]
        return found

    def list_sessions(self) -> list[SessionInfo]:
        """All sessions; of dormant ones what is known without reading the disk.

        Synchronous, some 30 microseconds for each session in memory and 7 for a dormant one, during
        which no turn goes on: for thousands use :meth:`iter_sessions`.
        """
        core = self._desk.check_context()
        return [
            inspection.dormant_info(core, SessionId(name))
            if (actor := core.sessions.get(SessionId(name))) is None
            else inspection.session_info(core, actor)
            for name in self.session_ids()
        ]

    def iter_sessions(self) -> SessionListing:
        """All sessions as :meth:`list_sessions`, for ``async for``; turns go on in between.

        Those that there are now, in the order of :meth:`session_ids`; each is described when its
        turn comes, and left out if it has gone by then. It may be left at any time.
        """
        return SessionListing(self._desk, self.session_ids())

    async def forget(self, session_id: str) -> None:
        """Close a session, whatever it does, and remove it from the store.

        Raises:
            SessionNotFound: there is none.
            StoreError: it is closed, and may still be in the store.
            EngineClosed: the engine takes no more work; what is in the store stays there.
        """
        core, name = self._desk.check_context(), SessionId(session_id)
        if name in core.sessions:
            await self.attach(session_id).close()
            return
        core.door.check_open()
        removal = self._desk.remove(name)
        if removal is None:
            raise SessionNotFound(session_id=session_id)
        await removal.wait()

    async def restore(
        self, path: str | os.PathLike[str], *, session_id: str | None = None
    ) -> Session:
        """Open the session of a file that :meth:`Session.save` wrote; it goes on where that was.

        Cancelling the call closes what it has opened.

        Args:
            path: the file; it isn't needed any more after this.
            session_id: its name here; by default the one that it had.

        Returns:
            An open session, usable at once and as a block, which doesn't close it.

        Raises:
            SessionFileError: another model, dtype or version, a damaged file, or one that can't be
                read; says which, and nothing was opened.
            SessionExists: there is a session of this id.
            TooManySessions: the engine's bound is reached.
            StoreError: the engine's own store could not keep it, and nothing was opened.
            ValidationError: nothing is installed that reads sessions, or the name can't be used;
                or a token of the log is none of the model's.
        """
        checks.path("path", path)
        core = self._desk.check_context()
        read = partial(self._desk.session_files.read, Path(path))
        data = await core.environment.run_blocking(read)
        return await self._bring_in(data, session_id, source=os.fspath(path))

    async def import_session(self, data: bytes, *, session_id: str | None = None) -> Session:
        """As :meth:`restore`, from the bytes of :meth:`Session.export`."""
        checks.instance("data", data, bytes)
        return await self._bring_in(data, session_id, source=f"<{len(data)} bytes>")

    async def _bring_in(self, data: bytes, session_id: str | None, *, source: str) -> Session:
        core = self._desk.check_context()
        check_session_id(session_id)
        header = file_header(core.model)
        unpack = partial(self._desk.session_files.unpack, data, header, source=source)
        record, image = await core.environment.run_blocking(unpack)
        name = record.session_id if session_id is None else session_id
        check_session_id(name)
        for turn in record.turns:  # an id that the model doesn't know would fail others' steps
            check_vocabulary("data", turn.tokens, core.model)
        try:
            actor = core.bring_back(record, image=image, session_id=SessionId(name))
        except DamagedRecord as error:
            raise ValidationError(parameter="data", value=source, why=str(error)) from error
        session = self.attach(name)
        await keep_or_close(actor, session, image)
        return session
