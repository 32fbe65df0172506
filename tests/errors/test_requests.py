"""Requests that can't be served: typed errors, and nothing held afterwards."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from kernel import (
    ClientError,
    Engine,
    NotSubmitted,
    PromptTooLong,
    QueueFull,
    RequestExists,
    SamplingParams,
    TooManySessions,
    ValidationError,
)
from kernel.engine import shell
from tests.errors.door import CONFIG, open_engine, says

GREEDY = SamplingParams(temperature=0, max_tokens=4)
BAD_PROMPTS: dict[str, tuple[Any, str, str]] = {
    "empty text": ("", "''", "give at least one token"),
    "no tokens": ([], "''", "give at least one token"),
    "a negative token": ([1, -1], "-1", "at least 0"),
    "a token beyond the vocabulary": ([1000], "1000", "0 to 999"),
    "half a token": ([1, 1.5], "1.5", "must be an int"),
    "a word among tokens": ([1, "two"], "'two'", "must be an int"),
    "a number": (7, "7", "must be a sequence"),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
@pytest.mark.parametrize("door", ["stream", "complete", "generate", "map", "turn", "append"])
async def test_a_bad_prompt_is_refused_at_every_door(
    door: str, name: str, anyio_backend: str
) -> None:
    """With the prompt's fault in the message, and before anything is reserved."""
    prompt, value, way_out = BAD_PROMPTS[name]
    async with open_engine() as engine, engine.session() as session:
        with pytest.raises(ValidationError) as caught:
            match door:
                case "stream":
                    async with engine.stream(prompt, GREEDY):
                        pass
                case "complete":
                    await engine.complete(prompt, GREEDY)
                case "generate":
                    await anext(engine.generate(prompt, GREEDY))
                case "map":
                    await engine.map([prompt, prompt], GREEDY)
                case "turn":
                    async with session.turn(prompt, GREEDY):
                        pass
                case _:
                    await session.append(prompt)
        error = caught.value
        assert error.parameter == "prompt"
        for part in ("prompt=", value, way_out):
            assert part in str(error)
        assert session.info.state == "idle"
        assert (await session.append([1])).finish_reason == "length"


async def test_a_prompt_that_can_never_fit_is_refused_with_numbers(anyio_backend: str) -> None:
    """At submit: waiting for room that an empty engine doesn't have would never end."""
    async with open_engine() as engine, engine.session() as session:
        with pytest.raises(PromptTooLong) as caught:
            await engine.complete([1] * 30, GREEDY)
        says(caught, "30 tokens", "4 to generate", "32", "num_pages * page_size", "shorten it")
        assert (await engine.complete([1] * 28, GREEDY)).finish_reason == "length"
        await session.append([1] * 20)
        with pytest.raises(PromptTooLong) as caught:
            await session.append([1] * 13)
        says(caught, "33 tokens", "32")
        assert session.info.num_tokens == 20


BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "priority": {"priority": "high"},
    "priority of nan": {"priority": float("nan")},
    "priority beyond every number": {"priority": 10**400},
    "tenant": {"tenant": ["a"]},
    "queue_timeout_s": {"queue_timeout_s": 0},
    "timeout_s": {"timeout_s": -1.0},
    "timeout_s of text": {"timeout_s": "5"},
    "stall_timeout_s": {"stall_timeout_s": float("nan")},
    "request_id": {"request_id": 7},
}


@pytest.mark.parametrize("policy", ["fcfs", "priority", "fair", "deadline"])
@pytest.mark.parametrize("name", BAD_OPTIONS)
async def test_a_bad_option_is_refused_at_the_door_and_kills_nobody(
    name: str, policy: Any, anyio_backend: str
) -> None:
    """A rank that can't be compared would be the scheduler's death, and everybody's."""
    config = attrs.evolve(CONFIG, scheduling_policy=policy)
    async with open_engine(config) as engine:
        other = await engine.stream([1, 2], GREEDY).__aenter__()
        with pytest.raises(ValidationError) as caught:
            await engine.complete([1], GREEDY, **BAD_OPTIONS[name])
        assert caught.value.parameter == name.partition(" ")[0]
        assert (await other.wait()).finish_reason == "length"
        assert engine.core.dispatcher.deaths == 0


BAD_KEEPS: dict[str, Any] = {"text": "a", "half a token": 0.5, "yes": True}


@pytest.mark.parametrize("name", BAD_KEEPS)
async def test_a_bad_keep_is_refused_and_the_turn_goes_on(name: str, anyio_backend: str) -> None:
    """By the turn and by the session; neither is the session's death."""
    async with open_engine() as engine, engine.session() as session:
        async with session.turn([1, 2], GREEDY) as turn:
            for interrupt in (turn.interrupt, session.interrupt):
                with pytest.raises(ValidationError, match="keep="):
                    await interrupt(BAD_KEEPS[name])
            assert (await turn.wait()).finish_reason == "length"
        with pytest.raises(ValidationError, match="keep="):
            await session.interrupt(BAD_KEEPS[name])
        assert engine.core.dispatcher.deaths == 0


@pytest.mark.parametrize("keep", [-1, 5, 10**30])
async def test_keeping_what_was_not_received_is_refused(keep: int, anyio_backend: str) -> None:
    """With the number that was received."""
    async with open_engine() as engine, engine.session() as session:
        async with session.turn([1, 2], GREEDY) as turn:
            await turn.wait()
        with pytest.raises(ValidationError) as caught:
            await session.interrupt(keep)
        says(caught, f"keep={keep}"[:12])
        assert session.info.num_tokens == 6


