"""DF-6: a turn loses its room to a senior in the middle of its answer, and nobody notices.

What was streamed stands, the session's history does not advance, the memory is really given back,
and the answer goes on as if nothing had happened. While it waits the turn can be cancelled,
interrupted, closed or time out like any other; it has no claim then.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import attrs
import pytest

from kernel import (
    QueueTimeout,
    RequestAborted,
    RunningTurn,
    Session,
    SessionBusy,
    SessionClosed,
    StepError,
    TurnTimeout,
)
from ownership import ClaimView
from tests.scenarios.stage import DeviceFactory, Stage, greedy, open_fake, open_stage, prompt

Pressure = Literal["growth", "slot", "row"]

PRESSURES: dict[Pressure, dict[str, Any]] = {
    # A senior one-shot grows by a page that only the junior can give.
    "growth": {"num_slots": 4, "num_pages": 8},
    # An urgent request arrives, with a step of the junior in flight, and there is one slot...
    "slot": {"num_slots": 1, "num_pages": 40, "scheduling_policy": "priority"},
    # ... or one row.
    "row": {"num_slots": 4, "num_pages": 40, "max_num_seqs": 1, "scheduling_policy": "priority"},
}

each_pressure = pytest.mark.parametrize("pressure", PRESSURES)


@attrs.frozen
class Scene:
    """A turn that was preempted after some tokens, and its senior that runs."""

    stage: Stage
    session: Session
    turn: RunningTurn
    senior: RunningTurn
    history: list[int]
    """Of the session, before the turn."""
    resting: tuple[ClaimView, ...]
    """What the session held before the turn."""
    received: tuple[int, ...]
    """Tokens that the caller had before it happened."""

    def assert_untouched(self) -> None:
        """The session is where it was before the turn, or gave its state up to the senior."""
        assert self.session.info.num_tokens == len(self.history)
        assert self.stage.held_by(self.session) in (self.resting, ())

    async def finish_senior(self) -> None:
        self.stage.note([], await self.stage.finish(self.senior))


@asynccontextmanager
async def preempted_turn(
    pressure: Pressure,
    *,
    open_device: DeviceFactory = open_fake,
    **turn_options: Any,
) -> AsyncGenerator[Scene]:
    async with (
        open_stage(open_device, **PRESSURES[pressure]) as stage,
        stage.engine.session() as session,
    ):
        history: list[int] = []
        if pressure != "slot":
            history = stage.note([], await stage.run(session.turn(prompt(5), greedy(4))))
        senior = stage.engine.stream(prompt(8, 1), greedy(16), priority=-5)
        turn = session.turn(prompt(4, 2), greedy(8), **turn_options)
        first, second = (senior, turn) if pressure == "growth" else (turn, senior)
        resting = stage.held_by(session)
        async with first:
            await stage.step(3)
            async with second:
                await stage.step_until(lambda: turn.request_id in stage.running())
                await stage.step_until(lambda: turn.request_id not in stage.running())
                received = await stage.read(turn)
                assert received
                yield Scene(stage, session, turn, senior, history, resting, received)


@each_pressure
async def test_a_preempted_turn_goes_on_as_if_nothing_had_happened(pressure: Pressure) -> None:
    """Delivered tokens stand, and all of them are those of a run alone."""
    async with preempted_turn(pressure) as scene:
        await scene.finish_senior()
        result = await scene.stage.finish(scene.turn)
        scene.stage.note(scene.history, result)
        assert result.token_ids[: len(scene.received)] == scene.received
        assert len(result.token_ids) == 8
        assert result.timings.preemptions == 1
        assert result.usage.recomputed_tokens > 0


@each_pressure
async def test_a_preempted_turn_holds_nothing(pressure: Pressure) -> None:
    """Its memory is given back, and its session's committed state is untouched."""
    async with preempted_turn(pressure) as scene:
        stage = scene.stage
        assert stage.running() == {scene.senior.request_id}
        assert stage.engine.audit().batch == 1
        scene.assert_untouched()
        await scene.finish_senior()
        stage.note(scene.history, await stage.finish(scene.turn))


@each_pressure
async def test_a_new_turn_is_refused_while_the_preempted_one_waits(pressure: Pressure) -> None:
    """To its session a preempted turn is still the one active turn."""
    async with preempted_turn(pressure) as scene:
        with pytest.raises(SessionBusy, match=scene.turn.request_id):
            await scene.stage.run(scene.session.turn(prompt(2), greedy(1)))
        await scene.finish_senior()
        scene.stage.note(scene.history, await scene.stage.finish(scene.turn))


