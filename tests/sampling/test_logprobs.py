"""Log-probabilities through the engine: equal to the reference's, however a turn was computed.

Each token is told once: chunks, preemption, a lost state and company change nothing.
"""

from typing import Any

import anyio
import pytest

from kernel import Delta, RequestOutput, SamplingParams
from tests.sampling.tiny import assert_told, open_small, open_tiny_stage, right_logprobs
from tests.scenarios.stage import Stage, prompt

ASKS = SamplingParams(
    temperature=0, max_tokens=6, ignore_eos=True, logprobs=2, prompt_logprobs=3, detokenize=False
)


def tokens_of(length: int, salt: int = 0) -> list[int]:
    return [token % 61 for token in prompt(length, salt)]


def check(result: RequestOutput, history: list[int]) -> list[int]:
    """Hold one turn to the reference; returns the history after it."""
    context = [*history, *result.prompt_token_ids]
    whole = [*context, *result.token_ids]
    assert_told(result.prompt_logprobs, whole, len(history), 3)
    assert_told(result.outputs[0].logprobs, whole, len(context), 2)
    return whole


async def test_a_turns_logprobs_are_the_references_log_softmax() -> None:
    """Greedy, so each drawn token is the likeliest."""
    async with open_small() as engine:
        result = await engine.complete(tokens_of(9), ASKS)
    check(result, [])
    (output,) = result.outputs
    assert output.logprobs is not None
    for token, told in zip(output.token_ids, output.logprobs, strict=True):
        assert next(iter(told)) == token
        assert told[token].rank == 1
    right = right_logprobs([*result.prompt_token_ids, *output.token_ids])
    total = sum(float(right[8 + at, token]) for at, token in enumerate(output.token_ids))
    assert output.cumulative_logprob == pytest.approx(total, abs=1e-9)


async def test_what_nobody_asked_for_is_not_there() -> None:
    """``None``, not empty: nothing was computed."""
    async with open_small() as engine:
        plain = await engine.complete(tokens_of(4), SamplingParams(max_tokens=2))
        nothing = await engine.complete(
            tokens_of(4), SamplingParams(max_tokens=2, logprobs=0, prompt_logprobs=0)
        )
    assert plain.prompt_logprobs is None
    assert plain.outputs[0].logprobs is None
    assert plain.outputs[0].cumulative_logprob is None
    assert nothing.prompt_logprobs is not None
    assert [len(told or ()) for told in nothing.prompt_logprobs] == [0, 1, 1, 1]
    assert [len(told) for told in nothing.outputs[0].logprobs or ()] == [1, 1]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 64])
async def test_chunks_of_a_prompt_tell_what_one_step_tells(chunk: int) -> None:
    """The last token of a chunk tells about the first one of the next."""
    async with open_small(max_num_seqs=1, max_num_batched_tokens=chunk) as engine:
        check(await engine.complete(tokens_of(11), ASKS), [])


async def test_company_changes_nothing_of_what_is_told() -> None:
    """Rows that ask for more, for less and for nothing, in steps that hold parts of them."""
    found: list[RequestOutput] = []
    async with open_small(max_num_seqs=8, max_num_batched_tokens=9) as engine:

        async def ask(salt: int) -> None:
            found.append(await engine.complete(tokens_of(3 + 2 * salt, salt), ASKS))

        async def others(salt: int) -> None:
            params = SamplingParams(max_tokens=5, logprobs=5 if salt % 2 else None)
            await engine.complete(tokens_of(7, salt), params)

        async with anyio.create_task_group() as tasks:
            for salt in range(4):
                tasks.start_soon(ask, salt)
                tasks.start_soon(others, salt)
    for result in found:
        check(result, [])


async def test_a_later_turn_is_told_about_each_token_of_its_own_input() -> None:
    """What comes before the first one is the session's history, whose last token was pending."""
    async with open_small() as engine, engine.session() as session:
        history: list[int] = []
        for salt in range(3):
            async with session.turn(tokens_of(4 + salt, salt), ASKS) as turn:
                history = check(await turn.wait(), history)
        assert await session.interrupt(keep=2) == 2
        del history[-4:]
        async with session.turn(tokens_of(3, 9), ASKS) as turn:
            history = check(await turn.wait(), history)
        async with session.fork() as child, child.turn(tokens_of(3, 7), ASKS) as turn:
            check(await turn.wait(), history)
        async with session.turn([], ASKS) as turn:
            result = await turn.wait()
        check(result, history)
        assert result.prompt_logprobs == ()


