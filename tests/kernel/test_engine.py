"""The public door: requests, from their submission to their end."""

from typing import Any

import anyio
import pytest

from kernel import (
    Engine,
    EngineClosed,
    PromptTooLong,
    QueueFull,
    RequestAborted,
    RequestExists,
    RequestOutput,
    SamplingParams,
    ValidationError,
)
from tests.kernel.small import GREEDY, LONG, config, opened


async def test_complete_is_the_sum_of_its_stream() -> None:
    """The same request, read in one piece or in deltas."""
    async with Engine.open(config(), device=opened()) as engine:
        whole = await engine.complete("hello", GREEDY)
        async with engine.stream("hello", GREEDY) as out:
            deltas = [delta async for delta in out]

    assert tuple(token for delta in deltas for token in delta.token_ids) == whole.token_ids
    assert "".join(delta.text for delta in deltas) == whole.text == out.result.text
    assert deltas[-1].finish_reason == whole.finish_reason == "length"
    assert whole.usage.prompt_tokens == 5
    assert whole.usage.completion_tokens == 4


async def test_leaving_a_stream_early_gives_everything_back() -> None:
    """By ``break``; the step in flight lands first."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        async with engine.stream([1, 2], LONG) as out:
            async for _ in out:
                break
        await engine.settle()

        assert engine.audit().at_rest
        assert engine.stats().turns_cancelled == 1
        assert not out.has_result


async def test_a_sampled_answer_depends_on_its_seed_and_not_on_the_batch() -> None:
    """Alone, in company, and again: (seed, turn, index) give the same draws."""
    params = SamplingParams(temperature=1.0, max_tokens=8, seed=11)
    async with Engine.open(config(), device=opened()) as engine:
        alone = await engine.complete([1, 2, 3], params)
        crowd = await engine.map([[1, 2, 3], [7], [1, 2, 3, 4]], params)
        other = await engine.complete([1, 2, 3], SamplingParams(temperature=1.0, max_tokens=8))

    assert crowd[0].token_ids == alone.token_ids
    assert other.token_ids != alone.token_ids


async def test_map_keeps_the_order_of_its_prompts() -> None:
    """Short ones end first and still stand in their places."""
    params = [
        SamplingParams(temperature=0, max_tokens=number, ignore_eos=True) for number in (9, 1, 5)
    ]
    ended: list[int] = []

    def note(index: int, result: RequestOutput) -> None:
        ended.append(index)

    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        results = await engine.map([[1], [2], [3]], params, on_result=note)

    assert [len(result.token_ids) for result in results] == [9, 1, 5]
    assert [result.prompt_token_ids for result in results] == [(1,), (2,), (3,)]
    assert ended == [1, 2, 0]


async def test_map_bounds_what_is_under_way() -> None:
    """A million prompts don't become a million requests."""
    most = 0
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:

        def look(index: int, result: RequestOutput) -> None:
            nonlocal most
            most = max(most, len(engine.core.sessions))

        results = await engine.map(
            [[number] for number in range(12)], GREEDY, concurrency=3, on_result=look
        )

    assert len(results) == 12
    assert 1 < most <= 3


async def test_map_of_nothing_is_nothing() -> None:
    """No special case for whoever filters first."""
    async with Engine.open(config(), device=opened()) as engine:
        assert await engine.map([]) == []


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"params": [GREEDY]}])
async def test_map_checks_before_it_begins(wrong: dict[str, Any]) -> None:
    """Half a batch computed and then an error would be waste."""
    async with Engine.open(config(), device=opened()) as engine:
        with pytest.raises(ValidationError) as caught:
            await engine.map([[1], [2]], **wrong)
        assert caught.value.parameter in wrong
        assert engine.stats().steps == 0


async def test_a_failed_request_of_a_map_cancels_the_others() -> None:
    """Nothing of them stays behind; the error is the request's own, and says whose it is."""
    async with Engine.open(config(num_pages=8), device=opened()) as engine:
        with pytest.raises(PromptTooLong) as caught:
            await engine.map([[1], list(range(100)), [2]], GREEDY)
        await engine.settle()

        assert any("prompt 1 of the 3" in note for note in caught.value.__notes__)
        assert caught.value.__context__ is None
        assert engine.audit().at_rest


async def test_of_two_failed_requests_of_a_map_the_first_is_told() -> None:
    """By its index: whichever task ran first, a caller handles one error, and the same one."""
    async with Engine.open(config(num_pages=8), device=opened()) as engine:
        with pytest.raises(PromptTooLong) as caught:
            await engine.map([list(range(90)), list(range(100))], GREEDY)

        assert any("prompt 0 of the 2" in note for note in caught.value.__notes__)


