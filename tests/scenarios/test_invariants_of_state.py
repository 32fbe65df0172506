"""The ten invariants, first half: what states hold, and who may write them. On both models."""

import random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kernel import RequestAborted, Session, StepError, TurnTimeout
from tests.scenarios.inputs import on_both_models
from tests.scenarios.stage import DeviceFactory, Stage, greedy, open_fake, open_stage, prompt
from tests.scenarios.writers import EventLog, assert_no_foreign_reads


async def live(stage: Stage, number: int, turns: int) -> None:
    """A session that takes turns, and sometimes leaves one of them early."""
    rng = random.Random(number)
    async with stage.engine.session() as session:
        history: list[int] = []
        for _ in range(turns):
            tokens = prompt(rng.choice([1, 3, 6]), rng.randrange(9))
            async with session.turn(tokens, greedy(rng.choice([2, 4]))) as turn:
                if rng.random() < 0.25:
                    await anext(turn)
                else:
                    await turn.wait()
            await stage.settle()
            if turn.has_result:
                history = stage.note(history, turn.result)


@on_both_models
async def test_1_a_slot_that_is_read_was_written_by_its_reader_alone(
    opened_device: DeviceFactory,
) -> None:
    """Since its last zeroing or copy; pages by the reader or those whose state it started from."""
    log = EventLog()
    async with open_stage(
        opened_device, num_slots=4, num_pages=20, max_num_batched_tokens=8
    ) as stage:
        stage.engine.core.ledger.observer = log
        stage.device.open()
        await live(stage, 7, 4)
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(live, stage, number, 2)
        stats = stage.engine.stats()
    seen = assert_no_foreign_reads(stage.device.steps, log, page_size=4)
    assert all(seen.values()), seen
    assert stats.forced_parks > 0


@on_both_models
async def test_2_every_slot_is_counted_once_after_whatever_happens(
    opened_device: DeviceFactory,
) -> None:
    """Steps, aborts, timeouts, failures: free, batch, session and draining make the pool."""
    async with (
        open_stage(opened_device, num_slots=3, num_pages=20) as stage,
        stage.engine.session() as session,
    ):
        history = stage.note([], await stage.run(session.turn(prompt(4), greedy(2))))
        async with (
            stage.engine.stream(prompt(5, 1), greedy(8)) as plain,
            session.turn(prompt(3, 2), greedy(8), timeout_s=5) as turn,
        ):
            await stage.step(2)
            assert stage.engine.abort(plain.request_id)
            await stage.step()
            await stage.advance(5)
            await stage.drain()
            with pytest.raises(RequestAborted):
                await plain.wait()
            with pytest.raises(TurnTimeout):
                await turn.wait()
        async with session.turn(prompt(3, 3), greedy(8)) as turn:
            await stage.step(2)
            await stage.fail_step()
            with pytest.raises(StepError):
                await turn.wait()
        assert stage.engine.audit().session == 1
        stage.note(history, await stage.run(session.turn(prompt(2, 4), greedy(2))))


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 64])
async def test_3_a_turn_equals_a_fresh_request_with_all_the_tokens(chunk: int) -> None:
    """With every chunking, over turns that keep their state and one that lost it."""
    await equal_a_fresh_request(open_fake, chunk)


@pytest.mark.parametrize(
    ("anyio_backend", "opened_device", "chunk"),
    [("asyncio", "bundled", 3), ("trio", "bundled", 64)],
    indirect=["opened_device"],
)
async def test_3_the_same_on_a_real_model(opened_device: DeviceFactory, chunk: int) -> None:
    """Chunked and recurrent scans agree far below the distance of two candidates."""
    await equal_a_fresh_request(opened_device, chunk)


