"""Several outputs for one prompt: absorbed once, drawn apart, told apart, ended together.

Each output is what a request for one output with that output's seed would be.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kernel import (
    Engine,
    NotFinished,
    NotSubmitted,
    PromptTooLong,
    QueueFull,
    RequestAborted,
    RequestExists,
    SamplingError,
    SamplingParams,
    StepError,
    TurnTimeout,
    ValidationError,
)
from kernel.errors import EngineClosed
from kernel.requests.sampling_key import choice_seed
from tests.scenarios.inputs import DeviceFactory
from tests.scenarios.stage import Stage, open_fake, open_stage, prompt


def drawn(n: int, max_tokens: int = 6, **options: Any) -> SamplingParams:
    return SamplingParams(n=n, max_tokens=max_tokens, ignore_eos=True, seed=11, **options)


@asynccontextmanager
async def open_running(
    open_device: DeviceFactory = open_fake, **config: Any
) -> AsyncGenerator[tuple[Stage, Engine]]:
    """A stage whose device never waits; at the end nothing of any request is left."""
    async with open_stage(open_device, **config) as stage:
        stage.device.open()
        yield stage, stage.engine
        await stage.engine.settle()
        assert_forgotten(stage)


def assert_forgotten(stage: Stage) -> None:
    core = stage.engine.core
    assert core.sessions == {}
    assert core.door.queued_reqs == 0
    assert core.scheduler is not None
    assert not [*core.scheduler.roster]
    stage.assert_at_rest()


async def alone(engine: Engine, tokens: list[int], params: SamplingParams) -> list[tuple[int, ...]]:
    """What requests for one output each would generate."""
    found: list[tuple[int, ...]] = []
    for index in range(params.n):
        seed = choice_seed(params.seed or 0, index)
        one = SamplingParams(max_tokens=params.max_tokens, ignore_eos=True, seed=seed)
        found.append((await engine.complete(tokens, one)).token_ids)
    return found


async def test_each_output_is_what_a_request_with_its_seed_would_be(
    opened_device: DeviceFactory,
) -> None:
    """And they differ; the first one is what a request for one output with the same seed is."""
    async with open_running(opened_device) as (_, engine):
        result = await engine.complete(prompt(11), drawn(3))
        expected = await alone(engine, prompt(11), drawn(3))

    assert [output.token_ids for output in result.outputs] == expected
    assert [output.index for output in result.outputs] == [0, 1, 2]
    assert len({*expected}) == 3
    assert choice_seed(11, 0) == 11


@pytest.mark.parametrize("length", [1, 2, 4, 5, 9])
async def test_the_prompt_is_absorbed_once(length: int) -> None:
    """At every length around a page: its tokens, and the last of them once for each output."""
    async with open_running() as (_, engine):
        result = await engine.complete(prompt(length), drawn(4, 3))
        stats = engine.stats()
        expected = await alone(engine, prompt(length), drawn(4, 3))

    assert [output.token_ids for output in result.outputs] == expected
    # Every token that a step absorbs: the prompt, its last one for each output, and what they drew.
    assert stats.prompt_tokens == length - 1 + 4 * 3
    assert result.usage.prompt_tokens == length
    assert result.usage.completion_tokens == 12
    assert (result.usage.cached_tokens, result.usage.recomputed_tokens) == (0, 0)


async def test_deltas_say_whose_they_are() -> None:
    """Joined by index they are the outputs, and each output has one delta that ends it."""
    async with open_running() as (_, engine):
        tokens: dict[int, list[int]] = {}
        texts: dict[int, str] = {}
        ends: list[int] = []
        async with engine.stream(prompt(5), drawn(3)) as out:
            async for delta in out:
                tokens.setdefault(delta.index, []).extend(delta.token_ids)
                texts[delta.index] = texts.get(delta.index, "") + delta.text
                if delta.finish_reason is not None:
                    ends.append(delta.index)
            assert [one async for one in out] == []
            result = out.result

    assert {index: tuple(found) for index, found in tokens.items()} == {
        output.index: output.token_ids for output in result.outputs
    }
    assert texts == {output.index: output.text for output in result.outputs}
    assert sorted(ends) == [0, 1, 2]
    assert result.text == result.outputs[0].text


async def test_cumulative_results_have_all_outputs() -> None:
    """Shape of vLLM's generate: each yields all outputs so far, the last one is the result."""
    async with open_running() as (_, engine):
        seen = [one async for one in engine.generate(prompt(5), drawn(3))]
        whole = await engine.complete(prompt(5), drawn(3))

    assert all(len(one.outputs) == 3 for one in seen)
    assert [one.finished for one in seen] == [*[False] * (len(seen) - 1), True]
    assert [one.token_ids for one in seen[-1].outputs] == [one.token_ids for one in whole.outputs]
    lengths = [sum(len(output.token_ids) for output in one.outputs) for one in seen]
    assert lengths == sorted(lengths)


