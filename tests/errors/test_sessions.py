"""Sessions that are unknown, closed, busy or taken: typed errors, and nobody is disturbed."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import attrs
import pytest

from kernel import (
    ClientError,
    QueueFull,
    RequestAborted,
    SamplingParams,
    Session,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionLost,
    SessionNotFound,
    TooLate,
    TurnNotFound,
    ValidationError,
)
from kernel.ids import SessionId, session_custodian
from tests.errors.door import CONFIG, open_engine, says

GREEDY = SamplingParams(temperature=0, max_tokens=4)
LONG = SamplingParams(temperature=0)


async def test_an_unknown_session_is_named_with_the_way_to_open_one(anyio_backend: str) -> None:
    """An attach never opens."""
    async with open_engine() as engine:
        with pytest.raises(SessionNotFound) as caught:
            engine.attach("nobody")
        says(caught, "'nobody'", "engine.session()")
        with pytest.raises(SessionNotFound):
            engine.attach("one-shot:req-1")


async def test_a_taken_session_id_is_refused(anyio_backend: str) -> None:
    """The first owner keeps it, and it is free after the close."""
    async with open_engine() as engine:
        async with engine.session(session_id="a") as first:
            with pytest.raises(SessionExists) as caught:
                async with engine.session(session_id="a"):
                    pass
            says(caught, "'a'", "engine.attach()", "another id")
            assert first.info.state == "idle"
        await engine.settle()
        async with engine.session(session_id="a"):
            pass


async def test_a_one_shot_request_is_no_session(anyio_backend: str) -> None:
    """It has an actor of its own, which nobody can attach to."""
    async with open_engine(delay_s=0.001) as engine:
        async with engine.stream([1], GREEDY, request_id="a") as out:
            for name in ("a", "one-shot:a"):
                with pytest.raises(SessionNotFound):
                    engine.attach(name)
            assert engine.list_sessions() == []
            await out.wait()


CALLS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "append": lambda session: session.append([1]),
    "turn": lambda session: session.turn([1], GREEDY).__aenter__(),
    "interrupt": lambda session: session.interrupt(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_closed_session_refuses(call: str, anyio_backend: str) -> None:
    """Also through a handle that somebody else has attached, and never by waiting."""
    async with open_engine() as engine:
        async with engine.session(session_id="a") as session:
            await session.append([1, 2])
            attached = engine.attach("a")
            assert attached.info.num_tokens == 2
        await engine.settle()
        for handle in (session, attached):
            with anyio.fail_after(2), pytest.raises(ClientError) as caught:
                await CALLS[call](handle)
            assert isinstance(caught.value, SessionClosed | SessionNotFound)
            says(caught, "'a'")
        await session.close()
        await attached.close()


async def test_a_busy_session_refuses_and_its_turn_goes_on(anyio_backend: str) -> None:
    """The error names the turn in the way and both ways out."""
    async with open_engine(delay_s=0.001) as engine, engine.session() as session:
        async with session.turn([1], GREEDY, request_id="first") as turn:
            for call in (session.append([1]), session.turn([2], GREEDY).__aenter__()):
                with pytest.raises(SessionBusy) as caught:
                    await call
                says(caught, "'session-1'", "first", "wait=True", "interrupt")
            assert (await turn.wait()).finish_reason == "length"
        assert session.info.num_tokens == 5


async def test_closing_tells_everybody_who_waits(anyio_backend: str) -> None:
    """The turn that runs, the turns behind it, and an interrupt under way."""
    async with open_engine(delay_s=0.001) as engine, engine.session() as session:
        running = await session.turn([1], LONG).__aenter__()
        behind = await session.turn([1], LONG, wait=True).__aenter__()
        await anext(running)
        await session.close()
        for turn in (running, behind):
            with anyio.fail_after(2), pytest.raises(SessionClosed):
                await turn.wait()
        with pytest.raises(SessionClosed):
            await running.interrupt()


async def test_a_lost_session_says_so(anyio_backend: str) -> None:
    """Its actor crashed: state and log are gone, and the error isn't the caller's fault."""
    async with open_engine(delay_s=0.001) as engine:
        session = await engine.session(session_id="a").__aenter__()
        turn = await session.turn([1], LONG).__aenter__()
        engine.core.dispatcher.kill(session_custodian(SessionId("a")), RuntimeError("planted"))
        with anyio.fail_after(2), pytest.raises(SessionLost, match="'a'"):
            await turn.wait()
        with pytest.raises((SessionLost, SessionClosed, SessionNotFound)):
            await session.append([1])
        async with engine.session(session_id="a") as successor:
            assert successor.info.num_tokens == 0
        await engine.settle()


async def test_there_must_be_a_turn_to_interrupt(anyio_backend: str) -> None:
    """Before the first one, and of the past ones only the last."""
    async with open_engine() as engine, engine.session() as session:
        with pytest.raises(TurnNotFound):
            await session.interrupt()
        first = session.turn([1], GREEDY)
        async with first:
            await first.wait()
        async with session.turn([2], GREEDY) as second:
            await second.wait()
        with pytest.raises(TooLate) as caught:
            await first.interrupt(0)
        says(caught, first.request_id, "another turn")
        assert await second.interrupt(1) == 1


async def test_an_abort_names_its_request_and_reaches_no_other(anyio_backend: str) -> None:
    """An id that isn't open is no error: the request may have ended a moment ago."""
    async with open_engine(delay_s=0.001) as engine, engine.session() as session:
        turn = await session.turn([1], LONG, request_id="mine").__aenter__()
        assert not engine.abort("yours")
        assert engine.abort("mine")
        with anyio.fail_after(2), pytest.raises(RequestAborted, match="'mine'"):
            await turn.wait()
        assert not engine.abort("mine")
        assert session.info.num_tokens == 0
        assert (await session.append([1])).finish_reason == "length"


