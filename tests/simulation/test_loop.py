"""The event loop of a run: virtual time, a chosen order, no threads."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio
import pytest

from kernel.testing.simulation.loop import Deadlock, SimulatedLoop, StepLimit
from kernel.testing.simulation.strategies import make_strategy

Main = Callable[[], Awaitable[object]]


def run(main: Main, *, strategy: str = "fifo", seed: int = 0, max_steps: int = 10_000) -> object:
    chosen = make_strategy("random" if strategy == "random" else "fifo", seed)

    def make_loop() -> SimulatedLoop:
        return SimulatedLoop(chosen.task, lambda _: None, max_steps)

    return anyio.run(main, backend="asyncio", backend_options={"loop_factory": make_loop})


def test_an_hour_takes_no_time() -> None:
    """Deadlines of minutes are tested in every run."""

    async def main() -> float:
        before = anyio.current_time()
        await anyio.sleep(3600)
        return anyio.current_time() - before

    begun = time.perf_counter()

    assert run(main) == pytest.approx(3600, abs=0.01)
    assert time.perf_counter() - begun < 5


def test_timers_fire_in_the_order_of_their_times() -> None:
    """Time never goes back, whoever sleeps."""

    async def main() -> list[int]:
        woken: list[int] = []

        async def sleeper(seconds: int) -> None:
            await anyio.sleep(seconds)
            woken.append(seconds)

        async with anyio.create_task_group() as tasks:
            for seconds in (5, 1, 3):
                tasks.start_soon(sleeper, seconds)
        return woken

    assert run(main) == [1, 3, 5]


def order_of_tasks(strategy: str, seed: int) -> object:
    async def main() -> tuple[int, ...]:
        ran: list[int] = []

        async def work(number: int) -> None:
            for _ in range(3):
                ran.append(number)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(work, number)
        return tuple(ran)

    return run(main, strategy=strategy, seed=seed)


def test_the_order_of_tasks_is_the_strategys() -> None:
    """First in, first out is one order among many that an application may meet."""
    orders = {order_of_tasks("random", seed) for seed in range(10)}

    assert order_of_tasks("fifo", 0) == (0, 1, 2, 3) * 3
    assert len(orders) > 5
    assert order_of_tasks("random", 3) == order_of_tasks("random", 3)


def test_waiting_for_nothing_is_said_and_not_waited_for() -> None:
    """On a real loop this is a test that hangs."""

    async def main() -> None:
        await anyio.Event().wait()

    with pytest.raises(Deadlock, match="waits for ever"):
        run(main)


def test_going_round_in_circles_ends() -> None:
    """A livelock must be a failure with a name."""

    async def main() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    with pytest.raises(StepLimit, match="more than 200 steps"):
        run(main, max_steps=200)


def test_a_thread_is_refused() -> None:
    """What it does would be on no tape."""

    async def main() -> None:
        await asyncio.get_running_loop().run_in_executor(None, time.time)

    with pytest.raises(RuntimeError, match="no threads"):
        run(main)
