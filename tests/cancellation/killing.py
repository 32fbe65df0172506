"""Victims: coroutines that are killed from outside, as an application kills its handlers.

On asyncio the kill is a plain ``task.cancel()``, which knows nothing of cancel scopes; on trio it
is the cancellation of a scope around the task, the only kind that trio has.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from kernel import Engine, TenureError

__all__ = ["Victim", "deliver", "start", "tick"]

Work = Callable[[], Awaitable[object]]


class Victim(Protocol):
    """A task that waits for its end."""

    @property
    def is_done(self) -> bool: ...

    def kill(self) -> None: ...

    async def wait(self) -> None:
        """Wait for the end; raises what no caller should ever see."""
        ...


async def tick() -> None:
    """One pass of the event loop, in which every task that can run takes one step."""
    await anyio.lowlevel.checkpoint()


def start(backend: str, tasks: TaskGroup, work: Work) -> Victim:
    """Start a victim."""
    return _NativeTask(work) if backend == "asyncio" else _ScopedTask(tasks, work)


class _NativeTask:
    """A task of asyncio's own, outside of every task group."""

    def __init__(self, work: Work) -> None:
        self._task = asyncio.ensure_future(_guarded(work))

    @property
    def is_done(self) -> bool:
        return self._task.done()

    def kill(self) -> None:
        self._task.cancel()

    async def wait(self) -> None:
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()


class _ScopedTask:
    def __init__(self, tasks: TaskGroup, work: Work) -> None:
        self._scope = anyio.CancelScope()
        self._work = work
        self._over = anyio.Event()
        tasks.start_soon(self._run)

    @property
    def is_done(self) -> bool:
        return self._over.is_set()

    def kill(self) -> None:
        self._scope.cancel()

    async def wait(self) -> None:
        await self._over.wait()

    async def _run(self) -> None:
        try:
            with self._scope:
                await _guarded(self._work)
        finally:
            self._over.set()


async def _guarded(work: Work) -> None:
    """A caller may see the errors of the public tree, alone or grouped, and no others."""
    try:
        await work()
    except* TenureError:
        pass


async def deliver(engine: Engine) -> None:
    """Let all posted messages be handled, and don't wait for the device."""
    await tick()
    while not engine.core.dispatcher.is_quiet:
        await tick()
    await tick()
