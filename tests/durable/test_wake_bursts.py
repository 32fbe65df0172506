"""Many dormant sessions that are wanted at once, and little room in memory."""

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from functools import partial
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine
from kernel.engine.wake_calls import WakeCalls
from kernel.errors import (
    EngineClosed,
    QueueFull,
    QueueTimeout,
    RequestAborted,
    SessionNotFound,
    StoreError,
    TenureError,
    TooManySessions,
    TurnTimeout,
)
from kernel.ids import STORE, SessionId, TurnId
from kernel.messages import Hibernate
from kernel.session_store import ReadSession
from kernel.sessions.session import SessionActor
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import Durable, device_of, open_engine, settled
from tests.kernel.turns import make_request
from tests.known import known
from tests.scenarios.inputs import greedy

MANY = 100
_DISKS: dict[int, MemoryStore] = {}
"""Made once, copied for each test."""


async def kept(count: int) -> MemoryFiles:
    """A disk with so many sessions of one turn."""
    files = MemoryFiles()
    if count not in _DISKS:
        async with open_engine(files, session_store="x", max_resident_sessions=1) as engine:
            for number in range(count):
                async with engine.session(session_id=f"s{number}", detached=True) as session:
                    await session.append([1, 2, number + 3])
        _DISKS[count] = files.disk
    files.disk = MemoryStore()
    files.disk.sessions = deepcopy(_DISKS[count].sessions)
    return files


class Crowd:
    """Callers who want one turn each, and how each of them was answered."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.accepted: list[str] = []
        self.most = 0
        """Sessions in memory when a turn was accepted."""
        self.answers: dict[str, object] = {}
        """Tokens, or an error."""
        self.tasks: anyio.abc.TaskGroup | None = None

    def start(self, call: Callable[..., Any], *args: object) -> None:
        assert self.tasks is not None
        self.tasks.start_soon(call, *args)

    async def call(self, name: str, **options: Any) -> None:
        assert name not in self.answers
        try:
            turn = self.engine.attach(name).turn(
                [4], greedy(2), request_id=f"turn of {name}", **options
            )
            async with turn:
                self.accepted.append(name)
                self.most = max(self.most, self.engine.core.num_sessions)
                self.answers[name] = (await turn.wait()).token_ids
        except TenureError as error:
            self.answers[name] = error

    async def all_call(self, names: Sequence[str]) -> None:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for name in names:
                    tasks.start_soon(self.call, name)

    def errors(self) -> set[type]:
        return {type(one) for one in self.answers.values() if isinstance(one, BaseException)}


@pytest.mark.parametrize(("max_sessions", "max_resident"), [(1, 1), (2, 1), (3, 100)])
async def test_all_of_a_burst_are_served_however_little_the_room(
    max_sessions: int, max_resident: int
) -> None:
    """Each with the tokens that it would have had alone, and no more in memory than may be."""
    names = [f"s{number}" for number in range(MANY)]
    files = await kept(MANY)
    async with open_engine(
        files,
        session_store="x",
        max_sessions=max_sessions,
        max_resident_sessions=max_resident,
    ) as engine:
        crowd = Crowd(engine)
        await crowd.all_call(names)
        door = engine.core.door
        assert (door.queued_reqs, door.queued_tokens) == (0, 0)
    async with open_engine(await kept(MANY), session_store="x") as engine:
        alone = Crowd(engine)
        for name in names:
            await alone.call(name)

    assert crowd.most == max_sessions
    assert crowd.answers == alone.answers
    assert not crowd.errors()


async def test_beyond_the_bound_of_turns_that_wait_a_turn_is_refused_at_once() -> None:
    """And by that bound alone."""
    files = await kept(40)
    async with open_engine(
        files, session_store="x", max_sessions=1, max_num_queued_reqs=10
    ) as engine:
        crowd = Crowd(engine)
        await crowd.all_call([f"s{number}" for number in range(40)])
        again = Crowd(engine)
        await again.all_call(["s39"])

    assert crowd.errors() == {QueueFull}
    assert len(crowd.accepted) >= 10
    assert again.accepted == ["s39"]


async def test_who_wants_no_turn_waits_as_well_and_counts() -> None:
    """Going back in a dormant session, or entering its block."""
    files = await kept(40)
    left: list[int] = []
    async with open_engine(
        files, session_store="x", max_sessions=1, max_num_queued_reqs=40
    ) as engine:

        async def rewind(number: int) -> None:
            left.append(await engine.attach(f"s{number}").rewind(0))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(rewind, number)
                await anyio.wait_all_tasks_blocked()
        assert engine.core.door.queued_reqs == 0

    assert left == [0] * 40


@asynccontextmanager
async def a_busy_engine(count: int, **config: Any) -> AsyncGenerator[tuple[Engine, Crowd]]:
    """Room for one, which a turn has that runs until :func:`serve` lets it end."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    files = await kept(count)
    async with open_engine(
        files, session_store="x", max_sessions=1, device=device, stop_timeout_s=0.1, **config
    ) as engine:
        crowd = Crowd(engine)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(crowd.call, "s0")
                await until(lambda: "s0" in crowd.accepted)
                crowd.tasks = tasks
                yield engine, crowd


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.lowlevel.checkpoint()


