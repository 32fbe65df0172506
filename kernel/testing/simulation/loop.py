# pyright: reportPrivateUsage=false
# An event loop runs asyncio's handles, whose parts have no public names.
"""An asyncio event loop without real time, files or threads, whose order is somebody's choice.

One callback runs at a time. Which one is chosen among the tasks that are ready; what belongs to no
task keeps its order. Time is a number: it moves a little with each callback, and to the next timer
when nothing is ready. So a run takes as long as its Python code, and is a function of the choices.

Sets of tasks (a cancel scope's, say) are walked in the order of addresses, which differs from run
to run. So what becomes ready within one callback is put in the order of the tasks' births.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, final

__all__ = ["Deadlock", "SimulatedLoop", "StepLimit"]

_STEP_S = 5e-6
_STEPS_TO_CLEAN_UP = 20_000
"""What the runner's own end may take after a run was given up."""
START_S = 1000.0


class Deadlock(BaseException):
    """Nothing is ready and no timer is armed: every task waits for ever."""


class StepLimit(BaseException):
    """The run has taken more steps than it may: something goes round in circles."""


@final
class _Task(asyncio.Task[Any]):
    number = 0


@final
class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one run.

    Args:
        choose: place of the task that runs next, among the numbers of those that could.
        on_step: called before each callback, with the number of the task that is about to run (0:
            a callback of no task).
        max_steps: after so many, the run is given up.
    """

    _ready: deque[Any]
    _scheduled: list[Any]
    _stopping: bool

    def __init__(
        self,
        choose: Callable[[Sequence[int]], int],
        on_step: Callable[[int], None],
        max_steps: int,
    ) -> None:
        super().__init__()
        self._now = START_S
        self._choose = choose
        self._on_step = on_step
        self._max_steps = max_steps
        self.steps = 0
        self._births = 0
        self.set_task_factory(self._make_task)
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        """Those that are alive, by number, in order of birth."""

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        self._now += seconds

    def _make_task(
        self, _loop: asyncio.AbstractEventLoop, coro: Any, /, **options: Any
    ) -> asyncio.Task[Any]:
        self._births += 1
        options["name"] = options.get("name") or f"task-{self._births}"
        task = _Task(coro, loop=self, **options)
        task.number = self._births
        self.tasks[task.number] = task
        task.add_done_callback(self._buried)
        return task

    def _buried(self, task: asyncio.Task[Any]) -> None:
        if isinstance(task, _Task):
            del self.tasks[task.number]

    def run_in_executor(self, *what: Any) -> Any:  # type: ignore[override]  # it never runs
        """A simulation has no threads."""
        raise RuntimeError(f"a simulation has no threads to run {what[1:]} in")

    def _write_to_self(self) -> None:
        """Nobody sleeps in a system call here."""

    def _run_once(self) -> None:
        ready = self._ready
        self._take_timers()
        if not ready:
            return
        if self.steps >= self._max_steps:
            limit, self._max_steps = self._max_steps, self.steps + _STEPS_TO_CLEAN_UP
            raise StepLimit(f"more than {limit} steps: {self.describe()}")
        handle = ready.popleft() if len(ready) == 1 else self._next()
        if handle._cancelled:
            return
        self._now += _STEP_S
        self.steps += 1
        self._on_step(_owner(handle))
        count = len(ready)
        handle._run()
        if len(ready) > count + 1:
            self._sort_from(count)

    def _take_timers(self) -> None:
        scheduled, ready = self._scheduled, self._ready
        while scheduled and (
            scheduled[0]._cancelled or not ready or scheduled[0]._when <= self._now
        ):
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                self._now = max(self._now, timer._when)
                ready.append(timer)
        if not ready and not self._stopping:
            raise Deadlock("every task waits for ever: " + self.describe())

    def _next(self) -> Any:
        ready = self._ready
        places: dict[int, int] = {}
        for place, handle in enumerate(ready):
            owner = _owner(handle)
            if owner not in places:
                places[owner] = place
        place = 0
        if len(places) > 1:
            owners = list(places)
            place = places[owners[self._choose(owners)]]
        handle = ready[place]
        del ready[place]
        return handle

    def _sort_from(self, start: int) -> None:
        """Order the tasks that became ready together by birth; all others keep their places."""
        ready = self._ready
        owned = [place for place in range(start, len(ready)) if _owner(ready[place])]
        handles = sorted((ready[place] for place in owned), key=_owner)
        for place, handle in zip(owned, handles, strict=True):
            ready[place] = handle

    def describe(self) -> str:
        """Who is alive, and where each waits."""
        return "; ".join(f"{task.get_name()} at {_where(task)}" for task in self.tasks.values())


def _owner(handle: Any) -> int:
    # The callback of a task's step and of its waking is bound to the task, in C and in Python.
    owner = getattr(handle._callback, "__self__", None)
    return owner.number if type(owner) is _Task else 0


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost coroutine of a task, and its line."""
    place = "its start"
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None)
        if frame is not None:
            place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        inner = getattr(inner, "cr_await", None)
    return place
