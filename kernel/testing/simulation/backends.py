# pyright: reportPrivateUsage=false
# Trio says nowhere else in which order it runs tasks; its plugin for hypothesis does the same.
"""Runs one world on asyncio or on trio: the loop, the clock and the order are the world's."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import anyio

from kernel.testing.simulation.loop import Deadlock, SimulatedLoop, StepLimit
from kernel.testing.simulation.tape import Backend
from kernel.testing.simulation.timeline import AsyncioTimeline, TrioTimeline
from kernel.testing.simulation.world import World

__all__ = ["drive"]

Scenario = Callable[[World], Awaitable[object]]

_LONGEST_RUN_S = 1e8


def drive(backend: Backend, world: World, scenario: Scenario, *, max_steps: int) -> None:
    """Run a scenario to its end; whatever goes wrong is noted in the world."""
    run = _on_asyncio if backend == "asyncio" else _on_trio
    try:
        run(world, scenario, max_steps)
    except Deadlock as error:
        world.fail("deadlock", str(error))
    except StepLimit as error:
        world.fail("steps", str(error))
    except Exception as error:
        world.fail("scenario", repr(_alone(error)))


def _alone(error: BaseException) -> BaseException:
    """What a group of one is about: trio's nursery wraps, asyncio's loop does not."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _alone(group.exceptions[0]) if len(group.exceptions) == 1 else group


def _on_asyncio(world: World, scenario: Scenario, max_steps: int) -> None:
    loop = SimulatedLoop(world.choose_task, world.on_step, max_steps)
    loop.set_exception_handler(lambda _, context: _report(world, context))

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        world.timeline = AsyncioTimeline(loop, task)
        await scenario(world)
        # Callbacks of what has just ended are still to come.
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        _report_left_over(world)

    anyio.run(main, backend="asyncio", backend_options={"loop_factory": lambda: loop})
    world.seen["loop steps"] += loop.steps


def _report(world: World, context: dict[str, Any]) -> None:
    world.fail("loop", f"{context.get('message')}: {context.get('exception')!r}")


def _report_left_over(world: World) -> None:
    if left := world.timeline.left_over():
        world.fail("tasks", f"still alive at the end: {left}")


class _Steps:
    """A trio instrument: hears of each step of a task."""

    def __init__(self, world: World, order: "_Order", max_steps: int, clock: Any) -> None:
        self._world = world
        self._order = order
        self._max_steps = max_steps
        self._clock = clock
        self.steps = 0
        self.scope: anyio.CancelScope | None = None

    def before_task_step(self, task: Any) -> None:
        self._clock.jump(5e-6)
        self.steps += 1
        if self.steps > self._max_steps and self.scope is not None:
            self.scope.cancel()
            return
        if self.scope is not None:
            self._world.on_step(self._order.number(task))


class _Order:
    """Stands in for the random generator with which trio orders the tasks that are ready."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers: dict[int, int] = {}

    def number(self, task: Any) -> int:
        """Trio counts the tasks of a process; this counts those of a run."""
        return self._numbers.setdefault(task._counter, len(self._numbers) + 1)

    def shuffle(self, batch: list[Any]) -> None:
        """Put the batch in the chosen order; trio takes from the end."""
        left = list(batch)
        batch.clear()
        while left:
            numbers = [self.number(task) for task in left]
            place = self._world.choose_task(numbers) if len(left) > 1 else 0
            batch.insert(0, left.pop(place))


def _on_trio(world: World, scenario: Scenario, max_steps: int) -> None:
    # Only for those who have trio: the kernel itself does without.
    clock = importlib.import_module("trio.testing").MockClock(autojump_threshold=0)
    clock.jump(1000.0)
    order = _Order(world)
    steps = _Steps(world, order, max_steps, clock)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            world.timeline = TrioTimeline(clock, tasks)
            with anyio.CancelScope() as steps.scope:
                tasks.start_soon(_watch_for_deadlock, world, steps.scope)
                await scenario(world)
            steps.scope = None
            if steps.steps > max_steps:
                world.fail("steps", f"more than {max_steps} steps")
            _report_left_over(world)
            tasks.cancel_scope.cancel()

    options = {"clock": clock, "instruments": [steps]}
    with _chosen_order(order):
        anyio.run(main, backend="trio", backend_options=options)
    world.seen["loop steps"] += steps.steps


async def _watch_for_deadlock(world: World, scope: anyio.CancelScope) -> None:
    """Wake when the clock has nowhere else to jump to; trio itself would wait for the network."""
    await anyio.sleep(_LONGEST_RUN_S)
    world.fail("deadlock", "every task waits for ever")
    scope.cancel()


@contextmanager
def _chosen_order(order: _Order) -> Generator[None]:
    run: Any = importlib.import_module("trio._core._run")
    before = run._r, run._ALLOW_DETERMINISTIC_SCHEDULING
    run._r, run._ALLOW_DETERMINISTIC_SCHEDULING = order, True
    try:
        yield
    finally:
        run._r, run._ALLOW_DETERMINISTIC_SCHEDULING = before