async def serve(engine: Engine, condition: Callable[[], bool]) -> None:
    """Complete steps and transfers until a condition holds."""
    device = device_of(engine)
    while not condition():
        if device.waiting:
            device.complete()
        if device.waiting_transfers:
            device.complete_transfer()
        await anyio.lowlevel.checkpoint()


def dormant(world: Durable, *names: str) -> None:
    """Sessions of one turn that are only in the store."""
    for name in names:
        actor = world.session(name)
        world.start(actor, [1, 2, 3])
        world.rest()
        world.post(actor, Hibernate())
        world.rest()


def waits(engine: Engine, turn: str) -> bool:
    return engine.core.door.counts(TurnId(turn))


async def test_they_are_served_in_the_order_in_which_they_came() -> None:
    """Not by name, and not by who asks last."""
    names = [f"s{number * 7 % 30}" for number in range(30)]
    async with a_busy_engine(30) as (engine, crowd):
        for name in names[1:]:
            crowd.start(crowd.call, name)
            await until(partial(waits, engine, f"turn of {name}"))
        await serve(engine, lambda: len(crowd.answers) == 30)

    assert crowd.accepted == names


@pytest.mark.parametrize("how", ["abort", "cancel", "leave", "forget"])
async def test_a_turn_that_waits_for_its_session_can_be_cancelled(how: str) -> None:
    """At once, in each of the ways; those behind it are served."""
    async with a_busy_engine(3) as (engine, crowd):
        turn = engine.attach("s1").turn([4], greedy(2), request_id="waiting")
        scope = anyio.CancelScope()
        caught: list[BaseException] = []

        async def enter() -> None:
            try:
                with scope:
                    async with turn:
                        pass
            except TenureError as error:
                caught.append(error)

        crowd.start(enter)
        await until(lambda: waits(engine, "waiting"))
        crowd.start(crowd.call, "s2")
        match how:
            case "abort":
                assert engine.abort("waiting")
            case "cancel":
                turn.cancel()
            case "leave":
                scope.cancel()
            case _:
                await engine.forget("s1")
        await until(lambda: not waits(engine, "waiting"))
        answered_meanwhile = list(crowd.answers)
        await serve(engine, lambda: "s2" in crowd.answers)

    expected = {"leave": [], "forget": [SessionNotFound]}.get(how, [RequestAborted])
    assert [type(error) for error in caught] == expected
    assert answered_meanwhile == []
    assert not crowd.errors()


@pytest.mark.parametrize(
    ("option", "error"), [("queue_timeout_s", QueueTimeout), ("timeout_s", TurnTimeout)]
)
async def test_deadlines_run_while_a_turn_waits_for_its_session(
    option: str, error: type[TenureError]
) -> None:
    """As in every queue: from when it was submitted."""
    async with a_busy_engine(2) as (engine, crowd):
        await crowd.call("s1", **{option: 0.01})
        assert crowd.errors() == {error}
        await serve(engine, lambda: "s0" in crowd.answers)


async def test_closing_the_engine_answers_all_who_wait_at_once_and_once() -> None:
    """Also with time to drain: what has no session in memory is no open turn."""
    async with a_busy_engine(20) as (engine, crowd):
        for number in range(1, 20):
            crowd.start(crowd.call, f"s{number}")
        await until(lambda: engine.core.door.queued_reqs >= 19)
        crowd.start(partial(engine.aclose, drain_timeout_s=5.0))
        await until(lambda: len(crowd.answers) == 19)
        s0_runs = "s0" not in crowd.answers
        await serve(engine, lambda: "s0" in crowd.answers)

    assert s0_runs
    assert crowd.errors() == {EngineClosed}
    assert sum(isinstance(answer, EngineClosed) for answer in crowd.answers.values()) == 19


def test_a_new_session_does_not_take_the_room_of_one_that_is_being_read() -> None:
    """Else what was read would have to wait, and grow old; nor do those that wait behind it."""
    world = Durable.on(max_sessions=1)
    dormant(world, "a", "b")
    stored = known(world.core.stored)
    first, second = stored.wake(SessionId("a")), stored.wake(SessionId("b"))
    world.run()
    reads = [job.session_id for job, _ in world.disk.waiting]
    with pytest.raises(TooManySessions):
        world.session("new")
    world.work(1)
    woken = settled(first)

    assert reads == ["a"]
    assert isinstance(woken, SessionActor)
    world.rest()
    assert isinstance(settled(second), SessionActor)


