"""Objects of the door used twice or after their end, and prompts at the edges of fitting."""

from collections.abc import Callable
from typing import Any

import anyio
import attrs
import pytest

from kernel import (
    Engine,
    NotFinished,
    PromptTooLong,
    QueueFull,
    RequestAborted,
    RequestExists,
    RunningTurn,
    SamplingParams,
    Session,
    SessionBusy,
    SessionClosed,
    SessionExists,
    ValidationError,
)
from tests.errors.door import CONFIG, open_engine, says

GREEDY = SamplingParams(temperature=0, max_tokens=4)
LONG = SamplingParams(temperature=0)
Make = Callable[[Engine, Session], RunningTurn]
MAKES: dict[str, Make] = {
    "stream": lambda engine, session: engine.stream([1], GREEDY),
    "turn": lambda engine, session: session.turn([1], GREEDY),
    "waiting turn": lambda engine, session: session.turn([1], GREEDY, wait=True),
}
each_make = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)


async def enter(block: Any) -> None:
    async with block:
        pass


@each_make
async def test_a_turn_that_runs_is_not_entered_again(make: Make) -> None:
    """The first entry goes on, and what was said is in the log once."""
    async with open_engine(delay_s=0.0) as engine, engine.session() as session:
        async with make(engine, session) as turn:
            await anext(turn)
            with anyio.fail_after(2), pytest.raises(RequestExists) as caught:
                await enter(turn)
            says(caught, repr(turn.request_id), "new stream() or turn()")
            assert len((await turn.wait()).token_ids) == 4
        assert session.info.num_tokens in (0, 5)


@each_make
async def test_a_turn_that_has_ended_is_not_entered_again(make: Make) -> None:
    """Nothing is submitted: no step runs, and its result stands."""
    async with open_engine() as engine, engine.session() as session:
        async with make(engine, session) as turn:
            result = await turn.wait()
        steps, tokens = engine.stats().steps, session.info.num_tokens
        with anyio.fail_after(2), pytest.raises(RequestExists):
            await enter(turn)
        await engine.settle()
        assert (engine.stats().steps, session.info.num_tokens) == (steps, tokens)
        assert turn.result == result


async def test_a_turn_that_was_refused_is_not_entered_again() -> None:
    """Refused by its session, or at the door: a retry is a new call."""
    config = attrs.evolve(CONFIG, max_num_seqs=1, max_num_queued_reqs=1)
    async with open_engine(config, delay_s=0.0) as engine, engine.session() as session:
        async with session.turn([1], LONG) as running:
            await anext(running)
            busy = session.turn([1], GREEDY)
            with pytest.raises(SessionBusy):
                await enter(busy)
            async with engine.stream([2], GREEDY):
                full = engine.stream([3], GREEDY)
                with pytest.raises(QueueFull):
                    await enter(full)
        await engine.settle()
        for turn in (busy, full):
            with anyio.fail_after(2), pytest.raises(RequestExists):
                await enter(turn)
            with anyio.fail_after(2), pytest.raises((NotFinished, SessionBusy)):
                await anext(turn)
        assert len((await engine.complete([3], GREEDY)).token_ids) == 4


@each_make
async def test_a_turn_that_was_left_early_tells_so_when_read_on(make: Make) -> None:
    """Outside of its block it neither waits for ever nor goes on."""
    async with open_engine(delay_s=0.0) as engine, engine.session() as session:
        async with make(engine, session) as turn:
            await anext(turn)
            with pytest.raises(NotFinished) as caught:
                assert turn.result.text
            says(caught, turn.request_id, "await wait()")
        with anyio.fail_after(2), pytest.raises(RequestAborted):
            await anext(turn)
        with pytest.raises(NotFinished, match="ended without a result") as caught:
            assert turn.result.text
        assert isinstance(caught.value.__cause__, RequestAborted), "it does not go on"
        assert session.info.num_tokens == 0


