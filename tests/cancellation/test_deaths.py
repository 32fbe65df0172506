"""Actors die at every moment of their work: everyone is told, and every slot comes back."""

import random
from functools import partial

import anyio
import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel import DeviceLost, Engine, Session
from kernel.actors.actor import AnyActor
from kernel.devices.gpu_pool import GpuPool
from kernel.engine import shell
from kernel.ids import GPU_POOL, SCHEDULER
from kernel.scheduling.scheduler import Scheduler
from kernel.sessions.session import SessionActor
from tests.cancellation.holding import assert_all_free, assert_at_rest, assert_stopped
from tests.cancellation.killing import Victim, start, tick
from tests.cancellation.operations import OPERATIONS, Scene
from tests.cancellation.planting import Plant, plant
from tests.cancellation.stage import CONFIG, GREEDY

CONFIG_WITH_DEATHS = attrs.evolve(CONFIG, max_restarts=1000, stop_timeout_s=1.0)


async def _crowd(
    engine: Engine, shared: Session, rng: random.Random, backend: str, size: int
) -> None:
    """Clients of every kind on one shared session; all of them end, with typed errors at most."""
    async with anyio.create_task_group() as tasks:
        clients: list[Victim] = []
        for _ in range(size):
            work = OPERATIONS[rng.choice(sorted(OPERATIONS))]
            scene = Scene(engine, shared, random.Random(rng.random()))
            clients.append(start(backend, tasks, partial(work, scene)))
            for _ in range(rng.randint(0, 3)):
                await tick()
        with anyio.fail_after(5):
            for client in clients:
                await client.wait()


async def _check_the_end(engine: Engine, device: FakeDevice, shared: Session) -> None:
    with anyio.fail_after(5):
        while engine.health().quarantined_slots:
            await tick()  # until the workers of dead pools are seen to have ended
        await engine.settle()
        assert_at_rest(engine, device=device, after_deaths=True)
        out = await engine.complete([1, 2, 3], GREEDY)
        assert len(out.token_ids) == 4
        await shared.close()
        await engine.settle()
    assert_all_free(engine.core)


KINDS: dict[str, type[AnyActor]] = {
    "scheduler": Scheduler,
    "gpu pool": GpuPool,
    "session": SessionActor,
}


async def _crash_at_each(
    moments: range, kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in moments:
        what = Plant(KINDS[kind], moment)
        device = FakeDevice(eos_token_ids=())
        with monkeypatch.context() as patches:
            try:
                async with Engine.open(CONFIG_WITH_DEATHS, device=device) as engine:
                    plant(engine.core, what, patches)
                    shared = await engine.session().__aenter__()
                    await _crowd(engine, shared, random.Random(moment), backend, 6)
                    what.is_armed = False
                    await _check_the_end(engine, device, shared)
                assert_stopped(engine.core, after_deaths=True)
                assert engine.core.dispatcher.deaths <= bool(what.where)
            except BaseException as error:
                error.add_note(f"moment {moment}: {kind} crashed {what.where}")
                raise


@pytest.mark.parametrize("kind", KINDS)
async def test_a_crash_at_any_moment_of_a_handler_loses_nothing(
    kind: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a message, before and after each post, after the message: the n-th for many n."""
    await _crash_at_each(range(50), kind, anyio_backend, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_crash_at_any_later_moment_loses_nothing(
    kind: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, further into the lives of the actors."""
    await _crash_at_each(range(50, 600), kind, anyio_backend, monkeypatch)


async def _reap(engine: Engine, rng: random.Random, deaths: int) -> None:
    """Kill actors between two messages, whichever is up."""
    dispatcher = engine.core.dispatcher
    for number in range(deaths):
        for _ in range(rng.randint(1, 25)):
            await tick()
        names = [SCHEDULER, GPU_POOL, *(actor.name for actor in dispatcher.actors())]
        dispatcher.kill(rng.choice(names), RuntimeError(f"death {number}"))


async def _live_through_deaths(seed: int, kind: str, backend: str) -> None:
    rng = random.Random(f"{seed} {kind}")
    device = FakeDevice(eos_token_ids=())
    if kind == "thread":
        device = FakeDevice(eos_token_ids=(), mode="thread", delay=lambda _step: 0.0003)
    async with Engine.open(CONFIG_WITH_DEATHS, device=device) as engine:
        shared = await engine.session().__aenter__()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_reap, engine, rng, rng.randint(1, 5))
            await _crowd(engine, shared, rng, backend, 12)
        for _ in range(2000):
            # A dead pool's worker may still be in its step; its lease lands when that has ended.
            if engine.core.recovery.quarantine.is_empty:
                break
            await anyio.sleep(0.005)
        if engine.core.failure is None:
            await _check_the_end(engine, device, shared)
        else:
            # Two GPU pools died in a row and no step was completed between them.
            assert isinstance(engine.core.failure, DeviceLost)
    assert_stopped(engine.core, after_deaths=True)


@pytest.mark.parametrize("kind", ["inline", "thread"])
async def test_actors_killed_between_messages_lose_nothing(
    kind: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several in a row, while clients come and go and the device is anywhere in its step."""
    monkeypatch.setattr(shell, "_HOPS_PER_TURN", 1)
    for seed in range(25):
        try:
            await _live_through_deaths(seed, kind, anyio_backend)
        except BaseException as error:
            error.add_note(f"seed {seed}, device {kind}")
            raise
