"""What a run needs of its event loop: time, tasks that can be killed, calls to come."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, cast

import anyio
from anyio.abc import TaskGroup

from kernel.testing.simulation.loop import SimulatedLoop

__all__ = ["AsyncioTimeline", "Job", "Timeline", "TrioTimeline"]

Work = Callable[[], Awaitable[object]]


class Job(Protocol):
    """A task of the run, outside of every task group, that can be killed at any step."""

    @property
    def name(self) -> str: ...

    @property
    def is_done(self) -> bool: ...

    def kill(self) -> None:
        """Cancel it as an application does: natively on asyncio, by a scope on trio."""
        ...

    async def wait(self) -> None:
        """Wait until it is over."""
        ...


class Timeline(Protocol):
    """One event loop on virtual time."""

    def now(self) -> float: ...

    def advance(self, seconds: float, /) -> None: ...

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        """Call a function after so much time, from no task in particular."""
        ...

    def start(self, name: str, work: Work) -> Job:
        """Start a job; ``work`` must contain its own failure."""
        ...

    def victims(self) -> list[tuple[str, Callable[[], object]]]:
        """Every task that may be killed now, in order of birth, and how."""
        ...

    def left_over(self) -> list[str]:
        """Tasks that are still alive when the run has ended."""
        ...


class _NativeJob:
    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._over = anyio.Event()
        task.add_done_callback(lambda _: self._over.set())

    @property
    def name(self) -> str:
        return self._task.get_name()

    @property
    def is_done(self) -> bool:
        return self._task.done()

    def kill(self) -> None:
        self._task.cancel()

    async def wait(self) -> None:
        await self._over.wait()


class AsyncioTimeline:
    """The timeline of a :class:`SimulatedLoop`."""

    def __init__(self, loop: SimulatedLoop, main: asyncio.Task[Any]) -> None:
        self._loop = loop
        self._main = main
        self._own: set[asyncio.Task[Any]] = set()
        self.now = loop.time
        self.advance = loop.advance

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        self._loop.call_later(delay_s, call)

    def start(self, name: str, work: Work) -> Job:
        async def run() -> None:
            await work()

        task = self._loop.create_task(run(), name=name)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return _NativeJob(task)

    def victims(self) -> list[tuple[str, Callable[[], object]]]:
        return [(task.get_name(), task.cancel) for task in self._others() if self._may_die(task)]

    def left_over(self) -> list[str]:
        return [task.get_name() for task in self._others()]

    def _others(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._loop.tasks.values() if task is not self._main]

    def _may_die(self, task: asyncio.Task[Any]) -> bool:
        """A task group's child that has not begun would leave a coroutine nobody awaits."""
        state = inspect.getcoroutinestate(cast("Coroutine[Any, Any, Any]", task.get_coro()))
        return state != inspect.CORO_CREATED or task in self._own


class _ScopedJob:
    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self._work = work
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    @property
    def is_done(self) -> bool:
        return self._over.is_set()

    def kill(self) -> None:
        self._scope.cancel()

    async def wait(self) -> None:
        await self._over.wait()

    async def run(self) -> None:
        try:
            with self._scope:
                await self._work()
        finally:
            self._over.set()


class TrioTimeline:
    """A timeline of tasks in one nursery, on a clock of trio's that jumps."""

    def __init__(self, clock: Any, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._jobs: list[_ScopedJob] = []
        self.now: Callable[[], float] = clock.current_time
        self.advance: Callable[[float], None] = clock.jump

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        async def wait_and_call() -> None:
            await anyio.sleep(delay_s)
            call()

        self._tasks.start_soon(wait_and_call)

    def start(self, name: str, work: Work) -> Job:
        job = _ScopedJob(name, work)
        self._jobs.append(job)
        self._tasks.start_soon(job.run, name=name)
        return job

    def victims(self) -> list[tuple[str, Callable[[], object]]]:
        self._jobs = [job for job in self._jobs if not job.is_done]
        return [(job.name, job.kill) for job in self._jobs]

    def left_over(self) -> list[str]:
        return [job.name for job in self._jobs if not job.is_done]
