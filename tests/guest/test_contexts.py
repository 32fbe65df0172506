"""An engine belongs to one process, thread and event loop; from elsewhere, a typed error.

The error comes at once and before anything has changed: a call that went on would wait for an
event loop that can't wake it, or write into another thread's books.
"""

import asyncio
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from adapters.fake_device import FakeDevice
from kernel import (
    BlockingEngine,
    Engine,
    EngineClosed,
    EngineConfig,
    NotFinished,
    RunningTurn,
    SamplingParams,
    Session,
    SessionClosed,
    SessionNotFound,
    TenureError,
    WrongContext,
)
from tests.cancellation.holding import assert_at_rest

PARAMS = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
CONFIG = EngineConfig(num_pages=32, page_size=4, max_num_seqs=2)
Call = Callable[[Engine, Session, RunningTurn], Awaitable[object]]


async def iterate(engine: Engine, session: Session, turn: RunningTurn) -> None:
    async for _ in turn:
        pass


async def enter_session(engine: Engine, session: Session, turn: RunningTurn) -> None:
    async with engine.session():
        pass


async def attach(engine: Engine, session: Session, turn: RunningTurn) -> None:
    engine.attach(session.session_id)


async def abort(engine: Engine, session: Session, turn: RunningTurn) -> None:
    engine.abort(turn.request_id)


async def look(engine: Engine, session: Session, turn: RunningTurn) -> None:
    engine.stats()


async def list_sessions(engine: Engine, session: Session, turn: RunningTurn) -> None:
    engine.list_sessions()


async def health(engine: Engine, session: Session, turn: RunningTurn) -> None:
    engine.health()


async def info(engine: Engine, session: Session, turn: RunningTurn) -> None:
    assert session.info.state


async def enter_turn(engine: Engine, session: Session, turn: RunningTurn) -> None:
    async with session.turn([1], PARAMS, wait=True):
        pass


CALLS: dict[str, Call] = {
    "complete": lambda engine, session, turn: engine.complete([1], PARAMS),
    "generate": lambda engine, session, turn: anext(engine.generate([1], PARAMS)),
    "settle": lambda engine, session, turn: engine.settle(),
    "aclose": lambda engine, session, turn: engine.aclose(),
    "append": lambda engine, session, turn: session.append([1], wait=True),
    "interrupt": lambda engine, session, turn: session.interrupt(),
    "close": lambda engine, session, turn: session.close(),
    "turn.next": lambda engine, session, turn: anext(turn),
    "turn.wait": lambda engine, session, turn: turn.wait(),
    "turn.interrupt": lambda engine, session, turn: turn.interrupt(),
    "iterate": iterate,
    "session": enter_session,
    "turn": enter_turn,
    "attach": attach,
    "abort": abort,
    "stats": look,
    "sessions": list_sessions,
    "health": health,
    "info": info,
}


def outcome(make: Callable[[], Awaitable[object]]) -> BaseException | None:
    """How a call ends that never waits for anything."""
    try:
        call: Any = make()
        call.send(None)
    except StopIteration:
        return None
    except BaseException as error:
        return error
    return AssertionError("it waits")


def in_thread(run: Callable[[], BaseException | None]) -> BaseException | None:
    results: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: results.append(run()), daemon=True)
    thread.start()
    thread.join(5)
    return results[0] if results else AssertionError("it waits")


def in_loop_of_a_thread(make: Callable[[], Awaitable[object]]) -> BaseException | None:
    """The call in an event loop that runs in another thread."""

    async def main() -> BaseException | None:
        try:
            with anyio.fail_after(2):
                await make()
        except BaseException as error:
            return error
        return None

    return in_thread(lambda: asyncio.run(main()))


def in_child(make: Callable[[], Awaitable[object]]) -> BaseException | None:
    """The call in a forked child, whose event loop has no life of its own."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of threads
        child = os.fork()
    if not child:
        try:
            os.write(writer, pickle.dumps(outcome(make)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found: BaseException | None = pickle.load(pipe)
    os.waitpid(child, 0)
    return found


ELSEWHERE: dict[str, Callable[[Callable[[], Awaitable[object]]], BaseException | None]] = {
    "thread": lambda make: in_thread(lambda: outcome(make)),
    "loop of a thread": in_loop_of_a_thread,
}
if sys.platform != "win32":
    ELSEWHERE["process"] = in_child


@pytest.mark.parametrize("where", ELSEWHERE)
async def test_every_call_from_elsewhere_is_refused_and_changes_nothing(where: str) -> None:
    """The open turn goes on in its own place, and nothing of the other one was begun."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with Engine.open(CONFIG, device=device) as engine, engine.session() as session:
        async with session.turn([1, 2], PARAMS) as turn:
            while not device.waiting:
                await anyio.lowlevel.checkpoint()
            hops = engine.core.dispatcher.hops
            found = {
                name: ELSEWHERE[where](partial(call, engine, session, turn))
                for name, call in CALLS.items()
            }
            assert engine.core.dispatcher.hops == hops
            assert len(engine.core.sessions) == 1
            assert engine.core.door.queued_reqs == 0
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_complete_steps, device, 3)
                await turn.wait()
        await engine.settle()
        assert_at_rest(engine)

    assert len(turn.result.token_ids) == 3
    assert {name: type(error) for name, error in found.items()} == dict.fromkeys(
        CALLS, WrongContext
    )
    expected = "process" if where == "process" else "thread"
    assert {error.where for error in found.values() if isinstance(error, WrongContext)} == {
        expected
    }


