"""DF-7: a turn is abandoned at any moment; the session goes on from its last good turn."""

from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
import pytest

from kernel import RequestAborted, RunningTurn
from tests.scenarios.stage import DeviceFactory, Stage, greedy, open_fake, open_stage, prompt

Which = Literal["first", "nth"]

MOMENTS = {
    "first chunk in flight": 0,
    "between two chunks": 1,
    "last chunk in flight": 2,
    "first token was drawn": 3,
    "in the middle of the answer": 5,
}
"""Steps that have landed; the prompt takes three chunks."""

PROMPT = 20
CHUNK = 8


async def leave(stage: Stage, turn: RunningTurn) -> None:
    """By leaving the block: what ``break`` and an exception come to."""
    turn.cancel()


async def abort(stage: Stage, turn: RunningTurn) -> None:
    """By name, from elsewhere."""
    assert stage.engine.abort(turn.request_id)


each_moment = pytest.mark.parametrize("moment", MOMENTS)
each_way = pytest.mark.parametrize("how", [leave, abort])
both = pytest.mark.parametrize("which", ["first", "nth"])

Way = Callable[[Stage, RunningTurn], Awaitable[None]]


async def abandon_and_recover(
    open_device: DeviceFactory, which: Which, moment: str, how: Way
) -> None:
    async with (
        open_stage(
            open_device, num_slots=3, num_pages=40, max_num_seqs=1, max_num_batched_tokens=CHUNK
        ) as stage,
        stage.engine.session() as session,
    ):
        history: list[int] = []
        if which == "nth":
            history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        before = stage.held_by(session)
        free = stage.free
        async with session.turn(prompt(PROMPT, 1), greedy(9)) as turn:
            await stage.step(MOMENTS[moment])
            await how(stage, turn)
            await stage.settle()
            # Forgotten at once, though its rows may still be written.
            assert session.info.state == "idle"
            assert session.info.num_tokens == len(history)
            with pytest.raises(RequestAborted):
                await turn.wait()
        await stage.land()
        assert stage.held_by(session) == before
        assert stage.free == free

        result = await stage.run(session.turn(prompt(4, 2), greedy(4)))
        assert result.usage.prompt_tokens == len(history) + 4
        assert result.usage.recomputed_tokens == 0
        stage.note(history, result)


@both
@each_moment
@each_way
async def test_an_abandoned_turn_leaves_no_trace(which: Which, moment: str, how: Way) -> None:
    """Its slot comes back once, and the next turn equals a fresh run on the same history."""
    await abandon_and_recover(open_fake, which, moment, how)


@both
@pytest.mark.parametrize(
    ("anyio_backend", "opened_device", "moment"),
    [
        ("asyncio", "bundled", "between two chunks"),
        ("trio", "bundled", "in the middle of the answer"),
    ],
    indirect=["opened_device"],
)
async def test_an_abandoned_turn_leaves_no_trace_in_a_real_state(
    opened_device: DeviceFactory, which: Which, moment: str
) -> None:
    """The same on a model whose state can't be cut."""
    await abandon_and_recover(opened_device, which, moment, leave)


@both
async def test_the_next_turn_need_not_wait_for_the_abandoned_one_to_land(which: Which) -> None:
    """Its base is untouched, so it is submitted, and may even run, before that."""
    async with open_stage(num_slots=4) as stage, stage.engine.session() as session:
        history: list[int] = []
        if which == "nth":
            history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        async with session.turn(prompt(4, 1), greedy(9)):
            await stage.step(2)
        async with session.turn(prompt(4, 2), greedy(4)) as turn:
            assert stage.device.waiting == 1
            stage.note(history, await stage.finish(turn))


async def test_a_turn_that_has_just_ended_can_not_be_abandoned() -> None:
    """The session had decided; leaving without reading changes nothing."""
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        async with session.turn(prompt(4), greedy(3)) as turn:
            await stage.step_until(lambda: turn.has_result)
            turn.cancel()
            assert not stage.engine.abort(turn.request_id)
        await stage.settle()
        assert session.info.num_tokens == 7
        stage.note(stage.note([], turn.result), await stage.run(session.turn([5], greedy(3))))


@both
async def test_a_scope_that_is_cancelled_while_reading_rolls_back(which: Which) -> None:
    """Cancellation needs no help of the caller's: leaving the block is enough."""
    async with open_stage(num_slots=2) as stage, stage.engine.session() as session:
        history: list[int] = []
        if which == "nth":
            history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        with anyio.CancelScope() as scope:
            async with session.turn(prompt(4, 1), greedy(9)) as turn:
                await stage.step(3)
                assert await stage.read(turn)
                scope.cancel()
                await anext(turn)
        await stage.land()
        assert session.info.num_tokens == len(history)
        stage.note(history, await stage.run(session.turn(prompt(4, 2), greedy(4))))


async def test_abort_after_abort_after_abort_drains_nothing() -> None:
    """Eight in a row, each at another moment: the pool is as full as before."""
    async with (
        open_stage(num_slots=2, num_pages=20, max_num_batched_tokens=8) as stage,
        stage.engine.session() as session,
    ):
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        free = stage.free
        for number in range(8):
            async with session.turn(prompt(PROMPT, number), greedy(9)):
                await stage.step(number)
            await stage.land()
            assert stage.free == free
        stage.note(history, await stage.run(session.turn(prompt(4, 2), greedy(4))))
