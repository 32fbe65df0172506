"""The async shell around the dispatcher: the one place that waits, and it holds nothing.

One task runs all actors of an engine. It serves a bounded number of messages, gives the caller's
event loop a turn, and sleeps until mail, a completion or a timer wakes it. If the task itself is
cancelled, natively or by a scope, its ``finally`` stops the engine synchronously: there is no
``await`` left in which a second cancellation could strike.
"""

from collections.abc import Callable
from typing import Any, final

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus

from kernel.engine.core import Core
from kernel.errors import EngineClosed, EngineFault

__all__ = ["ENDED_UNASKED", "Shell"]

ENDED_UNASKED = "its dispatcher's task was cancelled"

_HOPS_PER_TURN = 256
_BUDGET_S = 0.002
"""The caller's loop gets a turn after so many messages or seconds, whichever comes first."""


@final
class Shell:
    """Drives a core on the event loop that it is started on."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._event: anyio.Event | None = None
        self._stopping = False
        self._join_timeout_s = core.config.stop_timeout_s
        self._served = anyio.Event()
        self._call_threadsafe: Callable[[Callable[[], None]], object] | None = None
        self.is_running = False
        self.ended_unasked = False
        """The task ended, and nobody had called :meth:`stop`."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until :meth:`stop`; whatever ends it, the engine is stopped when it returns."""
        core = self._core
        self._call_threadsafe = _thread_door()
        core.dispatcher.wake = self._wake
        core.dispatcher.wake_from_thread = self._wake_from_thread
        try:
            core.start()
            self.is_running = True
            task_status.started()
            await self._serve()
        finally:
            self.is_running = False
            self._served.set()
            if not self._stopping:
                self.ended_unasked = True
                core.fail(EngineClosed(why=ENDED_UNASKED))
            core.stop(join_timeout_s=self._join_timeout_s)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds after messages were served, or the engine has stopped."""
        while self.is_running and not condition():
            await self._served.wait()

    def stop(self, *, join_timeout_s: float) -> None:
        """Let the task end; the rest of its work is synchronous.

        Args:
            join_timeout_s: how long it may then block for a step that runs.
        """
        self._stopping = True
        self._join_timeout_s = join_timeout_s
        self._wake()

    async def _serve(self) -> None:
        dispatcher = self._core.dispatcher
        while not self._stopping:
            more = dispatcher.run(_HOPS_PER_TURN, budget_s=_BUDGET_S)
            self._served.set()
            self._served = anyio.Event()
            if more:
                await anyio.lowlevel.checkpoint()
            else:
                await self._sleep()

    async def _sleep(self) -> None:
        event = self._event = anyio.Event()
        dispatcher = self._core.dispatcher
        if not dispatcher.is_quiet or self._stopping:
            await anyio.lowlevel.checkpoint()
            return
        due = dispatcher.next_timer_at()
        if due is None:
            await event.wait()
            return
        with anyio.move_on_after(max(0.0, due - dispatcher.now())):
            await event.wait()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()

    def _wake_from_thread(self) -> None:
        if self._call_threadsafe is not None:
            try:
                self._call_threadsafe(self._wake)
            except RuntimeError:
                # The loop is closed: the completion stays in the inbox, where stop() reads it.
                return


def _thread_door() -> Callable[[Callable[[], None]], object]:
    """How another thread schedules a call on this loop without blocking."""
    token: Any = anyio.lowlevel.current_token().native_token
    # asyncio's loop has the one, trio's token the other.
    for name in ("call_soon_threadsafe", "run_sync_soon"):
        if hasattr(token, name):
            door: Callable[[Callable[[], None]], object] = getattr(token, name)
            return door
    raise EngineFault(actor="shell", why=f"unknown event loop {token!r}")