async def test_outputs_end_on_their_own() -> None:
    """A stop token ends the output that draws it; the others go on."""
    async with open_running() as (_, engine):
        free = await engine.complete(prompt(5), drawn(3))
        stop = free.outputs[1].token_ids[2]
        assert stop not in (*free.outputs[0].token_ids, *free.outputs[2].token_ids)
        result = await engine.complete(prompt(5), drawn(3, stop_token_ids=[stop]))

    assert [output.finish_reason for output in result.outputs] == ["length", "stop", "length"]
    assert [len(output.token_ids) for output in result.outputs] == [6, 3, 6]
    assert result.outputs[1].stop_reason == stop


async def test_log_probabilities_belong_to_their_output() -> None:
    """Of the prompt once, of each output's own tokens there."""
    params = drawn(2, 3, logprobs=1, prompt_logprobs=0)
    async with open_running() as (_, engine):
        result = await engine.complete(prompt(5), params)
        single = await engine.complete(
            prompt(5), SamplingParams(max_tokens=3, ignore_eos=True, seed=11, prompt_logprobs=0)
        )

    assert result.prompt_logprobs == single.prompt_logprobs
    for output in result.outputs:
        assert output.logprobs is not None
        assert all(
            token in found for token, found in zip(output.token_ids, output.logprobs, strict=True)
        )


async def test_without_a_seed_the_outputs_are_a_function_of_the_request() -> None:
    """The engine's seed and the request's id, as for one output."""
    params = SamplingParams(n=2, max_tokens=5, ignore_eos=True)
    async with open_running() as (_, engine):
        one = await engine.complete(prompt(5), params, request_id="a")
        again = await engine.complete(prompt(5), params, request_id="a")
        other = await engine.complete(prompt(5), params, request_id="b")

    assert [o.token_ids for o in one.outputs] == [o.token_ids for o in again.outputs]
    assert [o.token_ids for o in one.outputs] != [o.token_ids for o in other.outputs]


async def test_outputs_need_no_slot_of_their_own_each() -> None:
    """On one slot they run one after another, and compute the prompt again where they must."""
    async with open_running(num_slots=1) as (_, engine):
        result = await engine.complete(prompt(9), drawn(3))
        expected = await alone(engine, prompt(9), drawn(3))

    assert [output.token_ids for output in result.outputs] == expected
    assert result.usage.recomputed_tokens > 0


# Cancelled, failed, refused


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
async def test_leaving_early_cancels_all_of_it(steps: int) -> None:
    """While the prompt is absorbed, between that and the outputs, and while they run."""
    async with open_stage() as stage:
        async with stage.engine.stream(prompt(5), drawn(3), request_id="r"):
            await stage.settle()
            await stage.step(steps)
        await stage.drain()
        await stage.settle()
        assert_forgotten(stage)
        stats = stage.engine.stats()
        assert stats.turns_cancelled + stats.turns_finished >= 1
        async with stage.engine.stream(prompt(5), drawn(2), request_id="r") as again:
            stage.device.open()
            await again.wait()


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_an_abort_by_the_requests_id_ends_all_of_it(steps: int) -> None:
    """Whoever reads it is told in the name that it knows."""
    async with open_stage() as stage:
        async with stage.engine.stream(prompt(5), drawn(3), request_id="r") as out:
            await stage.settle()
            await stage.step(steps)
            with pytest.raises(RequestExists):
                async with stage.engine.stream([1], drawn(1), request_id="r"):
                    pass
            assert stage.engine.abort("r")
            await stage.settle()
            await stage.drain()
            with pytest.raises(RequestAborted) as caught:
                await out.wait()
            assert caught.value.request_id == "r"
            assert not out.has_result
            with pytest.raises(NotFinished, match="aborted"):
                _ = out.result
        assert not stage.engine.abort("r")
        assert_forgotten(stage)