async def test_where_nobody_will_ever_go_a_turn_is_refused_and_does_not_hang() -> None:
    """Sessions of which nothing is kept can't be left to the store; their callers have to act."""
    files = await kept(2)
    async with open_engine(files, session_store="x", max_sessions=2) as engine:
        crowd = Crowd(engine)
        async with engine.session(), engine.session():
            await crowd.call("s0")
        await crowd.call("s1")

    assert crowd.errors() == {TooManySessions}
    assert "s1" in crowd.accepted


async def test_those_who_wait_are_refused_when_the_last_that_ran_leaves_nothing_to_keep() -> None:
    """It was the only hope; and its room is its caller's still."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    files = await kept(1)
    async with (
        open_engine(
            files, session_store="x", max_sessions=1, device=device, stop_timeout_s=0.1
        ) as engine,
        engine.session() as fresh,
    ):
        crowd = Crowd(engine)
        waited = False
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                async with fresh.turn([1, 2], greedy(2)):
                    tasks.start_soon(crowd.call, "s0")
                    await until(lambda: waits(engine, "turn of s0"))
                    waited = not crowd.answers
                await until(lambda: bool(crowd.answers))
                device.complete()

    assert waited
    assert crowd.errors() == {TooManySessions}


async def test_what_waits_outlives_the_store_that_dies() -> None:
    """Only what was being read fails with it; its successor reads the others."""
    files = await kept(20)
    async with open_engine(files, session_store="x", max_sessions=2) as engine:
        crowd = Crowd(engine)
        files.disk.manual = True
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(crowd.call, f"s{number}")
                await until(lambda: engine.core.door.queued_reqs == 20 and bool(files.disk.waiting))
                engine.core.dispatcher.kill(STORE, RuntimeError("planted"))
                files.disk.manual = False
                files.disk.work()

    assert crowd.errors() == {StoreError}
    assert sum(isinstance(answer, StoreError) for answer in crowd.answers.values()) == 2
    assert len(crowd.accepted) == 18


def test_an_abort_between_the_answer_and_its_reading_is_not_lost() -> None:
    """The session is there, and the turn is not started in it."""
    world = Durable.on(max_sessions=1)
    calls = WakeCalls(world.core)
    dormant(world, "a")
    stored = known(world.core.stored)
    request = make_request("turn", [4])
    caught: list[BaseException] = []

    async def wait() -> None:
        try:
            await calls.wait(stored, SessionId("a"), request)
        except TenureError as error:
            caught.append(error)

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            world.rest()
            assert world.core.num_sessions == 1
            assert calls.cancel(request.id)

    anyio.run(run)
    assert [type(error) for error in caught] == [RequestAborted]
    assert not calls.cancel(request.id)


def test_a_reader_that_leaves_makes_way_for_the_next() -> None:
    """And a session that nobody wants any more isn't read at all."""
    world = Durable.on(max_sessions=1)
    dormant(world, *"abc")
    stored = known(world.core.stored)
    busy = world.wake("a")
    request = world.start(busy, [7])
    gone, later = stored.wake(SessionId("b")), stored.wake(SessionId("c"))
    stored.waking.leave(SessionId("b"), gone)
    stored.waking.leave(SessionId("b"), gone)
    read_before = [job for job in world.disk.jobs if isinstance(job, ReadSession)]
    world.rest()
    read = [job.session_id for job in world.disk.jobs if isinstance(job, ReadSession)]

    assert request.output.end is not None
    assert isinstance(settled(later), SessionActor)
    assert settled(gone) is None
    assert read[len(read_before) :] == ["c"]


async def test_random_bursts_answer_everyone_exactly_once() -> None:
    """With cancels, removals, deadlines and a close in between, and a tiny bound."""
    for seed in range(2):
        draw = random.Random(seed)
        files = await kept(MANY)
        async with open_engine(
            files, session_store="x", max_sessions=draw.choice([1, 2, 3]), max_num_queued_reqs=100
        ) as engine:
            crowd = Crowd(engine)
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    for number in range(MANY):
                        options = {"queue_timeout_s": 0.02} if draw.random() < 0.1 else {}
                        tasks.start_soon(partial(crowd.call, f"s{number}", **options))
                        if draw.random() < 0.3:
                            await anyio.lowlevel.checkpoint()
                        if draw.random() < 0.2:
                            engine.abort(f"turn of s{draw.randrange(number + 1)}")
                        if draw.random() < 0.05:
                            with suppress(TenureError):
                                await engine.forget(f"s{draw.randrange(MANY)}")
                    if seed == 1:
                        await engine.aclose()
            assert len(crowd.answers) == MANY
            assert engine.core.door.queued_reqs == 0
            assert TooManySessions not in crowd.errors()
            assert len(crowd.accepted) > 5
