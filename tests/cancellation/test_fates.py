"""What becomes of turns and sessions when something dies: who is told what, and who goes on."""

from collections.abc import MutableMapping
from typing import Any

import anyio
import attrs
import pytest
import structlog

from adapters.fake_device import FakeDevice
from kernel import (
    DeviceLost,
    Engine,
    EngineConfig,
    EngineFault,
    SamplingParams,
    Session,
    SessionLost,
    StepError,
    TenureError,
)
from kernel.engine import shell
from kernel.ids import GPU_POOL, SCHEDULER, SessionId, session_custodian
from tests.cancellation.holding import assert_at_rest, assert_stopped
from tests.cancellation.killing import deliver, tick

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
CONFIG = EngineConfig(
    model="fake",
    num_slots=4,
    num_pages=64,
    page_size=4,
    max_num_seqs=2,
    max_num_batched_tokens=4,
    stop_timeout_s=1.0,
)
PLANTED = RuntimeError("planted")


async def _talk(session: Session, prompt: list[int]) -> tuple[int, ...]:
    async with session.turn(prompt, GREEDY) as turn:
        return (await turn.wait()).token_ids


@pytest.mark.parametrize("victim", [SCHEDULER, GPU_POOL])
async def test_sessions_at_rest_survive_and_go_on_from_their_state(
    victim: Any, anyio_backend: str
) -> None:
    """Their states are their own; the next turn computes its new tokens and no history."""
    device = FakeDevice(eos_token_ids=())
    async with Engine.open(CONFIG, device=device) as engine:
        sessions = [await engine.session().__aenter__() for _ in range(3)]
        logs: list[list[int]] = []
        for number, session in enumerate(sessions):
            prompt = [number, 5, 6]
            logs.append([*prompt, *await _talk(session, prompt)])
        engine.core.dispatcher.kill(victim, PLANTED)

        for log, session in zip(logs, sessions, strict=True):
            async with session.turn([9], GREEDY) as turn:
                result = await turn.wait()
            assert result.usage.recomputed_tokens == 0
            assert result.usage.cached_tokens == len(log) - 1
            assert result.token_ids == (await engine.complete([*log, 9], GREEDY)).token_ids
        assert_at_rest(engine, device=device)