async def test_when_one_output_fails_the_others_are_cancelled_and_its_error_is_raised() -> None:
    """All outputs come, or an error does."""

    def bad(generated: Any, logits: Any) -> Any:
        if len(generated) == 2:
            raise RuntimeError("planted")
        return logits

    async with open_running() as (stage, engine):
        async with engine.stream(prompt(5), drawn(3, logits_processors=[bad])) as out:
            with pytest.raises(SamplingError, match="planted"):
                async for _ in out:
                    pass
            assert [one async for one in out] == []
            with pytest.raises(SamplingError):
                await out.wait()
        with pytest.raises(SamplingError):
            await engine.complete(prompt(5), drawn(2, logits_processors=[bad]))
        await engine.settle()
        assert_forgotten(stage)


async def test_a_step_that_fails_while_the_prompt_is_absorbed_fails_the_request() -> None:
    """No output was begun; nothing of them is left."""
    async with open_stage() as stage:
        async with stage.engine.stream(prompt(5), drawn(3)) as out:
            await stage.settle()
            await stage.fail_step()
            with pytest.raises(StepError):
                await out.wait()
        await stage.settle()
        assert_forgotten(stage)


async def test_a_deadline_is_the_whole_requests() -> None:
    """It runs from the submission, through the prompt and into the outputs."""
    async with open_stage() as stage:
        async with stage.engine.stream(prompt(5), drawn(3), timeout_s=5, request_id="r") as out:
            await stage.settle()
            await stage.step(3)
            await stage.advance(6)
            with pytest.raises(TurnTimeout) as caught:
                await out.wait()
            assert caught.value.request_id == "r"
        await stage.drain()
        await stage.settle()
        assert_forgotten(stage)


async def test_a_prompt_that_can_not_be_continued_is_refused_before_it_is_absorbed() -> None:
    """With all that is to be generated, as for one output; and an empty one, too."""
    async with open_running(max_model_len=16) as (stage, engine):
        with pytest.raises(PromptTooLong):
            await engine.complete(prompt(12), drawn(2, 5))
        with pytest.raises(ValidationError, match="it is empty"):
            await engine.complete([], drawn(2, 5))
        assert stage.device.steps == []
        assert len((await engine.complete(prompt(11), drawn(2, 5))).outputs) == 2


async def test_a_request_that_finds_no_room_in_the_queue_leaves_nothing_behind() -> None:
    """It counts as one request for the prompt and one for each output."""
    async with open_running(max_num_queued_reqs=4) as (_, engine):
        with pytest.raises(ValidationError, match="counts as 5 requests") as caught:
            await engine.complete(prompt(3), drawn(4))
        assert caught.value.parameter == "n"
    async with open_stage(max_num_queued_reqs=4, max_num_seqs=1) as stage:
        async with stage.engine.stream(prompt(3), drawn(1)):
            await stage.settle()
            async with stage.engine.stream(prompt(3), drawn(1)):
                await stage.settle()
                with pytest.raises(QueueFull):
                    await stage.engine.complete(prompt(3), drawn(3))
        await stage.drain()
        await stage.settle()
        assert_forgotten(stage)


async def test_a_session_has_one_history() -> None:
    """Its turns have one output; a fork goes another way."""
    async with open_running() as (_, engine), engine.session() as session:
        with pytest.raises(ValidationError, match="a session has one history") as caught:
            session.turn([1], drawn(2))
        assert caught.value.parameter == "n"
        await session.close()


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None, True])
def test_a_number_of_outputs_is_a_number(n: Any) -> None:
    """From 1 on."""
    with pytest.raises(ValidationError, match="n="):
        SamplingParams(n=n)


async def test_outputs_have_no_common_interrupt() -> None:
    """Each has a length of its own; leaving cancels them."""
    async with open_running() as (_, engine):
        out = engine.stream(prompt(3), drawn(2))
        with pytest.raises(NotSubmitted):
            await anext(out)
        async with out:
            with pytest.raises(ValidationError, match="2 outputs"):
                await out.interrupt(1)
            await out.wait()


async def test_closing_the_engine_ends_it() -> None:
    """While outputs run: whoever waits is told."""
    async with open_stage() as stage:
        async with stage.engine.stream(prompt(3), drawn(3)) as out:
            await stage.settle()
            await stage.step(2)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.engine.aclose)
                with pytest.raises(EngineClosed):
                    await out.wait()
                stage.device.open()


async def test_a_cancelled_waiter_leaves_the_request_to_its_block() -> None:
    """Cancelling a wait takes nothing; the block goes on, or cancels when it is left."""
    async with open_stage() as stage:
        async with stage.engine.stream(prompt(3), drawn(2, 3)) as out:
            await stage.settle()
            with anyio.move_on_after(0):
                await out.wait()
            with anyio.move_on_after(0):
                await anext(out)
            stage.device.open()
            assert len((await out.wait()).outputs) == 2
