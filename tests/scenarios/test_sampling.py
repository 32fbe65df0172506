"""Randomness is a function of (seed, turn, index of the token): never of what runs beside it."""

from typing import Any

import anyio
import pytest

from kernel import RequestOutput, RunningTurn, SamplingParams
from tests.scenarios.stage import Stage, greedy, open_fake, open_stage, prompt

DRAWS = 10
SEEDED = SamplingParams(
    temperature=0.9, top_k=50, top_p=0.95, seed=11, max_tokens=DRAWS, ignore_eos=True
)


async def alone(turns: int) -> list[tuple[int, ...]]:
    """The draws of a session that has the engine to itself."""
    async with open_stage() as stage, stage.engine.session() as session:
        return [
            (await stage.run(session.turn(prompt(5, number), SEEDED))).token_ids
            for number in range(turns)
        ]


async def test_draws_differ_by_token_turn_and_seed() -> None:
    """Otherwise all that follows would hold for a constant."""
    first, second = await alone(2)
    assert first != second
    async with open_stage() as stage:
        one_shot = stage.engine.stream(prompt(5, 0), SEEDED)
        assert (await stage.run(one_shot)).token_ids == first
        for seed in (12, None):
            other = SamplingParams(temperature=0.9, seed=seed, max_tokens=DRAWS, ignore_eos=True)
            result = await stage.run(stage.engine.stream(prompt(5, 0), other))
            assert result.token_ids != first
        likeliest = await stage.run(stage.engine.stream(prompt(5, 0), greedy(DRAWS)))
        assert likeliest.token_ids != first


async def test_draws_are_the_same_in_a_crowd() -> None:
    """Other rows, other chunks, other slots, other pages."""
    expected = await alone(3)
    async with open_stage(
        num_slots=5, num_pages=60, max_num_seqs=5, max_num_batched_tokens=7
    ) as stage:
        stage.device.open()
        drawn: list[tuple[int, ...]] = []

        async def bustle(number: int) -> None:
            for salt in range(4):
                params = SamplingParams(temperature=1.2, max_tokens=7, ignore_eos=True)
                await stage.engine.complete(prompt(3 + number, salt), params)

        async with anyio.create_task_group() as tasks, stage.engine.session() as session:
            for number in range(8):
                tasks.start_soon(bustle, number)
            for number in range(3):
                async with session.turn(prompt(5, number), SEEDED) as turn:
                    drawn.append((await turn.wait()).token_ids)
        assert drawn == expected


async def preempt(stage: Stage, turn: RunningTurn, after: int) -> RequestOutput:
    """Run a turn that loses its room after some steps; an urgent request takes it."""
    async with turn:
        await stage.step(after)
        urgent = await stage.run(stage.engine.stream(prompt(6, 7), greedy(3), priority=-9))
        stage.note([], urgent)
        return await stage.finish(turn)


@pytest.mark.parametrize("after", [1, 4, 8])
async def test_draws_go_on_after_a_preemption(after: int) -> None:
    """What was drawn is replayed and never drawn again; the rest is drawn as if undisturbed."""
    expected = await alone(2)
    config: dict[str, Any] = {"num_slots": 1, "scheduling_policy": "priority"}
    async with open_stage(**config) as stage, stage.engine.session() as session:
        drawn: list[tuple[int, ...]] = []
        for number in range(2):
            result = await preempt(stage, session.turn(prompt(5, number), SEEDED), after)
            assert result.timings.preemptions == 1
            drawn.append(result.token_ids)
        assert drawn == expected


async def test_draws_are_the_same_after_a_session_was_recomputed() -> None:
    """A state that was given up to the log changes nothing of a later turn's draws."""
    expected = await alone(2)
    async with open_stage(num_slots=1) as stage, stage.engine.session() as session:
        first = await stage.run(session.turn(prompt(5, 0), SEEDED))
        stage.note([], await stage.run(stage.engine.stream(prompt(6, 7), greedy(3))))
        assert session.info.place == "log"
        second = await stage.run(session.turn(prompt(5, 1), SEEDED))
        assert second.usage.recomputed_tokens == 14
        assert [first.token_ids, second.token_ids] == expected


async def test_a_turn_that_was_abandoned_draws_alike_when_it_is_tried_again() -> None:
    """Its number is that of the turn that did not happen."""
    expected = await alone(2)
    async with open_stage() as stage, stage.engine.session() as session:
        drawn: list[tuple[int, ...]] = []
        for number in range(2):
            async with session.turn(prompt(5, number), SEEDED):
                await stage.step(4)
            drawn.append((await stage.run(session.turn(prompt(5, number), SEEDED))).token_ids)
        assert drawn == expected


async def test_without_a_seed_the_draws_are_the_engines_and_the_requests() -> None:
    """The same id in an engine of the same seed draws alike; another id or engine does not."""
    params = SamplingParams(temperature=1.0, max_tokens=DRAWS, ignore_eos=True)

    async def draw(engine_seed: int, request_id: str) -> tuple[int, ...]:
        async with open_stage(open_fake, seed=engine_seed) as stage:
            out = stage.engine.stream(prompt(5), params, request_id=request_id)
            return (await stage.run(out)).token_ids

    first = await draw(1, "a")
    assert await draw(1, "a") == first
    assert await draw(1, "b") != first
    assert await draw(2, "a") != first
