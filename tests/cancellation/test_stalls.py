"""A step that does not come back: quarantine, a successor, and an end that says what is lost."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel import (
    DeviceLost,
    Engine,
    EngineConfig,
    EngineFault,
    RunningTurn,
    SamplingParams,
    Session,
    TenureError,
)
from kernel.step import (
    DeviceStep,
    DeviceWorker,
    StepReport,
    TransferReport,
    TransferStep,
    WorkerContext,
)
from tests.cancellation.clock import Clock
from tests.cancellation.holding import assert_all_free, assert_stopped
from tests.cancellation.killing import deliver

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
CONFIG = EngineConfig(
    model="fake",
    num_slots=3,
    num_pages=40,
    page_size=4,
    max_num_seqs=3,
    max_num_batched_tokens=8,
    step_timeout_s=10,
    stop_timeout_s=0.05,
)


@attrs.frozen
class Stall:
    """An engine on a device whose steps hang when the test wants it."""

    engine: Engine
    device: FakeDevice
    clock: Clock

    async def hang(self, turn: RunningTurn) -> None:
        """Enter a turn whose step hangs past its deadline."""
        self.device.hang_next()
        await turn.__aenter__()
        await deliver(self.engine)
        await self.clock.advance(self.engine, 11)


@asynccontextmanager
async def _open(device: FakeDevice, config: EngineConfig = CONFIG) -> AsyncGenerator[Stall]:
    clock = Clock()
    async with Engine.open(config, device=device, environment=clock.environment()) as engine:
        yield Stall(engine, device, clock)


async def _a_session_at_rest(engine: Engine) -> Session:
    session = await engine.session().__aenter__()
    async with session.turn([1, 2, 3], GREEDY) as turn:
        await turn.wait()
    return session


async def test_an_overdue_step_fails_its_turns_and_nobody_elses(anyio_backend: str) -> None:
    """The claims stand in quarantine; sessions at rest go on with the successor's worker."""
    async with _open(FakeDevice(eos_token_ids=())) as stall:
        engine = stall.engine
        resting = await _a_session_at_rest(engine)
        lost = engine.stream([5, 6, 7], GREEDY)
        await stall.hang(lost)

        with pytest.raises(EngineFault, match="took longer than 10 s"):
            await lost.wait()
        health = engine.health()
        assert health.live
        assert health.ready
        assert health.quarantined_slots == 1
        async with resting.turn([9], GREEDY) as turn:
            assert len((await turn.wait()).token_ids) == 4
        assert engine.stats().reclaimed == 0

        stall.device.unhang()
        await engine.settle()
        await deliver(engine)
        assert engine.health().quarantined_slots == 0
        await resting.close()
        assert_all_free(engine.core)
    assert_stopped(engine.core)


async def test_a_late_completion_is_not_taken_for_a_result(anyio_backend: str) -> None:
    """What the old worker wrote lands as failed: the session's turn starts again from its base."""
    async with _open(FakeDevice(eos_token_ids=())) as stall:
        engine = stall.engine
        session = await _a_session_at_rest(engine)
        before = session.info
        lost = session.turn([8, 8], GREEDY)
        await stall.hang(lost)
        with pytest.raises(EngineFault):
            await lost.wait()
        stall.device.unhang()
        await deliver(engine)

        assert attrs.evolve(session.info, last_used_s=before.last_used_s) == before
        async with session.turn([8, 8], GREEDY) as again:
            warm = (await again.wait()).token_ids
        log = next(iter(engine.core.sessions.values())).state.log.tolist()[:-4]
        assert warm == (await engine.complete(log, GREEDY)).token_ids


