"""Closing an engine at any moment: the door, the turns, the device, and then the audit."""

from collections.abc import MutableMapping
from typing import Any

import anyio
import attrs
import pytest
import structlog

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineClosed, EngineConfig, RunningTurn, SamplingParams
from tests.cancellation.holding import assert_stopped
from tests.cancellation.killing import deliver

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
CONFIG = EngineConfig(
    model="fake",
    num_slots=2,
    num_pages=40,
    page_size=4,
    max_num_seqs=1,
    max_num_batched_tokens=8,
    stop_timeout_s=0.05,
)


async def _outcome(turn: RunningTurn) -> str:
    with anyio.fail_after(5):
        try:
            return str((await turn.wait()).finish_reason)
        except EngineClosed:
            return "closed"


async def test_closing_ends_a_running_and_a_queued_turn_as_closed(anyio_backend: str) -> None:
    """Both callers are told before anything is torn down; nothing is held afterwards."""
    device = FakeDevice(eos_token_ids=(), delay=lambda _step: 0.001)
    async with Engine.open(CONFIG, device=device) as engine:
        session = await engine.session().__aenter__()
        running = await session.turn([1, 2, 3], GREEDY).__aenter__()
        behind = await session.turn([4], GREEDY, wait=True).__aenter__()
        queued = await engine.stream([5], GREEDY).__aenter__()
        await anext(running)
        await engine.aclose()
        assert [await _outcome(turn) for turn in (running, behind, queued)] == ["closed"] * 3
    assert_stopped(engine.core)


async def test_closing_waits_for_the_step_that_runs(anyio_backend: str) -> None:
    """The device may still write: its lease lands first, then the claim is rolled back."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    config = attrs.evolve(CONFIG, stop_timeout_s=10.0)
    async with Engine.open(config, device=device) as engine:
        await engine.stream([1, 2, 3], GREEDY).__aenter__()
        await deliver(engine)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.aclose)
            await deliver(engine)
            assert engine.audit().batch == 1
            device.complete()
        assert engine.audit().batch == 0
    assert_stopped(engine.core)


async def test_a_step_that_hangs_beyond_the_deadline_stands_in_the_audit(
    anyio_backend: str,
) -> None:
    """Free or quarantined, and nothing else."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with Engine.open(CONFIG, device=device) as engine:
        turn = await engine.stream([1, 2, 3], GREEDY).__aenter__()
        await deliver(engine)
    audit = engine.core.audit
    assert audit is not None
    assert audit.at_rest
    assert (audit.quarantined_slots, audit.free_slots) == (1, 1)
    assert await _outcome(turn) == "closed"


async def test_a_drain_lets_every_open_turn_end(anyio_backend: str) -> None:
    """Also one that waits behind another, and one whose submission is still in the mail."""
    device = FakeDevice(eos_token_ids=(), delay=lambda _step: 0.0005)
    async with Engine.open(CONFIG, device=device) as engine:
        session = await engine.session().__aenter__()
        turns = [
            await session.turn([1, 2, 3], GREEDY).__aenter__(),
            await session.turn([4], GREEDY, wait=True).__aenter__(),
            await engine.stream([5], GREEDY).__aenter__(),
        ]
        results: list[str] = []
        is_submitted = anyio.Event()

        async def late() -> None:
            is_submitted.set()
            async with engine.stream([6], GREEDY) as out:
                results.append(await _outcome(out))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late)
            await is_submitted.wait()
            await engine.aclose(drain_timeout_s=10)
            results += [await _outcome(turn) for turn in turns]
        assert results == ["length"] * 4
        with pytest.raises(EngineClosed):
            await engine.complete([1])
    assert_stopped(engine.core)


async def test_no_work_is_taken_while_a_drain_goes_on(anyio_backend: str) -> None:
    """Else it might never end."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with Engine.open(CONFIG, device=device) as engine:
        session = await engine.session().__aenter__()
        open_turn = await engine.stream([1], GREEDY).__aenter__()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: engine.aclose(drain_timeout_s=10))
            await deliver(engine)
            for call in (
                engine.complete([1]),
                session.turn([1]).__aenter__(),
                session.append([1]),
                engine.session().__aenter__(),
            ):
                with pytest.raises(EngineClosed):
                    await call
            assert not engine.health().ready
            while open_turn.has_result is False:
                if device.waiting:
                    device.complete()
                await deliver(engine)
        assert await _outcome(open_turn) == "length"
    assert_stopped(engine.core)


async def test_a_drain_that_takes_too_long_is_cut_short(anyio_backend: str) -> None:
    """``drain_timeout_s`` is a bound, and what is left then ends as closed."""
    device = FakeDevice(eos_token_ids=(), delay=lambda _step: 0.001)
    endless = SamplingParams(temperature=0, ignore_eos=True)
    async with Engine.open(CONFIG, device=device) as engine:
        turn = await engine.stream([1], endless).__aenter__()
        with anyio.fail_after(5):
            await engine.aclose(drain_timeout_s=0.03)
        assert await _outcome(turn) == "closed"
    assert_stopped(engine.core)


async def test_closing_twice_and_from_many_tasks_is_one_close(anyio_backend: str) -> None:
    """The block's own end is one of them."""
    async with Engine.open(CONFIG, device=FakeDevice(delay=lambda _step: 0.001)) as engine:
        await engine.stream([1], GREEDY).__aenter__()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(engine.aclose)
        await engine.aclose()
    await engine.aclose()
    assert_stopped(engine.core)


async def test_a_close_that_is_cancelled_is_finished_by_the_block(anyio_backend: str) -> None:
    """A cancelled drain ends the engine at once; no state in between is left."""
    device = FakeDevice(eos_token_ids=(), delay=lambda _step: 0.001)
    async with Engine.open(CONFIG, device=device) as engine:
        turn = await engine.stream([1], SamplingParams(ignore_eos=True)).__aenter__()
        with anyio.move_on_after(0.02):
            await engine.aclose(drain_timeout_s=10)
        assert await _outcome(turn) == "closed"
    assert_stopped(engine.core)


async def test_the_last_events_are_the_audit_and_the_end(anyio_backend: str) -> None:
    """The log alone tells that nothing was left, and that nothing came after."""
    events: list[MutableMapping[str, Any]] = []

    def keep(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
        events.append(dict(event))
        raise structlog.DropEvent

    logger = structlog.wrap_logger(None, processors=[keep])
    device = FakeDevice(eos_token_ids=(), delay=lambda _step: 0.001)
    async with Engine.open(CONFIG, device=device, logger=logger) as engine:
        session = await engine.session().__aenter__()
        await (await session.turn([1], GREEDY).__aenter__()).wait()
        await engine.stream([1], GREEDY).__aenter__()
        await anyio.sleep(0.005)
    names = [event["event"] for event in events]
    assert names[-2:] == ["ledger.audited", "engine.closed"]
    assert events[-1]["conserved"] is True
    closes = [number for number, name in enumerate(names) if name == "claim.closed"]
    assert closes, "the session's state was closed, not reclaimed"
    assert "claim.reclaimed" not in names
