"""Idle sessions and resumed ones on pools that are too small for all, with host memory beside.

The museum's entries M021, M096 and M099 and scenario DF-12 once more, now that a state which makes
room goes to host memory: nobody computes anything again where that has room, and the tokens are
those of cold runs.
"""

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import anyio.lowlevel
import pytest

from kernel import RequestOutput, RunningTurn, Session
from tests.scenarios.inputs import on_both_models
from tests.scenarios.stage import (
    DeviceFactory,
    Stage,
    greedy,
    open_fake,
    open_stage,
    prompt,
)


def enough_for(opened_device: DeviceFactory) -> int:
    """Bytes of host memory for all the states of a scenario."""
    return 1 << 14 if opened_device is open_fake else 1 << 26


async def open_sessions(stage: Stage, count: int) -> list[Session]:
    sessions = [stage.engine.session(detached=True) for _ in range(count)]
    for session in sessions:
        async with session:
            pass
    return sessions


async def finish_all(stage: Stage, turns: list[RunningTurn]) -> list[RequestOutput]:
    """Submit turns in their order, and step until all have ended; a copy takes its own time."""
    async with AsyncExitStack() as stack:
        for turn in turns:
            await stack.enter_async_context(turn)
        while not all(turn.has_result for turn in turns):
            await anyio.lowlevel.checkpoint()
            if stage.device.waiting:
                await stage.step()
        return [await turn.wait() for turn in turns]


async def finish(stage: Stage, turn: RunningTurn) -> RequestOutput:
    (result,) = await finish_all(stage, [turn])
    return result


@pytest.mark.parametrize(
    ("short_of", "anyio_backend", "opened_device"),
    [
        ("slots", "trio", "fake"),
        ("pages", "asyncio", "fake"),
        ("pages", "trio", "fake"),
        ("slots", "asyncio", "bundled"),
    ],
    indirect=["opened_device"],
)
async def test_m021_sessions_that_fill_the_pool_all_take_their_next_turns(
    opened_device: DeviceFactory, short_of: str
) -> None:
    """sgl-project/sglang#27024: idle sessions held all, and not even their own turns ran."""
    slots, pages = {"slots": (2, 60), "pages": (9, 12)}[short_of]
    async with open_stage(
        opened_device, num_slots=slots, num_pages=pages, host_memory_bytes=enough_for(opened_device)
    ) as stage:
        sessions = await open_sessions(stage, 4)
        logs: list[list[int]] = []
        for number, session in enumerate(sessions):
            result = await finish(stage, session.turn(prompt(9, number), greedy(4)))
            logs.append(stage.note([], result))
        turns = [session.turn(prompt(6, 9), greedy(5)) for session in sessions]
        for log, result in zip(logs, await finish_all(stage, turns), strict=True):
            stage.note(log, result)
            assert result.usage.recomputed_tokens == 0
        assert stage.engine.stats().forced_parks > 0
        for session in sessions:
            await session.close()


@on_both_models
async def test_m096_of_two_that_each_lack_one_page_the_junior_gives_way(
    opened_device: DeviceFactory,
) -> None:
    """vllm-project/vllm#57104: two held all, each needed one more; one waits, and resumes."""
    async with open_stage(
        opened_device, num_slots=3, num_pages=7, host_memory_bytes=enough_for(opened_device)
    ) as stage:
        turns = [
            stage.engine.stream(prompt(14), greedy(6)),
            stage.engine.stream(prompt(10, 1), greedy(6)),
        ]
        senior, junior = await finish_all(stage, turns)
        for result in (senior, junior):
            stage.note([], result)
            assert result.usage.recomputed_tokens == 0
        assert (senior.timings.preemptions, junior.timings.preemptions) == (0, 1)


@pytest.mark.parametrize("opened_device", ["fake"], indirect=True)
async def test_m099_sessions_that_hold_all_and_wait_make_room_for_each_other(
    opened_device: DeviceFactory,
) -> None:
    """vllm-project/vllm#49439: resumed sessions all waited, each with its blocks."""
    async with open_stage(
        opened_device, num_slots=2, num_pages=25, host_memory_bytes=enough_for(opened_device)
    ) as stage:
        sessions = await open_sessions(stage, 2)
        logs = [
            stage.note([], await finish(stage, session.turn(prompt(42, salt), greedy(2))))
            for salt, session in enumerate(sessions)
        ]
        turns = [session.turn(prompt(18, 5), greedy(3)) for session in sessions]
        for log, result in zip(logs, await finish_all(stage, turns), strict=True):
            stage.note(log, result)
            assert result.usage.recomputed_tokens == 0
        assert stage.engine.stats().forced_parks > 0
        for session in sessions:
            await session.close()


KINDS: dict[str, dict[str, Any]] = {
    "hybrid": {},
    "recurrent": {"uses_pages": False},
    "attention": {"uses_slots": False},
}


@pytest.mark.parametrize("host", [0, 1, 12])
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
async def test_df_12_idle_sessions_stop_neither_each_other_nor_a_request(
    kind: str, slots: int, host: int
) -> None:
    """As many rows as slots, many times the sessions, all of them idle, then all of them not."""
    config: dict[str, Any] = {"max_num_seqs": slots}
    each = 0
    if kind != "attention":
        config["num_slots"] = slots
        each += 8
    if kind != "recurrent":
        config["num_pages"] = 5 * slots
        each += 5 * 32
    config["host_memory_bytes"] = host * each
    open_device = partial(open_fake, **KINDS[kind])
    async with open_stage(open_device, **config) as stage:
        sessions = await open_sessions(stage, 8)
        logs = [
            stage.note([], await finish(stage, session.turn(prompt(7, salt), greedy(2))))
            for salt, session in enumerate(sessions)
        ]
        one_shot = await finish(stage, stage.engine.stream(prompt(9, 20), greedy(2)))
        stage.note([], one_shot)
        turns: list[RunningTurn] = [session.turn(prompt(2, 9), greedy(3)) for session in sessions]
        turns.insert(4, stage.engine.stream(prompt(9, 21), greedy(2)))
        results = await finish_all(stage, turns)
        stage.note([], results.pop(4))
        for log, result in zip(logs, results, strict=True):
            stage.note(log, result)
            if host == 12:
                assert result.usage.recomputed_tokens == 0
        for session in sessions:
            await session.close()
