"""Actors die at every moment of their work: everyone is told, and every slot comes back."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import attrs
import pytest
from anyio.abc import TaskGroup

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, Session, SessionLost, shell
from kernel.actor import AnyActor
from kernel.gpu_pool import GpuPool
from kernel.ids import GPU_POOL, SCHEDULER, SessionId, session_custodian
from kernel.scheduler import Scheduler
from kernel.session import SessionActor
from tests.cancellation.holding import assert_all_free, assert_at_rest
from tests.cancellation.killing import start, tick
from tests.cancellation.operations import OPERATIONS, Scene
from tests.cancellation.planting import Plant, plant
from tests.cancellation.stage import CONFIG, GREEDY

CONFIG_WITH_DEATHS = attrs.evolve(CONFIG, max_restarts=1000, stop_timeout_s=1.0)


async def _crowd(engine: Engine, rng: random.Random, backend: str, size: int) -> Session:
    """Clients of every kind on one shared session; all of them end, with typed errors at most."""
    shared = await engine.session().__aenter__()
    async with anyio.create_task_group() as tasks:
        clients = []
        for _ in range(size):
            work = OPERATIONS[rng.choice(sorted(OPERATIONS))]
            scene = Scene(engine, shared, random.Random(rng.random()))
            clients.append(start(backend, tasks, partial(work, scene)))
            for _ in range(rng.randint(0, 3)):
                await tick()
        with anyio.fail_after(5):
            for client in clients:
                await client.wait()
    return shared


async def _check_the_end(engine: Engine, device: FakeDevice, shared: Session) -> None:
    with anyio.fail_after(5):
        await engine.settle()
        assert_at_rest(engine, device=device, reclaimed=engine.stats().reclaimed)
        out = await engine.complete([1, 2, 3], GREEDY)
        assert len(out.token_ids) == 4
        await shared.close()
        await engine.settle()
    assert_all_free(engine.core)


KINDS = {"scheduler": Scheduler, "gpu pool": GpuPool, "session": SessionActor}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_crash_at_any_moment_of_a_handler_loses_nothing(
    kind: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a message, before and after each post, after the message: the n-th moment, for all n."""
    for moment in range(60):
        what = Plant(KINDS[kind], moment)
        device = FakeDevice(eos_token_ids=())
        with monkeypatch.context() as patches:
            try:
                async with Engine.open(CONFIG_WITH_DEATHS, device=device) as engine:
                    plant(engine.core, what, patches)
                    shared = await _crowd(engine, random.Random(moment), anyio_backend, 6)
                    await _check_the_end(engine, device, shared)
                assert engine.core.audit is not None
                assert engine.core.audit.at_rest, engine.core.audit
                assert engine.core.dispatcher.deaths == what.has_struck
            except BaseException as error:
                error.add_note(f"moment {moment}: {kind} crashed {what.where}")
                raise