async def equal_a_fresh_request(open_device: DeviceFactory, chunk: int) -> None:
    async with (
        open_stage(
            open_device,
            num_slots=2,
            num_pages=20,
            max_num_seqs=1,
            max_num_batched_tokens=chunk,
        ) as stage,
        stage.engine.session() as session,
    ):
        history: list[int] = []
        for number, length in enumerate([7, 1, 4]):
            if number == 2:
                # Takes both slots' worth of pages: the session is down to its log.
                await stage.run(stage.engine.stream(prompt(74), greedy(1)))
                assert session.info.place == "log"
            turn = session.turn(prompt(length, number), greedy(4))
            history = stage.note(history, await stage.run(turn))


async def cancel_after(scope: anyio.CancelScope, ticks: int) -> None:
    for _ in range(ticks):
        await anyio.lowlevel.checkpoint()
    scope.cancel()


async def turn_cancelled_after(
    stage: Stage, session: Session, history: list[int], ticks: int, **options: Any
) -> list[int]:
    """One turn whose caller is cancelled so many ticks later; returns the history then."""
    turn = session.turn(prompt(5, ticks), greedy(6), **options)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_after, scope, ticks)
            async with turn:
                async for _ in turn:
                    pass
            tasks.cancel_scope.cancel()
    # The session decides which came first, the end or the cancel.
    await stage.settle()
    if options:
        # Ends when its step lands, and the session answers after that.
        await session.append([1], wait=True)
        if turn.has_result:
            history = stage.note(history, turn.result)
        history = [*history, 1]
    elif turn.has_result:
        history = stage.note(history, turn.result)
    assert session.info.num_tokens == len(history)
    return history


@pytest.mark.parametrize("options", [{}, {"on_exit": "keep"}], ids=["rollback", "keep"])
async def test_4_cancelling_at_any_tick_leaves_a_boundary(options: dict[str, str]) -> None:
    """Rolled back to the turn's start, or kept at the count that its result reports."""
    for ticks in range(25):
        await cancelled_at(open_fake, ticks, options)


@pytest.mark.parametrize(
    ("anyio_backend", "opened_device", "options"),
    [("asyncio", "bundled", {}), ("trio", "bundled", {"on_exit": "keep"})],
    indirect=["opened_device"],
)
async def test_4_the_same_on_a_real_model(
    opened_device: DeviceFactory, options: dict[str, str]
) -> None:
    """Here a tick falls anywhere within a step."""
    for ticks in (0, 3, 200):
        await cancelled_at(opened_device, ticks, options)


async def cancelled_at(open_device: DeviceFactory, ticks: int, options: dict[str, str]) -> None:
    async with (
        open_stage(open_device, num_slots=4, num_pages=30) as stage,
        stage.engine.session() as session,
    ):
        stage.device.open()
        history = await turn_cancelled_after(stage, session, [], ticks, **options)
        history = await turn_cancelled_after(stage, session, history, ticks + 1, **options)
        async with session.turn(prompt(3), greedy(3), wait=True) as turn:
            stage.note(history, await turn.wait())


@on_both_models
async def test_5_as_many_idle_sessions_as_may_be_open_stop_no_one_shot(
    opened_device: DeviceFactory,
) -> None:
    """It is served in as many steps as if it were alone, and one for the room to come back."""
    async with open_stage(opened_device, num_slots=2, num_pages=8, max_sessions=4) as stage:
        async with anyio.create_task_group() as tasks:
            stage.device.open()
            for number in range(4):
                tasks.start_soon(_use_once, stage, number)
        stage.device.holds = True
        assert stage.free[0] == 0
        steps = len(stage.device.steps)
        stage.note([], await stage.run(stage.engine.stream(prompt(5, 9), greedy(4))))
        assert len(stage.device.steps) - steps == 4
        for info in stage.engine.list_sessions():
            await stage.engine.attach(info.session_id).close()


async def _use_once(stage: Stage, number: int) -> None:
    async with (
        stage.engine.session(detached=True) as session,
        session.turn(prompt(4, number), greedy(2)) as turn,
    ):
        stage.note([], await turn.wait())
