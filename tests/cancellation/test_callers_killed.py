"""Callers' tasks killed natively, at every await and at random ticks: nobody else notices."""

import random
from functools import partial

import anyio
import pytest
from anyio.abc import TaskGroup

from adapters.fake_device import FakeDevice
from kernel.engine import shell
from kernel.step import DeviceStep
from tests.cancellation.killing import Victim, start, tick
from tests.cancellation.operations import OPERATIONS, Scene
from tests.cancellation.stage import Stage, open_stage
from tests.known import known


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_caller_killed_at_any_await_leaves_nothing_behind(
    name: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message a tick: the kill lands between any two messages, so at each of its awaits."""
    monkeypatch.setattr(shell, "_HOPS_PER_TURN", 1)
    async with (
        open_stage(FakeDevice(eos_token_ids=())) as stage,
        anyio.create_task_group() as tasks,
    ):
        ticks, is_done = 0, False
        while not is_done:
            scene = Scene(stage.engine, stage.shared, random.Random(name), lengths=(30,))
            victim = start(anyio_backend, tasks, partial(OPERATIONS[name], scene))
            for _ in range(ticks):
                await tick()
            is_done = victim.is_done
            victim.kill()
            await victim.wait()
            steps = stage.engine.core.counters.steps
            try:
                await stage.check_rest()
                extra = stage.engine.core.counters.steps - steps
                assert extra <= 1, "its turn ran on after the kill"
            except AssertionError as error:
                error.add_note(f"{name}, killed after {ticks} ticks")
                raise
            ticks += 1
            if known(stage.shared.info.num_tokens) > 60:
                await stage.check_tokens()
        await stage.check_tokens()


DEVICES = {
    "inline": lambda: FakeDevice(eos_token_ids=()),
    "timer": lambda: FakeDevice(eos_token_ids=(), delay=lambda _step: 0.0),
    "thread": lambda: FakeDevice(eos_token_ids=(), mode="thread", delay=_some_time),
}


def _some_time(step: DeviceStep) -> float:
    """Up to half a millisecond, as if drawn: the thread and the loop drift against each other."""
    return (step.step * 7919 % 11) / 22_000


@pytest.mark.parametrize("kind", DEVICES)
async def test_callers_killed_at_random_ticks_leave_nothing_behind(
    kind: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of them, many at once, some killed twice, wherever the device is in its step."""
    await _massacres(0, kind, anyio_backend, monkeypatch, rounds=12)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", DEVICES)
@pytest.mark.parametrize(
    "seed", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 11))]
)
async def test_many_more_callers_killed_leave_nothing_behind(
    seed: int, kind: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same by the thousand."""
    await _massacres(seed, kind, anyio_backend, monkeypatch, rounds=60)


async def _massacres(
    seed: int, kind: str, backend: str, monkeypatch: pytest.MonkeyPatch, *, rounds: int
) -> None:
    rng = random.Random(f"{seed} {kind}")
    kills = 0
    async with open_stage(DEVICES[kind]()) as stage, anyio.create_task_group() as tasks:
        for number in range(rounds):
            monkeypatch.setattr(shell, "_HOPS_PER_TURN", rng.choice([1, 2, 5, 256]))
            kills += await _massacre(stage, rng, backend, tasks, victims=24)
            try:
                await stage.check_rest()
                await stage.check_tokens()
            except AssertionError as error:
                error.add_note(f"seed {seed}, device {kind}, after round {number}")
                raise
    assert kills > rounds * 8, "most victims had ended before they were killed"


async def _massacre(
    stage: Stage, rng: random.Random, backend: str, tasks: TaskGroup, *, victims: int
) -> int:
    """Start victims one by one and kill most of them, each at a random tick of its life."""
    crowd: list[Victim] = []
    kills = 0
    for _ in range(victims):
        scene = Scene(stage.engine, stage.shared, random.Random(rng.random()))
        operation = OPERATIONS[rng.choice(sorted(OPERATIONS))]
        crowd.append(start(backend, tasks, partial(operation, scene)))
        for _ in range(rng.choice([0, 0, 1, 2, 5])):
            await tick()
        for victim in rng.sample(crowd, k=rng.randint(0, min(2, len(crowd)))):
            kills += not victim.is_done
            victim.kill()
    for victim in crowd:
        if rng.random() < 0.7:
            kills += not victim.is_done
            victim.kill()
            if rng.random() < 0.3:
                await tick()
                victim.kill()
    for victim in crowd:
        await victim.wait()
    return kills