async def test_a_request_id_in_use_is_refused(anyio_backend: str) -> None:
    """Both would answer to one ``abort``; after the end the id is free again."""
    async with open_engine(delay_s=0.001) as engine:
        async with engine.stream([1], GREEDY, request_id="a") as first:
            with pytest.raises(RequestExists, match="'a'"):
                await engine.complete([2], GREEDY, request_id="a")
            await first.wait()
        assert (await engine.complete([2], GREEDY, request_id="a")).request_id == "a"


async def test_a_retry_under_an_id_does_not_meet_its_first_try(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first was left while it waited or ran; the scheduler has it until it lets go of it."""
    monkeypatch.setattr(shell, "_HOPS_PER_TURN", 1)
    endless = SamplingParams(temperature=0)
    async with open_engine(delay_s=0.002) as engine:
        for ticks in range(30):
            # Twice: the second is the retry, and it must be possible to leave it as well.
            for _ in range(2):
                await _enter_at_last(engine, endless, ticks)
        with anyio.fail_after(2):
            await engine.settle()
        assert engine.core.dispatcher.deaths == 0


async def _enter_at_last(engine: Engine, params: SamplingParams, ticks: int) -> None:
    """Retry until the id is free, and leave after some ticks."""
    while True:
        try:
            async with engine.stream([1], params, request_id="a"):
                for _ in range(ticks):
                    await anyio.lowlevel.checkpoint()
                return
        except RequestExists:
            await anyio.lowlevel.checkpoint()


async def test_a_fresh_id_avoids_those_that_callers_chose(anyio_backend: str) -> None:
    """An innocent caller must not be refused because somebody else said "req-2"."""
    async with open_engine(delay_s=0.001) as engine:
        theirs = [engine.stream([1], GREEDY, request_id=f"req-{number}") for number in (1, 2)]
        async with engine.session(session_id="session-1"), theirs[0], theirs[1]:
            made = engine.stream([1], GREEDY)
            assert made.request_id == "req-3"
            async with made, engine.session() as session:
                assert session.session_id == "session-2"
                await made.wait()


async def test_bounds_of_the_queue_are_told_with_numbers(anyio_backend: str) -> None:
    """And the same request succeeds once there is room."""
    config = attrs.evolve(CONFIG, max_num_queued_reqs=2, max_sessions=1)
    async with open_engine(config) as engine:
        turns = [engine.stream([1], GREEDY) for _ in range(3)]
        for turn in turns[:2]:
            await turn.__aenter__()
        async with engine.session():
            with pytest.raises(TooManySessions, match="max_sessions is 1"):
                await engine.session().__aenter__()
        for turn in turns[:2]:
            await turn.wait()
    config = attrs.evolve(CONFIG, max_num_queued_tokens=10)
    async with open_engine(config) as engine:
        with pytest.raises(QueueFull) as caught:
            await engine.map([[1] * 9] * 10, GREEDY, concurrency=10)
        full = caught.value
        assert full.what == "tokens"
        assert "max_num_queued_tokens is 10" in str(full)
        assert len(await engine.map([[1] * 9] * 3, GREEDY, concurrency=1)) == 3


@pytest.mark.parametrize("concurrency", [0, -1])
async def test_no_concurrency_is_refused(concurrency: int, anyio_backend: str) -> None:
    """It would wait for ever."""
    async with open_engine() as engine:
        with pytest.raises(ValidationError, match="concurrency"):
            await engine.map([[1]], GREEDY, concurrency=concurrency)
        with pytest.raises(ValidationError, match="there are 2 prompts"):
            await engine.map([[1], [2]], [GREEDY])


MISUSES: dict[str, Callable[[Engine], Any]] = {
    "iterated": lambda engine: anext(engine.stream([1], GREEDY)),
    "waited for": lambda engine: engine.stream([1], GREEDY).wait(),
    "interrupted": lambda engine: engine.stream([1], GREEDY).interrupt(),
}


@pytest.mark.parametrize("name", MISUSES)
async def test_a_turn_that_was_never_entered_is_an_error_and_no_wait(
    name: str, anyio_backend: str
) -> None:
    """Nobody would ever answer."""
    async with open_engine() as engine:
        with anyio.fail_after(2), pytest.raises(ClientError):
            await MISUSES[name](engine)
        with pytest.raises(NotSubmitted):
            _ = engine.stream([1], GREEDY).result


async def test_a_turn_is_entered_once(anyio_backend: str) -> None:
    """It is one request; a second one is made by another call."""
    async with open_engine() as engine:
        turn = engine.stream([1], GREEDY)
        async with turn:
            await turn.wait()
        with anyio.fail_after(2), pytest.raises(ClientError):
            await turn.__aenter__()


async def test_a_generation_that_was_refused_stays_over(anyio_backend: str) -> None:
    """Asking it again must not wait for a request that was never submitted."""
    async with open_engine() as engine:
        generation = engine.generate([1] * 100, GREEDY)
        with pytest.raises(PromptTooLong):
            await anext(generation)
        with anyio.fail_after(2), pytest.raises(StopAsyncIteration):
            await anext(generation)
