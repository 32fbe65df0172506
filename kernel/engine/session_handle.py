"""What a caller's handle of a session can do beside running turns: look, go back, close.

A request goes to the session's actor by one message and is answered by one value. Whoever is
cancelled while it waits has still asked: the message is on its way, and is carried out whole.
"""

import os
import sys
from functools import partial
from pathlib import Path

from kernel import checks
from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.engine.desk import CALLER, Desk
from kernel.engine.inspection import dormant_info, session_info
from kernel.engine.opening import file_header
from kernel.errors import SessionClosed, SessionNotFound, ValidationError
from kernel.ids import SessionId
from kernel.messages import (
    CloseSession,
    DropMark,
    Exported,
    ExportSession,
    HistoryMessage,
    InterruptTurn,
    RestoreMark,
    Rewind,
    SessionMessage,
    SetMark,
)
from kernel.outputs import SessionInfo
from kernel.sessions.seat import Hold, Seat
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest

__all__ = ["SessionHandle"]


class SessionHandle:
    """One session, by its actor as long as it has one; a dormant one is woken by what is asked."""

    def __init__(self, desk: Desk, session_id: SessionId, actor: SessionActor | None) -> None:
        self._desk = desk
        self._id = session_id
        self._seat: Seat | None = None
        self._hold: Hold | None = None
        """Tells that a caller has an object of the session."""
        if actor is not None:
            self._sit(actor.seat)
        self._removal: Reply[None] | None = None

    @property
    def session_id(self) -> str:
        return self._id

    @property
    def info(self) -> SessionInfo:
        """The session at this moment; looking at a dormant one wakes nothing and reads no disk."""
        core, actor = self._desk.check_context(), self._resident()
        return dormant_info(core, self._id) if actor is None else session_info(core, actor)

    async def interrupt(self, keep: int | None = None) -> int:
        """End the running turn, or cut the last one, keeping ``keep`` generated tokens.

        Args:
            keep: how many generated tokens that were received stay in the session; ``None``
                keeps all, 0 only the input.

        Returns:
            How many were kept.

        Raises:
            ValidationError: more than were received.
            TurnNotFound: there is no turn to interrupt.
        """
        self._desk.check_context()
        checks.kept(keep)
        reply: Reply[int] = Reply()
        return await self._ask(InterruptTurn(None, keep, reply), reply)

    async def rewind(self, to: int) -> int:
        """Go back to an earlier turn: the session is as it was before the turns that go.

        Exact on every model: the log and the conversation are cut where the first turn that goes
        began, and the next turn starts from the nearest state that is kept at or before that
        place, or computes the log again. What was appended before that turn stays; what was
        appended after it goes. Tokens that were delivered stay valid, they are only forgotten.

        Args:
            to: how many turns to keep; negative: how many to go back, so ``-1`` undoes the last.
                :attr:`SessionInfo.turns` says how many there are. Keeping all changes nothing.

        Returns:
            How many turns are left.

        Raises:
            SessionBusy: a turn runs or waits.
            ValidationError: there are not so many turns.
            SessionClosed: the session is closed.
        """
        self._desk.check_context()
        checks.integer("to", to, least=-sys.maxsize)
        reply: Reply[int] = Reply()
        return await self._ask(Rewind(to, reply), reply)

    async def checkpoint(self, name: str | None = None) -> str:
        """Mark where the session stands, to come back to it by :meth:`restore`.

        The committed state is kept for it, which copies nothing, and without the turn that runs.
        The states of a session's checkpoints take at most ``EngineConfig.max_checkpoint_bytes``
        beside its own, and are among the first to go when the engine is short of memory. A
        checkpoint whose state is gone stays: coming back to it computes the log again.

        Args:
            name: one that is in use is moved here; a fresh one by default.

        Returns:
            The name.

        Raises:
            ValidationError: the name can't be used, or the session has too many checkpoints.
            SessionClosed: the session is closed.
        """
        self._desk.check_context()
        checks.name("name", name)
        marks = (await self._awake()).state.states.marks
        chosen = self._desk.fresh_id("checkpoint", marks) if name is None else name
        reply: Reply[int] = Reply()
        await self._ask(SetMark(chosen, reply), reply)
        return chosen

    async def restore(self, mark: str) -> int:
        """Go back to a checkpoint, which stays: log, conversation and state are as they were.

        Later checkpoints are dropped with the log that they stand on.

        Returns:
            How many turns there are now.

        Raises:
            CheckpointNotFound: there is none of this name, or the session went back to before it.
            SessionBusy: a turn runs or waits.
            SessionClosed: the session is closed.
        """
        self._desk.check_context()
        _check_mark(mark)
        reply: Reply[int] = Reply()
        return await self._ask(RestoreMark(mark, reply), reply)

    async def drop_checkpoint(self, mark: str) -> None:
        """Forget a checkpoint and give back what only it kept; the history stays as it is.

        Raises:
            CheckpointNotFound: there is none of this name.
            SessionClosed: the session is closed.
        """
        self._desk.check_context()
        _check_mark(mark)
        reply: Reply[int] = Reply()
        await self._ask(DropMark(mark, reply), reply)

    async def export(self) -> bytes:
        """The session as bytes: its log, its checkpoints' places, and its state, as they are now.

        Without the turn that runs. Another engine of the same model, dtype and weights takes them
        by :meth:`Engine.import_session` and goes on with the same tokens; they are a file of
        :meth:`save`, too. A state that can't be read out is left away, and computed again there.

        Raises:
            QueueFull: too many ask this session already, and wait for its device or its disk.
            SessionClosed: the session is closed.
            StoreError: it is dormant, and can't be read.
            ValidationError: nothing is installed that writes sessions, or its messages hold
                something that is no JSON value.
        """
        core = self._desk.check_context()
        files = self._desk.session_files
        reply: Reply[Exported] = Reply()
        await self._post(ExportSession(reply))
        found = await reply.wait()
        pack = partial(files.pack, found.record, found.image, file_header(core.model))
        return await core.environment.run_blocking(pack)

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`export`'s bytes to a file, whole or not at all; survives the loss of power.

        Raises:
            SessionFileError: it can't be written.
            SessionClosed: as :meth:`export`, StoreError, ValidationError.
        """
        checks.path("path", path)
        core = self._desk.check_context()
        data = await self.export()
        write = partial(self._desk.session_files.write, Path(path), data)
        await core.environment.run_blocking(write)

    async def close(self) -> None:
        """Close now, whatever runs, and remove it from the store, if there is one; idempotent.

        What the session held at rest is free on return. A step under way lands first: its claim
        is rolled back then, by the scheduler.

        Raises:
            StoreError: it is closed, and may still be in the store.
        """
        self._desk.check_context()
        self._post_close()
        await self._closed()

    async def _ask(self, message: InterruptTurn | HistoryMessage, reply: Reply[int]) -> int:
        await self._post(message)
        return await reply.wait()

    async def _post(self, message: InterruptTurn | HistoryMessage | ExportSession) -> None:
        actor = await self._awake()
        session = Address[SessionMessage](actor.name)
        if actor.is_closed or not self._desk.ask(session, message):
            raise SessionClosed(session_id=self._id)

    def _resident(self) -> SessionActor | None:
        """The session's actor; ``None``: it is dormant. Never a namesake's.

        Raises:
            SessionNotFound: there is no such session any more.
        """
        seat = self._seat
        if seat is not None and seat.actor is not None:
            return seat.actor
        core = self._desk.check_context()
        if seat is not None and seat.is_removed:
            raise SessionNotFound(session_id=self._id)
        found = core.sessions.get(self._id)
        if found is None and core.stored is not None and core.holds(self._id):
            if seat is None:
                self._sit(core.stored.dormant.seat_of(self._id))
            return None
        if found is None or found.is_one_shot or (seat and seat.birth != found.seat.birth):
            raise SessionNotFound(session_id=self._id)
        self._sit(found.seat)
        return found

    def _sit(self, seat: Seat | None) -> None:
        """Be an object of the session that has this seat."""
        self._seat = seat
        self._hold = None if seat is None else seat.hold()

    async def _awake(self, request: TurnRequest | None = None) -> SessionActor:
        """The session's actor, woken if need be, when there is room for it. Cancel-safe.

        Args:
            request: the turn that it is for, if it is for one.

        Raises:
            SessionNotFound: there is no such session any more.
            StoreError: it can't be read.
            QueueFull: as many wait as may.
            TooManySessions: no session in memory will make room for it.
            EngineClosed: the engine takes no more work.
        """
        while (actor := self._resident()) is None:
            await self._desk.wake(self._id, request)
        return actor

    def _open(self) -> SessionActor:
        actor = self._resident()
        if actor is None or actor.is_closed:
            raise SessionClosed(session_id=self._id)
        return actor

    def _post_close(self) -> None:
        """Close our own session and no namesake, by one message at most."""
        try:
            self._resident()
        except SessionNotFound:
            return
        seat = self._seat
        actor = None if seat is None else seat.actor
        if actor is None:
            self._removal = self._removal or self._desk.remove(self._id)
        elif not actor.is_close_posted and not actor.is_closed:
            actor.is_close_posted = True
            actor.removed = None if actor.archive is None else Reply()
            actor.mailbox.post(CloseSession(), CALLER)

    async def _closed(self) -> None:
        seat = self._seat
        actor = None if seat is None else seat.actor
        if actor is not None:
            await self._desk.until_closed(actor)
            if actor.is_closed and actor.removed is not None:
                await actor.removed.wait()
        elif self._removal is not None:
            await self._removal.wait()


def _check_mark(mark: object) -> None:
    if not isinstance(mark, str):
        raise ValidationError(
            parameter="mark", value=mark, why="it is a name, as checkpoint() said"
        )