async def _complete_steps(device: FakeDevice, count: int) -> None:
    for _ in range(count):
        while not device.waiting:
            await anyio.lowlevel.checkpoint()
        device.complete()


def test_another_event_loop_of_the_same_thread_is_refused() -> None:
    """Notebooks that nest or alternate loops do it."""
    engines: list[Engine] = []
    is_open, leave = asyncio.Event(), asyncio.Event()
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def hold() -> None:
        async with Engine.open(CONFIG, device=FakeDevice()) as engine:
            engines.append(engine)
            is_open.set()
            await leave.wait()

    async def use() -> None:
        with pytest.raises(WrongContext) as caught:
            await engines[0].complete([1], PARAMS)
        assert caught.value.where == "event loop"
        assert "open an engine in each event loop" in str(caught.value)

    try:
        holder = first.create_task(hold())
        first.run_until_complete(is_open.wait())
        second.run_until_complete(use())
        trio.run(use)
        leave.set()
        first.run_until_complete(holder)
    finally:
        first.close()
        second.close()
    assert engines[0].core.audit is not None
    assert engines[0].core.audit.at_rest


async def test_without_an_event_loop_it_is_refused() -> None:
    """Synchronous code that kept the engine."""
    async with Engine.open(CONFIG, device=FakeDevice()) as engine:
        kept = engine
    error = in_thread(lambda: outcome(lambda: kept.complete([1], PARAMS)))

    assert isinstance(error, WrongContext)


async def test_a_closed_engine_answers_every_call_at_once() -> None:
    """Looking is allowed, work is refused, and nothing waits for an answer that can't come."""
    async with Engine.open(CONFIG, device=FakeDevice()) as engine, engine.session() as session:
        async with session.turn([1], PARAMS) as turn:
            await turn.wait()
        await engine.aclose()
        found: dict[str, BaseException | None] = {}
        for name, call in CALLS.items():
            with anyio.fail_after(2):
                try:
                    await call(engine, session, turn)
                except (TenureError, StopAsyncIteration) as error:
                    found[name] = error

    refused = (EngineClosed, SessionClosed, SessionNotFound)
    for name in ("complete", "generate", "append", "interrupt", "session", "turn", "attach"):
        assert isinstance(found[name], refused), (name, found.get(name))
        assert "open" in str(found[name])
    assert isinstance(found["complete"], EngineClosed)
    assert isinstance(found["session"], EngineClosed)
    assert {"stats", "health", "sessions", "settle", "aclose", "close"}.isdisjoint(found)
    assert len(turn.result.token_ids) == 3


async def test_what_is_not_open_yet_says_so() -> None:
    """Each object of the door has a block; using it before its block is entered is an error."""
    async with Engine.open(CONFIG, device=FakeDevice()) as engine:
        turn = engine.stream([1], PARAMS)
        session = engine.session()
        for call in (turn.wait, lambda: anext(turn), turn.interrupt):
            with anyio.fail_after(2), pytest.raises(NotFinished):
                await call()
        with pytest.raises(NotFinished):
            assert turn.result.text
        with pytest.raises(SessionNotFound):
            await session.append([1])
        with pytest.raises((SessionNotFound, SessionClosed)):
            await session.interrupt()
        await session.close()
        await engine.settle()
        assert not engine.core.sessions
        assert engine.stats().steps == 0


def test_the_blocking_door_says_that_it_is_not_open() -> None:
    """Before its block, and after it."""
    door = BlockingEngine(CONFIG, device=FakeDevice())
    for call in (door.stats, door.health, lambda: door.complete([1]), lambda: door.map([[1]])):
        with pytest.raises(EngineClosed, match="with block"):
            call()
    with door as engine:
        assert len(engine.complete([1], PARAMS).token_ids) == 3
    for call in (door.stats, lambda: door.complete([1])):
        with pytest.raises(EngineClosed):
            call()