async def test_a_second_stall_in_a_row_loses_the_device(anyio_backend: str) -> None:
    """Every open turn is told, also one that waits in its session or in the queue."""
    config = attrs.evolve(CONFIG, num_slots=2, max_num_seqs=1)
    async with _open(FakeDevice(eos_token_ids=()), config) as stall:
        engine = stall.engine
        session = await _a_session_at_rest(engine)
        first = engine.stream([5, 6, 7], GREEDY)
        await stall.hang(first)
        stall.device.hang_next()
        second = await session.turn([4], GREEDY).__aenter__()
        behind = await session.turn([4], GREEDY, wait=True).__aenter__()
        queued = await engine.stream([3], GREEDY).__aenter__()
        await deliver(engine)
        await stall.clock.advance(engine, 11)

        with pytest.raises(EngineFault):
            await first.wait()
        for turn in (second, behind, queued):
            with anyio.fail_after(2), pytest.raises(DeviceLost):
                await turn.wait()
        assert not engine.health().live
        assert "device is lost" in engine.health().why
        for call in (engine.complete([1]), session.turn([1]).__aenter__()):
            with pytest.raises(DeviceLost):
                await call
        stall.device.unhang()
    assert_stopped(engine.core)


async def test_a_turn_that_quarantine_leaves_no_room_for_fails(anyio_backend: str) -> None:
    """It can't wait for a slot that may never come back; the error says what holds it."""
    config = attrs.evolve(CONFIG, num_slots=1, max_num_seqs=1)
    async with _open(FakeDevice(eos_token_ids=()), config) as stall:
        engine = stall.engine
        lost = engine.stream([5, 6, 7], GREEDY)
        await stall.hang(lost)
        with anyio.fail_after(2), pytest.raises(EngineFault, match="quarantine"):
            await engine.complete([1], GREEDY)
        stall.device.unhang()
        await deliver(engine)
        assert len((await engine.complete([1], GREEDY)).token_ids) == 4
    assert_stopped(engine.core)


async def test_the_audit_says_what_a_step_that_never_ended_keeps(anyio_backend: str) -> None:
    """Closing waits until its deadline and no longer; then the slot is in quarantine for good."""
    async with _open(FakeDevice(eos_token_ids=())) as stall:
        lost = stall.engine.stream([5, 6, 7], GREEDY)
        await stall.hang(lost)
    audit = stall.engine.core.audit
    assert audit is not None
    assert audit.conserved
    assert audit.at_rest
    assert (audit.quarantined_slots, audit.free_slots) == (1, 2)
    assert stall.engine.core.ledger.view.counters.reclaimed == 0


class _SilentWorker:
    """Takes a step and ends without a word, as a killed process does."""

    def __init__(self) -> None:
        self._is_stopped = False

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        del step, done

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        del step, done

    def stop(self) -> None:
        self._is_stopped = True

    def join(self, timeout_s: float, /) -> bool:
        del timeout_s
        return self._is_stopped


class _DeviceWithSilentWorker(FakeDevice):
    """Its first worker is silent, the later ones work."""

    has_started = False

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:  # type: ignore[override]
        if not self.has_started:
            self.has_started = True
            return _SilentWorker()
        return super().start_worker(context)


async def test_the_proven_end_of_a_worker_ends_the_quarantine(anyio_backend: str) -> None:
    """Without any completion: a thread that has ended can't write any more."""
    device = _DeviceWithSilentWorker(eos_token_ids=())
    async with _open(device) as stall:
        lost = await stall.engine.stream([5, 6, 7], GREEDY).__aenter__()
        await deliver(stall.engine)
        await stall.clock.advance(stall.engine, 11)
        with pytest.raises(EngineFault):
            await lost.wait()
        await stall.clock.advance(stall.engine, 1)
        assert stall.engine.health().quarantined_slots == 0
        assert_all_free(stall.engine.core)
        assert len((await stall.engine.complete([1], GREEDY)).token_ids) == 4
    assert_stopped(stall.engine.core)


async def test_hanging_workers_hold_the_end_up_until_one_deadline(anyio_backend: str) -> None:
    """Three of them are waited for together, not one after the other."""
    device = FakeDevice(eos_token_ids=(), mode="thread")
    config = attrs.evolve(CONFIG, step_timeout_s=0.02, stop_timeout_s=0.2)
    begun = 0.0
    async with Engine.open(config, device=device) as engine:
        for _ in range(2):
            device.hang_next()
            with pytest.raises(TenureError):
                await engine.complete([1], GREEDY)
        device.hang_next()
        begun = anyio.current_time()
    assert anyio.current_time() - begun < 0.39
    assert engine.core.audit is not None
    assert engine.core.audit.quarantined_slots == 2
    device.unhang()
