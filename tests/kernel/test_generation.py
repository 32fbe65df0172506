"""``Engine.generate``: cumulative results, and a cancel however it is left."""

import gc
import weakref
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine, Generation, QueueFull, RequestAborted, SamplingParams, ValidationError
from tests.kernel.small import GREEDY, LONG, config, opened


async def test_each_result_holds_all_so_far_and_the_last_is_finished() -> None:
    """The shape of vLLM: whoever reads only the last one has everything."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        results = [result async for result in engine.generate("hello", GREEDY)]
        whole = await engine.complete("hello", GREEDY)

    lengths = [len(result.token_ids) for result in results]
    assert lengths == sorted(lengths)
    assert [result.finished for result in results] == [False] * (len(results) - 1) + [True]
    assert results[-1].token_ids == whole.token_ids
    assert all(whole.text.startswith(result.text) for result in results)
    assert all(whole.token_ids[: len(r.token_ids)] == r.token_ids for r in results)


async def test_it_is_an_iterator_and_no_generator() -> None:
    """A generator that is abandoned on trio warns, and cleans up at a time of its own."""
    async with Engine.open(config(), device=opened()) as engine:
        generation = engine.generate([1], GREEDY)

        assert isinstance(generation, AsyncIterator)
        assert isinstance(generation, Generation)
        assert not hasattr(generation, "asend")


async def test_nothing_is_submitted_before_the_first_step() -> None:
    """Made and dropped, it has cost nothing; a parameter that can't be served fails at once."""
    async with Engine.open(config(), device=opened()) as engine:
        generation = engine.generate([1], GREEDY)
        with pytest.raises(ValidationError):
            engine.generate([10**6], GREEDY)
        await engine.settle()
        del generation

        assert engine.stats().steps == 0
        assert not engine.core.sessions


async def test_aclose_cancels_and_ends_it() -> None:
    """Idempotent; after it the iterator is over, as a closed generator is."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        generation = engine.generate([1], LONG)
        await anext(generation)
        await generation.aclose()
        await generation.aclose()
        rest = [result async for result in generation]
        await engine.settle()

        assert rest == []
        assert engine.stats().turns_cancelled == 1
        assert engine.audit().at_rest


async def test_closed_before_its_first_step_it_never_begins() -> None:
    """As a generator does."""
    async with Engine.open(config(), device=opened()) as engine:
        generation = engine.generate([1], LONG)
        await generation.aclose()
        rest = [result async for result in generation]
        await engine.settle()

        assert rest == []
        assert engine.stats().steps == 0


async def test_an_abandoned_one_is_cancelled_when_it_is_collected() -> None:
    """On both event loops: the cancel is one synchronous post, safe inside a finalizer."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        generation = engine.generate([1], LONG)
        async for _ in generation:
            break
        gone = weakref.ref(generation)
        before = engine.core.open_turns
        del generation
        gc.collect()
        with anyio.fail_after(2):
            while engine.core.open_turns:
                await engine.settle()
        await engine.settle()

        assert gone() is None
        assert before == 1
        assert engine.stats().turns_cancelled == 1
        assert engine.audit().at_rest


async def test_one_that_is_collected_after_the_engine_harms_nothing() -> None:
    """Its turn has ended with the engine."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        generation = engine.generate([1], LONG)
        await anext(generation)
    del generation
    gc.collect()

    assert engine.core.audit is not None
    assert engine.core.audit.at_rest


async def test_a_cancelled_step_cancels_the_request() -> None:
    """``async for`` in a scope that is cancelled leaves nothing running."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with Engine.open(config(), device=device) as engine:
        generation = engine.generate([1], LONG)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anext, generation)
                while not device.waiting:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            while engine.core.open_turns:
                await anyio.lowlevel.checkpoint()
        device.complete()
        await engine.settle()

        assert engine.stats().turns_cancelled == 1
        assert engine.audit().at_rest


async def test_an_error_ends_it() -> None:
    """A second step does not wait for a turn that never was."""
    async with Engine.open(
        config(max_num_seqs=1, max_num_queued_reqs=1), device=opened(delay=0.0)
    ) as engine:
        async with engine.stream([1], LONG) as running:
            await anext(running)
            async with engine.stream([2], LONG):
                generation = engine.generate([3], GREEDY)
                with pytest.raises(QueueFull):
                    await anext(generation)
                with anyio.fail_after(1), pytest.raises(StopAsyncIteration):
                    await anext(generation)


async def test_an_abort_from_elsewhere_is_raised_to_the_reader() -> None:
    """And ends it, too."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        generation = engine.generate([1], LONG, request_id="mine")
        await anext(generation)
        engine.abort("mine")
        with pytest.raises(RequestAborted):
            async for _ in generation:
                pass
        rest = [result async for result in generation]

        assert rest == []


async def test_ids_alone_are_given_without_a_tokenizer() -> None:
    """``detokenize=False`` costs no decoding."""
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, detokenize=False)
    async with Engine.open(config(), device=opened()) as engine:
        results = [result async for result in engine.generate([1], params)]

    assert results[-1].text == ""
    assert len(results[-1].token_ids) == 3