async def test_what_the_dead_held_is_reclaimed_by_its_type_and_a_lease_never(
    anyio_backend: str,
) -> None:
    """One working claim at the scheduler, one state at a session; the step's claims land."""
    events: list[MutableMapping[str, Any]] = []

    def keep(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
        events.append(dict(event))
        raise structlog.DropEvent

    device = FakeDevice(mode="manual", eos_token_ids=())
    logger = structlog.wrap_logger(None, processors=[keep])
    async with Engine.open(CONFIG, device=device, logger=logger) as engine:
        session = await engine.session(session_id="a").__aenter__()
        async with session.turn([1, 2], SamplingParams(temperature=0, max_tokens=1)) as turn:
            await deliver(engine)
            device.complete()
            await turn.wait()
        # Admitted together; one prompt fills the whole step, and the other claim stays behind.
        both = [engine.stream([number] * 9, GREEDY) for number in (1, 2)]
        async with anyio.create_task_group() as tasks:
            for out in both:
                tasks.start_soon(out.__aenter__)
        await deliver(engine)
        engine.core.dispatcher.kill(SCHEDULER, PLANTED)
        engine.core.dispatcher.kill(session_custodian(SessionId("a")), PLANTED)
        for out in both:
            with anyio.fail_after(2), pytest.raises(EngineFault, match="scheduler"):
                await out.wait()
        device.complete()
        await deliver(engine)
        reclaimed = [event["owner"] for event in events if event["event"] == "claim.reclaimed"]
        assert sorted(reclaimed) == ["batch", "session"]
        assert engine.stats().reclaimed == 2
    assert_stopped(engine.core, after_deaths=True)


@pytest.mark.parametrize("victim", [SCHEDULER, GPU_POOL])
async def test_too_many_deaths_fail_the_engine_cleanly(victim: Any, anyio_backend: str) -> None:
    """Everybody is told, nobody is let in, and the end is as orderly as ever."""
    config = attrs.evolve(CONFIG, max_restarts=2, stop_timeout_s=0.05)
    async with Engine.open(config, device=FakeDevice(mode="manual", eos_token_ids=())) as engine:
        session = await engine.session().__aenter__()
        turns = [
            await session.turn([1], GREEDY).__aenter__(),
            await session.turn([1], GREEDY, wait=True).__aenter__(),
            await engine.stream([1] * 9, GREEDY).__aenter__(),
            await engine.stream([1] * 9, GREEDY).__aenter__(),
        ]
        await deliver(engine)
        for _ in range(3):
            engine.core.dispatcher.kill(victim, PLANTED)
        for turn in turns:
            with anyio.fail_after(2), pytest.raises((EngineFault, DeviceLost)):
                await turn.wait()
        assert not engine.health().live
        assert "planted" in engine.health().why
        for call in (engine.complete([1]), session.append([1]), engine.session().__aenter__()):
            with anyio.fail_after(2), pytest.raises((EngineFault, DeviceLost)):
                await call
    audit = engine.core.audit
    assert audit is not None
    assert audit.at_rest


async def test_a_failed_step_fails_its_own_turns_and_nobody_elses(anyio_backend: str) -> None:
    """Sessions are where they were, and the same request succeeds when it is made again."""
    device = FakeDevice(eos_token_ids=())
    async with Engine.open(CONFIG, device=device) as engine:
        session, bystander = [await engine.session().__aenter__() for _ in range(2)]
        await _talk(session, [1, 2])
        await _talk(bystander, [3])
        before = session.info
        device.fail_next("planted fault")
        with pytest.raises(StepError, match="planted fault"):
            await _talk(session, [4])
        assert attrs.evolve(session.info, last_used_s=before.last_used_s) == before
        log = engine.core.session(SessionId(session.session_id)).state.log.tolist()
        again = await _talk(session, [4])
        assert again == (await engine.complete([*log, 4], GREEDY)).token_ids
        assert len(await _talk(bystander, [5])) == 4
        assert engine.core.dispatcher.deaths == 0
        assert_at_rest(engine, device=device)


async def test_a_lost_device_fails_every_open_turn_at_once(anyio_backend: str) -> None:
    """Those of the step, those that wait in line, and one that is still in the mail."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with Engine.open(CONFIG, device=device) as engine:
        session = await engine.session().__aenter__()
        turns = [
            await session.turn([1], GREEDY).__aenter__(),
            await session.turn([1], GREEDY, wait=True).__aenter__(),
            await engine.stream([2], GREEDY).__aenter__(),
            await engine.stream([3], GREEDY).__aenter__(),
        ]
        await deliver(engine)
        device.fail(why="planted loss", device_lost=True)
        for turn in turns:
            with anyio.fail_after(2), pytest.raises(DeviceLost, match="planted loss"):
                await turn.wait()
        with pytest.raises(DeviceLost):
            await engine.complete([1])
        health = engine.health()
        assert (health.live, health.ready) == (False, False)
        assert engine.core.dispatcher.deaths == 0
    assert_stopped(engine.core)


@pytest.mark.parametrize("victim", ["scheduler", "gpu-pool", "session:a"])
async def test_mail_that_the_dead_never_read_is_answered(
    victim: Any, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn, an append and an interrupt under way; wherever they were, nobody waits for ever."""
    monkeypatch.setattr(shell, "_HOPS_PER_TURN", 1)
    for ticks in range(14):
        outcomes: list[str] = []
        async with Engine.open(CONFIG, device=FakeDevice(eos_token_ids=())) as engine:
            session = await engine.session(session_id="a").__aenter__()

            async def ask(what: Any, outcomes: list[str] = outcomes) -> None:
                try:
                    await what()
                    outcomes.append("ok")
                except TenureError as error:
                    outcomes.append(type(error).__name__)

            async def turn(session: Session = session) -> None:
                await _talk(session, [1, 2])

            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ask, turn)
                    tasks.start_soon(ask, lambda session=session: session.append([1], wait=True))
                    tasks.start_soon(ask, session.interrupt)
                    for _ in range(ticks):
                        await tick()
                    engine.core.dispatcher.kill(victim, PLANTED)
            assert len(outcomes) == 3, (victim, ticks)
            known = {"ok", "TurnNotFound", "ValidationError", "TooLate", "SessionBusy"}
            known |= {"EngineFault", "StepError", "SessionLost", "SessionClosed"}
            assert set(outcomes) <= known, (victim, ticks, outcomes)
        assert_stopped(engine.core, after_deaths=True)


async def test_a_lost_session_takes_nobody_with_it(anyio_backend: str) -> None:
    """Its turn is cancelled at the scheduler, wherever it stands; the others never notice."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with Engine.open(CONFIG, device=device) as engine:
        doomed = await engine.session(session_id="a").__aenter__()
        other = await engine.session().__aenter__()
        lost = await doomed.turn([1, 2], GREEDY).__aenter__()
        kept = await other.turn([3, 4], GREEDY).__aenter__()
        await deliver(engine)
        engine.core.dispatcher.kill(session_custodian(SessionId("a")), PLANTED)
        with pytest.raises(SessionLost, match="planted"):
            await lost.wait()
        while not kept.has_result:
            device.complete()
            await deliver(engine)
        assert (await kept.wait()).finish_reason == "length"
        await other.close()
        assert engine.stats().slots_free == 4
    assert_stopped(engine.core, after_deaths=True)
