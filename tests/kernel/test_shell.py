"""The shell: the one place that waits. It yields, sleeps, wakes, and holds nothing."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kernel import Engine, SamplingParams
from kernel.actors.actor import Address
from kernel.actors.dispatcher import Dispatcher
from kernel.messages import CloseSession, SessionMessage
from tests.kernel.small import GREEDY, LONG, config, opened


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each run of a dispatcher."""
    counted: list[int] = []
    run = Dispatcher.run

    def counting(self: Dispatcher, limit: int, **how: Any) -> bool:
        counted.append(limit)
        return run(self, limit, **how)

    monkeypatch.setattr(Dispatcher, "run", counting)
    return counted


async def eventually(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def test_a_long_computation_leaves_turns_to_the_callers_loop() -> None:
    """A device that completes inside ``submit`` would otherwise run a turn in one go."""
    params = SamplingParams(temperature=0, max_tokens=800, ignore_eos=True, detokenize=False)
    loops = 0
    async with Engine.open(config(), device=opened()) as engine:

        async def spin() -> None:
            nonlocal loops
            while True:
                loops += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(spin)
            await engine.complete([1], params)
            tasks.cancel_scope.cancel()

    assert loops > 10


async def test_an_idle_engine_does_not_run(runs: list[int]) -> None:
    """It sleeps until mail, a completion or a timer comes; no polling."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session() as session:
            await session.append([1, 2, 3])
            await engine.settle()
            await anyio.sleep(0.01)
            before = len(runs)
            await anyio.sleep(0.1)
            idle = len(runs) - before

    assert idle == 0


async def test_a_timer_wakes_it() -> None:
    """At its time, with no other event."""
    async with Engine.open(config(), device=opened()) as engine:
        fired: list[float] = []
        dispatcher = engine.core.dispatcher
        start = dispatcher.now()
        dispatcher.call_at(start + 1000, lambda: None)
        await anyio.sleep(0.005)
        dispatcher.call_at(start + 0.02, lambda: fired.append(dispatcher.now()))
        await eventually(lambda: bool(fired))

        assert fired[0] >= start + 0.02


async def test_a_completion_from_another_thread_wakes_it() -> None:
    """The device's thread posts; the loop is woken without being blocked."""
    async with Engine.open(config(), device=opened(mode="thread", delay=0.002)) as engine:
        results = await engine.map([[1], [2, 3], [4]], GREEDY)

    assert [len(result.token_ids) for result in results] == [4, 4, 4]
    assert engine.core.audit is not None
    assert engine.core.audit.at_rest


async def test_a_post_between_the_last_look_and_the_wait_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A completion may come from a thread just then; slept through, it would wait for ever."""
    sneaking: list[Callable[[], None]] = []
    run = Dispatcher.run

    def run_and_sneak(self: Dispatcher, limit: int, **how: Any) -> bool:
        more = run(self, limit, **how)
        if not more and sneaking:
            sneaking.pop()()
        return more

    monkeypatch.setattr(Dispatcher, "run", run_and_sneak)
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session() as session:
            dispatcher = engine.core.dispatcher
            (actor,) = engine.core.sessions.values()
            address = Address[SessionMessage](actor.name)
            sneaking.append(lambda: dispatcher.post_later(address, CloseSession()))
            await session.append([1])
            await eventually(lambda: actor.is_closed)

        assert not sneaking


async def test_settle_waits_for_the_step_in_flight() -> None:
    """So that a balance can be read after a turn was left."""
    async with Engine.open(config(), device=opened(delay=0.02)) as engine:
        async with engine.stream([1], LONG):
            await anyio.sleep(0.005)
        during = engine.audit().batch
        await engine.settle()

        assert during == 1
        assert engine.audit().batch == 0


async def test_what_waits_on_a_stopped_engine_is_let_go() -> None:
    """Nobody serves messages any more; waiting for them would be for ever."""
    async with Engine.open(config(), device=opened()) as engine:
        await engine.aclose()
        with anyio.fail_after(5):
            await engine.settle()
    with anyio.fail_after(5):
        await engine.settle()

    assert not engine.health().live


async def test_a_cancelled_wait_for_rest_harms_nothing() -> None:
    """``settle`` holds nothing while it waits."""
    async with Engine.open(config(), device=opened(delay=0.05)) as engine:
        async with engine.stream([1], GREEDY) as out:
            with anyio.move_on_after(0.005) as scope:
                await engine.settle()
            result = await out.wait()

    assert scope.cancelled_caught
    assert len(result.token_ids) == 4