@each_make
async def test_a_turn_that_was_read_to_its_end_has_no_more(make: Make) -> None:
    """In its block and after it; its result can be looked at as often as one likes."""
    async with open_engine() as engine, engine.session() as session:
        async with make(engine, session) as turn:
            assert [delta async for delta in turn][-1].finish_reason == "length"
            assert [delta async for delta in turn] == []
        with anyio.fail_after(2), pytest.raises(StopAsyncIteration):
            await anext(turn)
        assert turn.result is turn.result


async def test_a_session_that_is_open_is_not_entered_again() -> None:
    """By the same object as little as by another; the first entry is not disturbed."""
    async with open_engine() as engine:
        session = engine.session()
        async with session:
            await session.append([1, 2])
            with pytest.raises(SessionExists):
                await enter(session)
            assert session.info.num_tokens == 2
        with pytest.raises(SessionClosed):
            await session.append([3])


async def test_a_whole_block_after_close_is_refused_and_its_exit_closes_nothing_else() -> None:
    """A namesake that was opened since is somebody else's."""
    async with open_engine() as engine:
        old = await engine.session(session_id="a").__aenter__()
        await old.close()
        async with engine.session(session_id="a") as new:
            await new.append([1, 2])
            for call in (old.append([3]), old.interrupt(), enter(old.turn([3], GREEDY))):
                with pytest.raises(SessionClosed):
                    await call
            await old.close()
            await old.__aexit__(None, None, None)
            await engine.settle()
            assert new.info.num_tokens == 2


@pytest.mark.parametrize(
    ("setting", "limit", "name"),
    [({"max_model_len": 12}, 12, "max_model_len"), ({"num_pages": 3}, 12, "num_pages")],
)
async def test_what_can_never_fit_is_refused_and_what_just_fits_is_served(
    setting: dict[str, Any], limit: int, name: str
) -> None:
    """By the model's length or the pool's; history, input and what is to be generated together."""
    config = attrs.evolve(CONFIG, **setting)
    ends = SamplingParams(temperature=0, max_tokens=2)
    async with open_engine(config) as engine, engine.session() as session:
        await session.append([1] * 4)
        calls: list[tuple[Any, int]] = [
            (engine.complete([1] * (limit - 1), ends), limit - 1),
            (engine.complete([1] * limit, LONG), limit),
            (engine.complete([1], SamplingParams(max_tokens=limit)), 1),
            (enter(session.turn([1] * (limit - 5), ends)), limit - 1),
            (session.append([1] * (limit - 3)), limit + 1),
        ]
        for call, tokens in calls:
            with pytest.raises(PromptTooLong) as caught:
                await call
            assert (caught.value.prompt_tokens, caught.value.limit) == (tokens, limit)
            says(caught, f"{tokens} tokens", f"{limit} ({name}", "shorten it", f"raise {name}")
        assert len((await engine.complete([1] * (limit - 2), ends)).token_ids) == 2
        async with session.turn([1] * (limit - 6), ends) as turn:
            assert len((await turn.wait()).token_ids) == 2


@pytest.mark.parametrize("empty", ["", [], ()], ids=repr)
async def test_an_empty_turn_needs_a_log_and_an_empty_append_is_never_right(empty: Any) -> None:
    """After an append it goes on from there: that is how a turn without new input is asked for."""
    async with open_engine() as engine, engine.session() as session:
        for call in (enter(session.turn(empty, GREEDY)), session.append(empty)):
            with pytest.raises(ValidationError, match="at least one token"):
                await call
        await session.append([1, 2])
        with pytest.raises(ValidationError, match="at least one token"):
            await session.append(empty)
        async with session.turn(empty, GREEDY) as turn:
            result = await turn.wait()
        cold = await engine.complete([1, 2], GREEDY)
        assert result.token_ids == cold.token_ids
        assert session.info.num_tokens == 6