@each_pressure
@pytest.mark.parametrize("how", ["leave", "abort", "timeout"])
async def test_a_preempted_turn_can_be_cancelled(pressure: Pressure, how: str) -> None:
    """It has nothing to give back; the session takes its next turn at once."""
    timeout_s = 5.0 if how == "timeout" else None
    async with preempted_turn(pressure, timeout_s=timeout_s) as scene:
        stage, turn = scene.stage, scene.turn
        if how == "abort":
            stage.engine.abort(turn.request_id)
        elif how == "timeout":
            await stage.advance(5)
        else:
            turn.cancel()
        await stage.settle()
        with pytest.raises(TurnTimeout if how == "timeout" else RequestAborted):
            await anext(turn)
        with pytest.raises(StopAsyncIteration):
            await anext(turn)
        scene.assert_untouched()
        await scene.finish_senior()
        stage.note(scene.history, await stage.run(scene.session.turn(prompt(2, 3), greedy(3))))


@each_pressure
@pytest.mark.parametrize("keep", [None, 0, 1])
async def test_a_preempted_turn_that_is_interrupted_ends_at_once(
    pressure: Pressure, keep: int | None
) -> None:
    """It needs no step and no claim for that: the log takes what was streamed."""
    async with preempted_turn(pressure) as scene:
        stage, session = scene.stage, scene.session
        steps = len(stage.device.steps)
        kept = await scene.turn.interrupt(keep)
        assert scene.turn.has_result
        assert len(stage.device.steps) == steps
        result = await scene.turn.wait()
        assert result.finish_reason == "interrupt"
        assert result.token_ids == scene.received[:kept]
        assert kept == (len(scene.received) if keep is None else keep)
        history = stage.note(scene.history, result)
        assert session.info.num_tokens == len(history)
        assert stage.held_by(session) in (scene.resting, ())
        await scene.finish_senior()
        stage.note(history, await stage.run(session.turn(prompt(2, 3), greedy(3))))


@each_pressure
async def test_a_session_can_be_closed_while_its_turn_is_preempted(pressure: Pressure) -> None:
    """Closing forgets the turn; what the session held is free at once."""
    async with preempted_turn(pressure) as scene:
        stage = scene.stage
        await scene.session.close()
        with pytest.raises(SessionClosed):
            await scene.turn.wait()
        assert stage.engine.audit().session == 0
        await scene.finish_senior()
        assert stage.free == stage.capacity


@each_pressure
async def test_the_failure_of_a_step_spares_a_preempted_turn(pressure: Pressure) -> None:
    """It has no row in that step."""
    async with preempted_turn(pressure) as scene:
        stage = scene.stage
        await stage.fail_step()
        with pytest.raises(StepError):
            await scene.senior.wait()
        stage.note(scene.history, await stage.finish(scene.turn))


async def test_the_queue_timeout_does_not_strike_a_preempted_turn() -> None:
    """It counts until the first admission; streamed tokens are not taken back for it."""
    async with preempted_turn("row", queue_timeout_s=5) as scene:
        await scene.stage.advance(100)
        await scene.finish_senior()
        scene.stage.note(scene.history, await scene.stage.finish(scene.turn))


async def test_a_running_turn_gives_up_its_own_base_rather_than_hang() -> None:
    """Alone on a pool that holds exactly one sequence, nobody else could give the last page.

    A turn that runs has copied its base, so the base is only the way back.
    """
    async with open_stage(num_slots=2, num_pages=4) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(4), greedy(4))))
        assert session.info.place == "device"
        async with session.turn(prompt(1, 1), greedy(7)) as turn:
            result = await stage.finish(turn)
        assert stage.engine.stats().forced_parks == 1
        assert len(stage.note(history, result)) == 16


async def test_queue_timeout_of_a_turn_never_admitted_is_typed() -> None:
    """The neighbour of the case above: never admitted, so the deadline strikes."""
    async with (
        open_stage(num_slots=1, num_pages=20) as stage,
        stage.engine.stream(prompt(4), greedy(5)) as senior,
    ):
        await stage.step()
        async with stage.engine.stream(prompt(4, 1), greedy(1), queue_timeout_s=5) as out:
            await stage.advance(5)
            with pytest.raises(QueueTimeout):
                await out.wait()
        stage.note([], await stage.finish(senior))
