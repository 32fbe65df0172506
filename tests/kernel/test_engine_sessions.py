"""The public door: sessions, their names, their bounds and their ends."""

from typing import Any

import anyio
import pytest

from kernel import (
    Engine,
    SamplingParams,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    TooManySessions,
    TurnNotFound,
    ValidationError,
)
from tests.kernel.small import GREEDY, LONG, config, opened


async def test_a_turn_costs_only_its_new_tokens() -> None:
    """The history is in the state, and the tokens are those of the whole conversation."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session() as session:
            async with session.turn([1, 2, 3], GREEDY) as turn:
                first = await turn.wait()
            async with session.turn([4], GREEDY) as turn:
                second = await turn.wait()
        cold = await engine.complete([1, 2, 3, *first.token_ids, 4], GREEDY)

    assert second.token_ids == cold.token_ids
    assert second.usage.prompt_tokens == 8
    assert second.num_cached_tokens == 6


async def test_leaving_the_block_closes_the_session() -> None:
    """Its memory is free and its name is gone; using it afterwards is an error that says so."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session() as session:
            await session.append([1, 2, 3])
        await engine.settle()

        assert engine.audit().at_rest
        with pytest.raises(SessionNotFound):
            engine.attach(session.session_id)
        with pytest.raises(SessionClosed):
            await session.append([4])
        with pytest.raises(SessionClosed):
            await session.interrupt()
        await session.close()


async def test_a_detached_session_outlives_its_block_and_is_found_again() -> None:
    """A voice call reconnects; attaching never closes."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session(session_id="call", detached=True) as session:
            await session.append([1, 2, 3])
        async with engine.attach("call") as again:
            async with again.turn([4], GREEDY) as turn:
                await turn.wait()
        info = engine.attach("call").info

        assert (info.num_tokens, info.detached) == (8, True)
        assert [found.session_id for found in engine.list_sessions()] == ["call"]


async def test_an_attached_session_is_usable_at_once() -> None:
    """Without a block: interrupted, asked and closed like any other."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session(session_id="call", detached=True) as session:
            async with session.turn([1], GREEDY) as turn:
                await turn.wait()
        kept = await engine.attach("call").interrupt(2)
        tokens = engine.attach("call").info.num_tokens
        await engine.attach("call").close()

        assert (kept, tokens) == (2, 3)
        assert engine.list_sessions() == []


async def test_an_attached_session_is_this_one_and_no_namesake() -> None:
    """A name may be given away again; an old reference must not reach the new owner."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session(session_id="call"):
            old = engine.attach("call")
        await engine.settle()
        async with engine.session(session_id="call") as new:
            await new.append([1, 2])
            await old.close()
            await engine.settle()

            assert new.info.state == "idle"


async def test_a_one_shot_is_no_session_that_could_be_attached() -> None:
    """It has a session inside, which is nobody's business."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        async with engine.stream([1], LONG, request_id="r"):
            (inside,) = engine.core.sessions
            with pytest.raises(SessionNotFound):
                engine.attach(inside)

            assert engine.list_sessions() == []


async def test_a_name_is_taken_while_its_session_is_open() -> None:
    """And free afterwards, at once."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session(session_id="a") as first:
            await first.append([1, 2])
            with pytest.raises(SessionExists):
                async with engine.session(session_id="a"):
                    pass
            await first.close()
            async with engine.session(session_id="a") as second:
                assert second.info.num_tokens == 0


async def test_the_end_of_an_old_block_does_not_close_its_namesake() -> None:
    """A session names itself and no successor."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session(session_id="a") as first:
            await first.close()
            second = await engine.session(session_id="a").__aenter__()
        await engine.settle()

        assert second.info.state == "idle"


async def test_the_bound_on_sessions_is_typed_and_counts_no_one_shots() -> None:
    """One-shots are bounded by the queue."""
    async with Engine.open(config(max_sessions=1), device=opened()) as engine:
        async with engine.session():
            with pytest.raises(TooManySessions) as caught:
                async with engine.session():
                    pass
            await engine.complete([1], GREEDY)
        await engine.settle()
        async with engine.session():
            pass

    assert (caught.value.open_sessions, caught.value.limit) == (1, 1)


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
async def test_an_idle_timeout_has_to_be_positive(wrong: float) -> None:
    """Zero would close a session before its first turn."""
    async with Engine.open(config(), device=opened()) as engine:
        with pytest.raises(ValidationError):
            engine.session(idle_timeout_s=wrong)


@pytest.mark.parametrize("where", ["config", "session"])
async def test_an_idle_session_is_closed_for_its_timeout(where: str) -> None:
    """The config's by default, its own first."""
    own: dict[str, Any] = {"idle_timeout_s": 0.02} if where == "session" else {}
    general = 0.02 if where == "config" else 100.0
    async with Engine.open(config(idle_timeout_s=general), device=opened()) as engine:
        async with engine.session(**own) as session:
            await session.append([1, 2, 3])
            while engine.list_sessions():
                await engine.settle()
                await anyio.sleep(0.005)
            with pytest.raises(SessionClosed):
                await session.append([4])

        assert engine.audit().at_rest


async def test_busy_is_an_error_or_a_place_in_the_queue() -> None:
    """As the caller asks."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        async with engine.session() as session:
            async with session.turn([1], LONG) as running:
                await anext(running)
                with pytest.raises(SessionBusy) as caught:
                    async with session.turn([2], GREEDY):
                        pass
                async with session.turn([2], GREEDY, wait=True) as waiting:
                    await running.interrupt(1)
                    result = await waiting.wait()

    assert caught.value.turn_id == running.request_id
    assert result.usage.prompt_tokens == 3


async def test_leaving_with_keep_keeps_what_was_read() -> None:
    """Barge-in by leaving the block."""
    async with Engine.open(config(), device=opened(delay=0.0)) as engine:
        async with engine.session() as session:
            read: tuple[int, ...] = ()
            async with session.turn([1, 2], LONG, on_exit="keep") as turn:
                async for delta in turn:
                    read += delta.token_ids
                    if len(read) >= 3:
                        break
            async with session.turn([7], GREEDY, wait=True) as turn:
                following = await turn.wait()
        cold = await engine.complete([1, 2, *read, 7], GREEDY)

    assert following.token_ids == cold.token_ids


async def test_a_session_without_a_turn_has_nothing_to_interrupt() -> None:
    """Told as such, and not as a success."""
    async with Engine.open(config(), device=opened()) as engine:
        async with engine.session() as session:
            with pytest.raises(TurnNotFound):
                await session.interrupt()


async def test_stop_reasons_are_told_apart() -> None:
    """A stop id of the caller's is named; an end of sequence is not."""
    async with Engine.open(config(), device=opened()) as engine:
        free = await engine.complete([1, 2], GREEDY)
        stop_id = free.token_ids[2]
        params = SamplingParams(temperature=0, max_tokens=9, stop_token_ids=[stop_id])
        stopped = await engine.complete([1, 2], params)

    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop_id)
    assert stopped.token_ids == free.token_ids[:3]