@pytest.mark.parametrize("value", [0, -1, float("nan"), "10"])
async def test_an_idle_timeout_that_makes_no_sense_is_refused(
    value: Any, anyio_backend: str
) -> None:
    """Zero would close the session before its first turn."""
    async with open_engine() as engine:
        with pytest.raises(ValidationError, match="idle_timeout_s="):
            engine.session(idle_timeout_s=value)


SMALL = attrs.evolve(CONFIG, max_num_queued_reqs=4)


async def test_a_flood_of_cancels_fits_every_mailbox(anyio_backend: str) -> None:
    """A latch per turn: a thousand cancels are one message, and no actor's death."""
    async with open_engine(SMALL, delay_s=0.001) as engine, engine.session() as session:
        turn = await session.turn([1], LONG, request_id="a").__aenter__()
        for _ in range(1_000):
            turn.cancel()
            assert engine.abort("a")
        with anyio.fail_after(2), pytest.raises(RequestAborted):
            await turn.wait()
        assert engine.core.dispatcher.deaths == 0


async def test_a_flood_of_interrupts_is_answered_or_refused_one_by_one(
    anyio_backend: str,
) -> None:
    """Callers get half of a mailbox; an actor that finds it full would die of it."""
    async with open_engine(SMALL, delay_s=0.001) as engine, engine.session() as session:
        answers: list[int | None] = []

        async def ask(interrupt: Callable[[], Awaitable[int]]) -> None:
            try:
                answers.append(await interrupt())
            except QueueFull:
                answers.append(None)

        async with session.turn([1], LONG) as turn:
            await anext(turn)
            async with anyio.create_task_group() as tasks:
                for _ in range(200):
                    tasks.start_soon(ask, partial(session.interrupt, 1))
                    tasks.start_soon(ask, partial(turn.interrupt, 1))
            assert (await turn.wait()).finish_reason == "interrupt"
        assert len(answers) == 400
        assert set(answers) == {1, None}
        assert engine.core.dispatcher.deaths == 0


async def test_a_flood_of_closes_is_one_close(anyio_backend: str) -> None:
    """Idempotent, and bounded as well; so is closing the engine."""
    async with open_engine(SMALL) as engine:
        session = await engine.session().__aenter__()
        async with anyio.create_task_group() as tasks:
            for _ in range(300):
                tasks.start_soon(session.close)
        assert not engine.list_sessions()
        assert engine.core.dispatcher.deaths == 0


async def test_an_attached_session_can_be_used_without_its_block(anyio_backend: str) -> None:
    """It is open already: ``attach`` has found it."""
    async with open_engine() as engine:
        owner = await engine.session(session_id="a").__aenter__()
        async with owner.turn([1], GREEDY) as turn:
            await turn.wait()
        assert await engine.attach("a").interrupt(2) == 2
        assert owner.info.num_tokens == 3
        await engine.attach("a").close()
        assert not engine.list_sessions()


async def test_closing_waits_for_no_other_client(anyio_backend: str) -> None:
    """However busy the engine is with others."""
    async with open_engine(delay_s=0.0005) as engine, engine.session() as busy:
        async with busy.turn([1], SamplingParams(temperature=0, max_tokens=25)) as turn:
            await anext(turn)
            session = await engine.session().__aenter__()
            await session.append([1])
            await session.close()
            assert turn.has_result is False
            await turn.wait()
