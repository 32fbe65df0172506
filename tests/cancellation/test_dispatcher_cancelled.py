"""The dispatcher's own task is cancelled, or its loop ends: the engine stops, whole and at once."""

import asyncio
import random
from collections.abc import Iterator
from functools import partial

import anyio
import pytest
import trio

from adapters.fake_device import FakeDevice
from kernel import (
    Engine,
    EngineClosed,
    EngineConfig,
    RunningTurn,
    Session,
    SessionClosed,
    SessionNotFound,
)
from kernel.engine import shell
from kernel.engine.core import Core
from tests.cancellation.holding import assert_stopped
from tests.cancellation.killing import Victim, deliver, start, tick
from tests.cancellation.operations import OPERATIONS, Scene
from tests.cancellation.stage import CONFIG, GREEDY


def _kill_dispatcher(backend: str) -> None:
    """Cancel the task that runs all actors: natively, or on trio the nursery that it is in."""
    if backend == "asyncio":
        (native,) = [task for task in asyncio.all_tasks() if "Shell" in task.get_name()]
        native.cancel()
        return
    root = trio.lowlevel.current_root_task()
    assert root is not None
    (nursery,) = [nursery for nursery, task in _tasks_below(root) if "Shell" in task.name]
    nursery.cancel_scope.cancel()


def _tasks_below(task: trio.lowlevel.Task) -> Iterator[tuple[trio.Nursery, trio.lowlevel.Task]]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield nursery, child
            yield from _tasks_below(child)


async def _open_and_kill(
    rng: random.Random, device: FakeDevice, backend: str, clients: list[Victim]
) -> Core:
    """Run some clients outside of the engine's block, and kill the dispatcher among them."""
    engine: Engine | None = None
    async with anyio.create_task_group() as outside:
        with pytest.raises(EngineClosed, match="dispatcher's task was cancelled"):
            async with Engine.open(CONFIG, device=device) as engine:
                shared = await engine.session().__aenter__()
                for _ in range(6):
                    work = OPERATIONS[rng.choice(sorted(OPERATIONS))]
                    scene = Scene(engine, shared, random.Random(rng.random()))
                    clients.append(start(backend, outside, partial(work, scene)))
                    for _ in range(rng.randint(0, 6)):
                        await tick()
                _kill_dispatcher(backend)
                await anyio.sleep(5)
        with anyio.fail_after(5):
            for client in clients:
                await client.wait()
    assert engine is not None
    return engine.core


