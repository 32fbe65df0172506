"""Callers who wait for a dormant session: counted at the door, and each answered exactly once."""

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import final

import attrs

from kernel.actors.actor import Timer
from kernel.actors.reply import Reply
from kernel.engine.core import Core
from kernel.ids import SessionId, TurnId
from kernel.messages import CancelReason
from kernel.sessions.active_turn import cancelled_end
from kernel.sessions.session import SessionActor
from kernel.sessions.stored_sessions import StoredSessions
from kernel.turn import TurnRequest

__all__ = ["WakeCalls"]


@final
class WakeCalls:
    """The callers' side of waking, of one engine."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._open: dict[TurnId, _Call] = {}
        self._numbers = itertools.count(1)

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count somebody at the door who waits for a session, and brings no turn.

        Raises:
            QueueFull: as many wait as may.
            EngineClosed: the engine takes no more work.
        """
        ticket = TurnId(f"wake #{next(self._numbers)}")
        self._core.door.enter(ticket, 0)
        try:
            yield
        finally:
            self._core.door.leave(ticket)

    async def wait(
        self, stored: StoredSessions, session_id: SessionId, request: TurnRequest | None
    ) -> None:
        """Wait until a session is in memory; it stays there until its caller has used it.

        Cancel-safe. A turn's deadlines run meanwhile, as in every queue.

        Raises:
            TenureError: why it isn't woken, or the turn was cancelled.
        """
        with stored.wanted(session_id):
            reply = stored.wake(session_id)
            call = None if request is None else self._begin(request, reply)
            try:
                await reply.wait()
            finally:
                stored.waking.leave(session_id, reply)
                if call is not None:
                    self._end(call)
            if call is not None and call.error is not None:
                raise call.error  # it came between the answer and its reading

    def cancel(self, turn: TurnId) -> bool:
        """Cancel a turn that waits for its session; False: it doesn't."""
        call = self._open.get(turn)
        if call is None:
            return False
        call.cancel("abort")
        return True

    def _begin(self, request: TurnRequest, reply: Reply[SessionActor]) -> "_Call":
        call = self._open[request.id] = _Call(request, reply)
        since, call_at = request.output.submitted_at, self._core.dispatcher.call_at
        limits: list[tuple[CancelReason, float | None]] = [
            ("queue_timeout", request.queue_timeout_s),
            ("timeout", request.timeout_s),
        ]
        call.timers += [
            call_at(since + limit_s, partial(call.cancel, reason))
            for reason, limit_s in limits
            if limit_s is not None
        ]
        return call

    def _end(self, call: "_Call") -> None:
        del self._open[call.request.id]
        for timer in call.timers:
            timer.cancel()


@attrs.define(eq=False)
class _Call:
    """A turn that waits for its session."""

    request: TurnRequest
    reply: Reply[SessionActor]
    timers: list[Timer] = attrs.field(factory=list[Timer])
    error: BaseException | None = None

    def cancel(self, reason: CancelReason) -> None:
        """It won't run, even if its session is there by now; the first reason stands."""
        self.error = self.error or cancelled_end(self.request, reason).error
        if self.error is not None:
            self.reply.fail(self.error)
