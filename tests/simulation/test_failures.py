"""What becomes of a failure: it is noted, taped, replayed and shrunk."""

from pathlib import Path

import anyio
import pytest

from kernel.engine.request import RunningTurn
from kernel.errors import EngineClosed
from kernel.outputs import Delta
from kernel.testing.simulation import (
    Backend,
    Failure,
    Settings,
    Tape,
    World,
    replay,
    run_seed,
    run_twice,
    shrink,
    simulate,
)

pytestmark = pytest.mark.timeout(300)  # Seconds alone, minutes beside a busy machine's work.


BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")


async def planted(world: World) -> None:
    """Fails when the third of four numbers is large, after some work of no consequence."""
    numbers = [world.draw(100) for _ in range(4)]
    async with world.open() as engine:
        await engine.complete([1, 2, 3 + numbers[0]])
    if numbers[2] > 40:
        raise RuntimeError("planted")


async def leaves_a_task(world: World) -> None:
    world.start("sleeper", anyio.sleep_forever)


async def waits_for_ever(world: World) -> None:
    del world
    await anyio.Event().wait()


_calls = 0


async def is_another_each_time(world: World) -> None:
    global _calls
    _calls += 1
    async with world.open() as engine:
        await engine.complete([_calls])
        for _ in range(_calls):
            await anyio.lowlevel.checkpoint()


async def reads_what_is_not_there(world: World) -> None:
    async with world.open() as engine:
        await engine.complete([1])
        core = engine.core
        core.dispatcher.kill(core.dispatcher.actors()[0].name, RuntimeError("not on purpose"))


def failing_seed() -> int:
    return next(seed for seed in range(100) if run_seed(seed, scenario=planted).failure)


def test_a_failure_shrinks_to_what_it_needs() -> None:
    """Everything else on the tape would be read by whoever mends it."""
    outcome = run_seed(failing_seed(), scenario=planted)
    small = shrink(outcome, planted)

    assert small.failure == outcome.failure
    assert small.tape.tracks == {"plan": [0, 0, 41]}


def test_a_tape_replays_its_failure() -> None:
    """On the tape is everything that the run was a function of."""
    outcome = run_seed(failing_seed(), scenario=planted)
    again = replay(outcome.tape, planted)

    assert again.failures == outcome.failures
    assert again.tape == outcome.tape


def test_a_batch_names_the_seed_and_writes_both_tapes(tmp_path: Path) -> None:
    """The long one is what happened, the short one is what to look at."""
    batch = simulate(planted, range(20), Settings(tapes=tmp_path, shrinks=1))
    first = batch.failures[0]

    assert first.failure == Failure("scenario", "RuntimeError('planted')")
    assert first.path is not None
    assert Tape.load(first.path) == first.shrunk
    assert first.shrunk is not None
    assert first.shrunk.size < first.tape.size
    assert (tmp_path / f"seed-{first.seed}-{first.strategy}-asyncio.json").is_file()
    with pytest.raises(AssertionError, match=f"seed {first.seed} "):
        batch.check()


def test_a_run_that_differs_from_itself_is_a_failure() -> None:
    """State of the process, a real clock, an order of addresses: none of it is on the tape."""
    failure = run_twice(1, scenario=is_another_each_time).failure

    assert failure is not None
    assert failure.kind == "determinism"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_that_is_left_over_is_a_failure(backend: Backend) -> None:
    """It would run on in the application."""
    outcome = run_seed(1, scenario=leaves_a_task, backend=backend)

    assert outcome.failure == Failure("tasks", "still alive at the end: ['sleeper']")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_deadlock_is_a_failure(backend: Backend) -> None:
    """On a real loop it is a test that hangs."""
    failure = run_seed(1, scenario=waits_for_ever, backend=backend).failure

    assert failure is not None
    assert failure.kind == "deadlock"
    assert "wait" in failure.message


def test_a_death_that_nobody_planted_is_a_failure() -> None:
    """Supervision hides bugs from callers; it must not hide them from this."""
    outcome = run_seed(1, scenario=reads_what_is_not_there)

    assert "nobody dies" in {failure.kind for failure in outcome.failures}


class Odd(BaseException):
    """What no ``except Exception`` sees."""


async def has_a_task_that_ends_oddly(world: World) -> None:
    async def end_oddly() -> None:
        await anyio.sleep(1)
        raise Odd

    await world.start("odd", end_oddly).wait()


@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_ends_a_task_is_a_failure(backend: Backend) -> None:
    """On asyncio the task would keep it to itself."""
    outcome = run_seed(1, scenario=has_a_task_that_ends_oddly, backend=backend)

    assert outcome.failure == Failure("caller", "odd saw Odd()")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_that_is_killed_is_none(backend: Backend) -> None:
    """A cancellation is what the scenario has asked for."""

    async def kills(world: World) -> None:
        job = world.start("sleeper", anyio.sleep_forever)
        await anyio.sleep(1)
        job.kill()
        await job.wait()

    assert run_seed(1, scenario=kills, backend=backend).failure is None


def test_a_reader_that_is_not_given_all_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deltas of a turn that was read to its end are all of what it comes to."""
    sound = RunningTurn.__anext__

    async def lose_the_last(turn: RunningTurn) -> Delta:
        delta = await sound(turn)
        if turn.has_result:
            raise StopAsyncIteration
        return delta

    monkeypatch.setattr(RunningTurn, "__anext__", lose_the_last)
    batch = simulate(seeds=range(1, 31), settings=Settings(until_failure=True))

    assert [failed.failure.kind for failed in batch.failures] == ["deltas"]


def test_an_engine_that_does_not_open_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises an error of the public tree, as callers may see; nothing at all would be tried."""

    def refuse(*_: object, **__: object) -> None:
        raise EngineClosed

    monkeypatch.setattr(World, "open", refuse)
    failure = run_seed(1).failure

    assert failure is not None
    assert failure.message.startswith("the engine was not opened")


async def kills_whoever_lives(world: World) -> None:
    async with world.open() as engine:
        world.faults.begin("kill")
        for _ in range(40):
            await anyio.lowlevel.checkpoint()
        world.faults.stop()
        dispatcher = engine.core.dispatcher
        told = sum(count for what, count in world.seen.items() if what.startswith("death of a"))
        if not world.seen["kill"] == told == dispatcher.deaths:
            world.fail("count", f"{world.seen['kill']}, {told} and {dispatcher.deaths} deaths")


def test_only_who_has_lived_is_counted_as_killed() -> None:
    """A fault that struck nobody would be counted as seen, and cover up for one that did."""
    batch = simulate(kills_whoever_lives, range(1, 61), Settings(twice_in=0))

    assert batch.sometimes["kill"] > 30
    assert "count" not in {failed.failure.kind for failed in batch.failures}


async def goes_round(world: World) -> None:
    del world
    while True:
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("backend", BACKENDS)
def test_going_round_in_circles_is_a_failure(backend: Backend) -> None:
    """A livelock ends, and has a name."""
    failure = run_seed(1, scenario=goes_round, backend=backend, max_steps=500).failure

    assert failure is not None
    assert failure.kind == "steps"