@pytest.mark.parametrize("mode", ["inline", "thread"])
async def test_a_cancelled_dispatcher_stops_the_engine_and_tells_every_caller(
    mode: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ``finally`` is synchronous; no caller waits for an answer that can't come."""
    monkeypatch.setattr(shell, "_HOPS_PER_TURN", 1)
    for seed in range(40):
        device = (
            FakeDevice(eos_token_ids=())
            if mode == "inline"
            else FakeDevice(eos_token_ids=(), mode="thread", delay=0.0005)
        )
        try:
            core = await _open_and_kill(random.Random(seed), device, anyio_backend, [])
            assert_stopped(core)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


async def test_work_after_the_dispatchers_death_is_refused_and_not_left_waiting(
    anyio_backend: str,
) -> None:
    """A session object outlives its engine; using it then must raise, never wait."""
    session: Session | None = None
    engine: Engine | None = None
    with pytest.raises(EngineClosed):
        async with Engine.open(CONFIG, device=FakeDevice()) as engine:
            session = await engine.session().__aenter__()
            _kill_dispatcher(anyio_backend)
            await anyio.sleep(5)
    assert session is not None
    assert engine is not None
    for call in (
        partial(session.append, [1]),
        partial(session.turn([1]).__aenter__),
        partial(session.interrupt),
        partial(engine.complete, [1]),
        partial(engine.session().__aenter__),
        partial(anext, engine.generate([1])),
    ):
        with anyio.fail_after(2), pytest.raises((EngineClosed, SessionClosed, SessionNotFound)):
            await call()
    with anyio.fail_after(2):
        await session.close()
        await engine.settle()
        await engine.aclose(drain_timeout_s=1)
    assert not engine.abort("req-1")
    assert not engine.health().live


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_a_loop_that_ends_with_the_engine_open_loses_nothing(anyio_backend: str) -> None:
    """``asyncio.run`` cancels every task that is left, the dispatcher and its callers together."""
    for seed in range(40):
        rng = random.Random(seed)
        engines: list[Engine] = []
        asyncio.run(_leave_everything_running(rng, engines))
        (engine,) = engines
        try:
            assert_stopped(engine.core)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


async def _leave_everything_running(rng: random.Random, engines: list[Engine]) -> None:
    is_open = asyncio.Event()
    device = FakeDevice(eos_token_ids=(), delay=rng.choice([None, lambda _step: 0.0]))

    async def hold() -> None:
        async with Engine.open(CONFIG, device=device) as engine:
            engines.append(engine)
            is_open.set()
            await asyncio.sleep(60)

    holder = asyncio.create_task(hold())
    await is_open.wait()
    (engine,) = engines
    shared = await engine.session().__aenter__()
    clients: list[Victim] = []
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            work = OPERATIONS[rng.choice(sorted(OPERATIONS))]
            scene = Scene(engine, shared, random.Random(rng.random()))
            clients.append(start("asyncio", tasks, partial(work, scene)))
            for _ in range(rng.randint(0, 6)):
                await tick()
    assert not holder.done()


@pytest.mark.parametrize("anyio_backend", ["trio"])
def test_a_trio_main_that_is_cancelled_loses_nothing(anyio_backend: str) -> None:
    """The same on trio, where leaving everything running is cancelling the outermost scope."""
    for seed in range(20):
        engines: list[Engine] = []
        trio.run(_cancel_everything, random.Random(seed), engines)
        assert_stopped(engines[0].core)


async def _cancel_everything(rng: random.Random, engines: list[Engine]) -> None:
    with anyio.CancelScope() as everything:
        async with Engine.open(CONFIG, device=FakeDevice(delay=lambda _step: 0.0)) as engine:
            engines.append(engine)
            shared = await engine.session().__aenter__()
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    work = OPERATIONS[rng.choice(sorted(OPERATIONS))]
                    scene = Scene(engine, shared, random.Random(rng.random()))
                    start("trio", tasks, partial(work, scene))
                    for _ in range(rng.randint(0, 6)):
                        await tick()
                everything.cancel()


async def test_a_hanging_step_is_in_quarantine_when_the_dispatcher_is_cancelled(
    anyio_backend: str,
) -> None:
    """Nobody can prove that its slot is not written to any more, so the audit says so."""
    config = EngineConfig(model="fake", num_slots=2, num_pages=16, page_size=4, max_num_seqs=2)
    device = FakeDevice(mode="manual")
    engine: Engine | None = None
    with pytest.raises(EngineClosed):
        async with (
            Engine.open(config, device=device) as engine,
            engine.stream([1, 2, 3], GREEDY),
        ):
            await deliver(engine)
            assert len(device.waiting) == 1
            _kill_dispatcher(anyio_backend)
            await anyio.sleep(5)
    assert engine is not None
    audit = engine.core.audit
    assert audit is not None
    assert audit.conserved
    assert (audit.quarantined_slots, audit.free_slots) == (1, 1)
    assert engine.core.ledger.view.counters.reclaimed == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_open_turns_are_told_what_happened(anyio_backend: str) -> None:
    """Nobody had closed the engine, so the error must not say so."""
    turn: RunningTurn | None = None
    with pytest.raises(EngineClosed):
        async with Engine.open(CONFIG, device=FakeDevice(mode="manual")) as engine:
            turn = await engine.stream([1, 2, 3], GREEDY).__aenter__()
            _kill_dispatcher(anyio_backend)
            await anyio.sleep(5)
    assert turn is not None
    with pytest.raises(EngineClosed, match="dispatcher's task was cancelled"):
        await turn.wait()