async def test_a_long_pending_history_is_absorbed_first_and_told_nothing_of() -> None:
    """The first phase absorbs and commits what is pending; only the input is asked about."""
    async with open_small() as engine, engine.session() as session:
        history: list[int] = []
        async with session.turn(tokens_of(20), ASKS) as turn:
            history = check(await turn.wait(), history)
        await session.interrupt(keep=0)
        del history[20:]
        async with session.turn(tokens_of(2, 3), ASKS) as turn:
            check(await turn.wait(), history)


async def preempted(stage: Stage, params: SamplingParams, after: int) -> RequestOutput:
    """A request that loses its only slot after some steps, and takes it up again."""
    turn = stage.engine.stream(tokens_of(10), params)
    async with turn:
        await stage.step(after)
        urgent = stage.engine.stream(
            tokens_of(3, 5), SamplingParams(temperature=0, max_tokens=2), priority=-9
        )
        await stage.run(urgent)
        return await stage.finish(turn)


@pytest.mark.parametrize("after", [1, 2, 3, 5, 6])
async def test_a_preempted_turn_is_told_everything_once(after: int) -> None:
    """In the middle of its prompt, and in the middle of its output: both are computed again."""
    config: dict[str, Any] = {
        "num_slots": 1,
        "scheduling_policy": "priority",
        "max_num_batched_tokens": 4,
        "max_num_seqs": 2,
    }
    async with open_tiny_stage(**config) as stage:
        result = await preempted(stage, ASKS, after)
        assert result.timings.preemptions == 1
        check(result, [])


async def test_a_state_that_was_given_up_is_computed_again_and_told_nothing_of() -> None:
    """The next turn absorbs its whole history; what it is told begins with its own input."""
    async with open_tiny_stage(num_slots=1) as stage, stage.engine.session() as session:
        first = await stage.run(session.turn(tokens_of(5), ASKS))
        history = check(first, [])
        await stage.run(stage.engine.stream(tokens_of(3, 5), SamplingParams(max_tokens=2)))
        assert session.info.place == "log"
        second = await stage.run(session.turn(tokens_of(4, 2), ASKS))
        assert second.usage.recomputed_tokens
        check(second, history)


async def test_deltas_and_cumulative_results_carry_them_beside_their_tokens() -> None:
    """Joined, they are those of the result."""
    async with open_small() as engine:
        deltas: list[Delta] = []
        async with engine.stream(tokens_of(5), ASKS) as out:
            deltas += [delta async for delta in out]
            result = out.result
        whole = [told for delta in deltas for told in delta.logprobs or ()]
        assert tuple(whole) == result.outputs[0].logprobs
        assert all(len(delta.logprobs or ()) == len(delta.token_ids) for delta in deltas)
        outputs = [partial.outputs[0] async for partial in engine.generate(tokens_of(5), ASKS)]
        assert all(len(output.logprobs or ()) == len(output.token_ids) for output in outputs)
        assert outputs[-1].logprobs == result.outputs[0].logprobs


async def test_an_interrupted_turn_has_those_of_the_tokens_that_it_keeps() -> None:
    """And of as much of its input as was absorbed."""
    async with open_tiny_stage(max_num_seqs=1, max_num_batched_tokens=4) as stage:
        async with stage.engine.session() as session:
            async with session.turn(tokens_of(10), ASKS) as turn:
                await stage.step(1)
                with anyio.move_on_after(0):
                    await turn.interrupt()
                await stage.land()
            told = turn.result.prompt_logprobs
            assert told is not None
            assert len(told) == 10
            known = sum(entry is not None for entry in told)
            assert 0 < known < 9
            assert_told(told[: known + 1], tokens_of(10), 0, 3)