async def test_what_on_result_raises_ends_a_map_as_it_is() -> None:
    """The caller's own error, from the caller's own function."""

    def refuse(index: int, result: RequestOutput) -> None:
        raise KeyError(index)

    async with Engine.open(config(), device=opened()) as engine:
        with pytest.raises(KeyError):
            await engine.map([[1], [2]], GREEDY, concurrency=1, on_result=refuse)
        await engine.settle()

        assert engine.audit().at_rest


async def test_a_cancelled_map_is_cancelled_and_no_failure() -> None:
    """Cancelling goes first, as everywhere."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        with anyio.move_on_after(0.05) as scope:
            await engine.map([[1], [2]], LONG)
        await engine.settle()

        assert scope.cancelled_caught
        assert engine.audit().at_rest


async def test_abort_ends_a_request_by_its_id() -> None:
    """Whoever reads it gets an error of its own kind."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        async with engine.stream([1], LONG, request_id="mine") as out:
            await anext(out)
            found = engine.abort("mine")
            with pytest.raises(RequestAborted) as caught:
                async for _ in out:
                    pass
        await engine.settle()

        assert found
        assert caught.value.request_id == "mine"
        assert engine.audit().at_rest


async def test_abort_of_an_unknown_or_ended_request_says_so() -> None:
    """A late abort is no error and hits nobody else."""
    async with Engine.open(config(), device=opened()) as engine:
        await engine.complete([1], GREEDY, request_id="mine")

        assert not engine.abort("mine")
        assert not engine.abort("never")


async def test_a_request_id_names_one_open_request() -> None:
    """Afterwards it is free again."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        async with engine.stream([1], LONG, request_id="mine"):
            with pytest.raises(RequestExists) as caught:
                await engine.complete([2], GREEDY, request_id="mine")
        await engine.settle()
        again = await engine.complete([2], GREEDY, request_id="mine")

    assert caught.value.request_id == "mine"
    assert again.request_id == "mine"


async def test_fresh_request_ids_are_unique() -> None:
    """They name turns in the log."""
    async with Engine.open(config(), device=opened()) as engine:
        results = await engine.map([[1]] * 20, GREEDY)

    assert len({result.request_id for result in results}) == 20


async def test_a_full_queue_refuses_at_once_and_counts_nothing() -> None:
    """Overload is an answer, not a wait."""
    async with Engine.open(
        config(max_num_seqs=1, max_num_queued_reqs=1), device=opened(delay=0.0)
    ) as engine:
        async with engine.stream([1], LONG) as running:
            await anext(running)
            async with engine.stream([2], LONG):
                with pytest.raises(QueueFull):
                    await engine.complete([3], GREEDY)
                assert engine.core.door.queued_reqs == 1
        await engine.settle()
        after = await engine.complete([3], GREEDY)

        assert len(after.token_ids) == 4
        assert engine.audit().at_rest


async def test_a_turn_object_runs_once() -> None:
    """Entered again it would write its tokens behind those of its first life."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session() as session:
            turn = session.turn([1, 2], GREEDY)
            async with turn:
                await turn.wait()
            log = session.info.num_tokens
            with pytest.raises(RequestExists):
                async with turn:
                    pass
            await engine.settle()

            assert session.info.num_tokens == log


async def test_a_closed_engine_takes_nothing() -> None:
    """And closing twice is no error."""
    async with Engine.open(config(), device=opened()) as engine:
        await engine.aclose()
        await engine.aclose()
        with pytest.raises(EngineClosed):
            await engine.complete([1], GREEDY)
        with pytest.raises(EngineClosed):
            async with engine.session():
                pass

        assert not engine.health().ready


async def test_closing_ends_open_turns_and_draining_lets_them_finish() -> None:
    """``drain_timeout_s`` is how long they may still run."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        async with engine.stream([1], GREEDY) as out:
            await engine.aclose(drain_timeout_s=5)
            drained = await out.wait()
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        async with engine.stream([1], LONG) as out:
            await anext(out)
            await engine.aclose()
            with pytest.raises(EngineClosed):
                await out.wait()

    assert len(drained.token_ids) == 4
    assert engine.core.audit is not None
    assert engine.core.audit.at_rest


async def test_the_callers_error_leaves_the_block_as_it_is() -> None:
    """Not wrapped into a group by a task group that the caller can't see."""
    engines: list[Engine] = []
    with pytest.raises(KeyError, match="mine"):
        async with Engine.open(config(), device=opened()) as engine:
            engines.append(engine)
            await engine.complete([1], GREEDY)
            raise KeyError("mine")

    assert engines[0].core.audit is not None


async def test_two_engines_share_a_loop_and_nothing_else() -> None:
    """Each has its own dispatcher, ledger and door."""
    async with (
        Engine.open(config(), device=opened()) as first,
        Engine.open(config(), device=opened()) as second,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.complete, [1], GREEDY)
            tasks.start_soon(second.complete, [1], GREEDY)

        assert first.stats().turns_finished == second.stats().turns_finished == 1
