"""The desk: checks a request and makes it out before anything is counted or sent."""

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kernel import Engine, SamplingParams, SessionExists, ValidationError, WrongContext
from kernel.ids import SessionId
from kernel.requests.sampling_key import request_seed
from tests.kernel.small import GREEDY, config, opened

WRONG: list[dict[str, Any]] = [
    {"timeout_s": 0},
    {"queue_timeout_s": -1},
    {"stall_timeout_s": float("nan")},
    {"timeout_s": "soon"},
    {"priority": "high"},
    {"priority": float("nan")},
    {"priority": True},
    {"tenant": ["a", "list"]},
    {"request_id": 7},
    {"priorty": 3},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_option_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    """Here, where one caller has the mistake; in the scheduler it would fail everybody's turn."""
    async with Engine.open(config(scheduling_policy="priority"), device=opened()) as engine:
        with pytest.raises(ValidationError) as caught:
            engine.stream([1], GREEDY, **wrong)

        assert caught.value.parameter in wrong
        assert engine.core.door.queued_reqs == 0
        assert len((await engine.complete([1], GREEDY)).token_ids) == 4


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("prompt", [[1000], [-1], [1.5], [True], b"bytes", 7], ids=str)
async def test_a_prompt_that_is_none_is_refused(prompt: Any) -> None:
    """An id beyond the vocabulary would read past an embedding table."""
    async with Engine.open(config(), device=opened()) as engine:
        with pytest.raises(ValidationError) as caught:
            engine.stream(prompt, GREEDY)

        assert caught.value.parameter == "prompt"


async def test_a_bare_device_takes_ids_only() -> None:
    """And says what to do about it; stop strings need text as well."""
    device = opened().device
    async with Engine.open(config(), device=device) as engine:
        with pytest.raises(ValidationError, match="OpenedDevice"):
            engine.stream("text", GREEDY)
        with pytest.raises(ValidationError, match="OpenedDevice"):
            engine.stream([1], SamplingParams(stop="x"))
        with pytest.raises(ValidationError):
            _ = engine.tokenizer
        result = await engine.complete([1], GREEDY)

    assert result.text == ""
    assert len(result.token_ids) == 4


async def test_the_prompt_is_taken_as_it_is_now() -> None:
    """A list that its caller goes on to fill must not change a turn under way."""
    prompt = [1, 2, 3]
    async with Engine.open(config(), device=opened()) as engine:
        out = engine.stream(prompt, GREEDY)
        prompt.append(4)
        async with out:
            result = await out.wait()

    assert result.prompt_token_ids == (1, 2, 3)


async def test_a_request_without_a_seed_gets_one_of_its_own() -> None:
    """A function of the engine's seed and the request's id, so that a replay draws alike."""
    sampled = SamplingParams(temperature=1.0, max_tokens=6)
    answers: list[tuple[int, ...]] = []
    for seed, name in ((5, "a"), (5, "a"), (5, "b"), (6, "a")):
        async with Engine.open(config(seed=seed), device=opened()) as engine:
            result = await engine.complete([1], sampled, request_id=name)
            answers.append(result.token_ids)

    assert answers[0] == answers[1]
    assert len(set(answers)) == 3
    assert request_seed(5, "a") != request_seed(6, "a")


async def test_a_one_shot_that_finds_no_session_is_not_counted() -> None:
    """The queue would fill up with requests that never were."""
    async with Engine.open(config(), device=opened()) as engine:
        name = SessionId("one-shot:r")
        engine.core.open_session(name, is_one_shot=False, idle_timeout_s=None)
        with pytest.raises(SessionExists):
            await engine.complete([1], GREEDY, request_id="r")

        assert engine.core.door.queued_reqs == 0
        assert not engine.abort("r")


async def test_a_session_can_not_take_the_name_of_a_one_shot() -> None:
    """Somebody's unrelated request would find its place taken."""
    async with Engine.open(config(), device=opened()) as engine:
        with pytest.raises(ValidationError, match="one-shot:"):
            engine.session(session_id="one-shot:r")


@pytest.mark.parametrize(
    "params", [{"stop_token_ids": (1, 10_000)}, {"stop": ("\ud800",)}], ids=["id", "text"]
)
async def test_a_stop_that_can_never_come_is_refused(params: dict[str, Any]) -> None:
    """A typing error would let the turn run to its last token."""
    async with Engine.open(config(), device=opened()) as engine:
        with pytest.raises(ValidationError, match="stop"):
            engine.stream([1], SamplingParams(**params))


async def test_another_thread_is_told_that_it_is_one() -> None:
    """Handles move on one thread; the blocking door is there for others."""
    caught: list[BaseException] = []
    async with Engine.open(config(), device=opened()) as engine:

        def call() -> None:
            for use in (engine.stats, engine.list_sessions, lambda: engine.stream([1])):
                try:
                    use()
                except WrongContext as error:
                    caught.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        await anyio.to_thread.run_sync(thread.join)

    assert [getattr(error, "where", None) for error in caught] == ["thread"] * 3


def test_another_event_loop_is_told_that_it_is_one() -> None:
    """On the same thread, later: nobody there would ever be woken."""
    engines: list[Engine] = []

    async def open_and_leave() -> None:
        async with Engine.open(config(), device=opened()) as engine:
            engines.append(engine)

    async def use() -> None:
        engines[0].stats()

    anyio.run(open_and_leave)
    with pytest.raises(WrongContext) as caught:
        anyio.run(use)

    assert caught.value.where == "event loop"
