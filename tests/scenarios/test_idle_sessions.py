"""DF-12: sessions at rest hold slots and pages, and never block anybody."""

from functools import partial
from typing import Any

import anyio
import pytest

from kernel import Engine, Session
from tests.scenarios.inputs import on_both_models
from tests.scenarios.stage import (
    DeviceFactory,
    Stage,
    cold_tokens,
    greedy,
    open_fake,
    open_stage,
    prompt,
)

ROWS = 3


async def fill_with_idle_sessions(stage: Stage, sessions: list[Session]) -> list[list[int]]:
    """One turn each; the pool is full of states at rest then, and nobody runs."""
    histories = [
        stage.note([], await stage.run(session.turn(prompt(4, salt), greedy(3))))
        for salt, session in enumerate(sessions)
    ]
    assert stage.engine.stats().num_requests_running == 0
    assert stage.free[0] == 0
    return histories


@on_both_models
async def test_idle_sessions_take_their_own_next_turns(opened_device: DeviceFactory) -> None:
    """All slots rest with the very sessions that wake up, one after the other and all at once."""
    async with (
        open_stage(opened_device, num_slots=ROWS, num_pages=30) as stage,
        stage.engine.session() as first,
        stage.engine.session() as second,
        stage.engine.session() as third,
    ):
        sessions = [first, second, third]
        histories = await fill_with_idle_sessions(stage, sessions)
        for number, session in enumerate(sessions):
            turn = session.turn(prompt(2, 9), greedy(2))
            histories[number] = stage.note(histories[number], await stage.run(turn))
        one, two, three = (session.turn(prompt(2, 11), greedy(3)) for session in sessions)
        async with one, two, three:
            for history, turn in zip(histories, (one, two, three), strict=True):
                stage.note(history, await stage.finish(turn))


@on_both_models
async def test_idle_sessions_make_room_for_a_plain_request(opened_device: DeviceFactory) -> None:
    """One of them goes down to its token log, and its next turn is as right as ever."""
    async with (
        open_stage(opened_device, num_slots=ROWS, num_pages=30) as stage,
        stage.engine.session() as first,
        stage.engine.session() as second,
        stage.engine.session() as third,
    ):
        sessions = [first, second, third]
        histories = await fill_with_idle_sessions(stage, sessions)
        stage.note([], await stage.run(stage.engine.stream(prompt(5, 20), greedy(4))))
        assert stage.engine.stats().forced_parks == 1
        # The least recently committed one went, and nobody else.
        assert [session.info.place for session in sessions] == ["log", "device", "device"]
        result = await stage.run(first.turn(prompt(2, 9), greedy(2)))
        assert result.usage.cached_tokens == 0
        assert result.usage.recomputed_tokens == len(histories[0]) - 1
        stage.note(histories[0], result)


async def test_a_checkpoint_goes_before_any_state() -> None:
    """It only shortens a late interrupt; its session keeps the state that its next turn needs."""
    async with (
        open_stage(num_slots=3, num_pages=30) as stage,
        stage.engine.session() as early,
        stage.engine.session() as late,
    ):
        await stage.run(early.turn(prompt(4), greedy(3)))
        for salt in range(2):
            await stage.run(late.turn(prompt(3, salt), greedy(3)))
        assert len(stage.held_by(late)) == 2
        await stage.run(stage.engine.stream(prompt(5, 20), greedy(4)))
        assert len(stage.held_by(late)) == 1
        assert [early.info.place, late.info.place] == ["device", "device"]


@on_both_models
async def test_pages_alone_can_be_short(opened_device: DeviceFactory) -> None:
    """The sessions' pages fill the pool, with slots to spare; a plain request needs most of it."""
    async with (
        open_stage(opened_device, num_slots=8, num_pages=9) as stage,
        stage.engine.session() as first,
        stage.engine.session() as second,
    ):
        histories = [
            stage.note([], await stage.run(session.turn(prompt(12, salt), greedy(4))))
            for salt, session in enumerate((first, second))
        ]
        assert stage.free[1] == 1
        stage.note([], await stage.run(stage.engine.stream(prompt(20, 20), greedy(6))))
        for history, session in zip(histories, (first, second), strict=True):
            stage.note(history, await stage.run(session.turn(prompt(2, 9), greedy(2))))


KINDS: dict[str, dict[str, Any]] = {
    "hybrid": {},
    "recurrent": {"uses_pages": False},
    "attention": {"uses_slots": False},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_one_slot_serves_any_number_of_sessions(kind: str) -> None:
    """Twenty sessions of three turns, all at once, on one slot (or pages for one sequence)."""
    open_device = partial(open_fake, **KINDS[kind])
    uses_slots, uses_pages = kind != "attention", kind != "recurrent"
    config: dict[str, Any] = {"max_num_seqs": 4}
    if uses_slots:
        config["num_slots"] = 1
    if uses_pages:
        config["num_pages"] = 8
    async with open_stage(open_device, **config) as stage:
        stage.device.open()
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(_live, stage, number)
        await stage.settle()
        stage.assert_at_rest()
        stats = stage.engine.stats()
        assert stats.turns_finished == 60
        assert stats.forced_parks > 0


async def _live(stage: Stage, number: int) -> None:
    async with stage.engine.session() as session:
        history: list[int] = []
        for turn_number in range(3):
            turn = session.turn(prompt(3, 10 * number + turn_number), greedy(3))
            async with turn:
                history = stage.note(history, await turn.wait())
            stage.check()


async def test_with_slots_for_everybody_nothing_is_recomputed() -> None:
    """The neighbour of all the above: parking is for need, not a habit."""
    async with open_stage(num_slots=24, num_pages=400) as stage:
        stage.device.open()
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(_live, stage, number)
        stats = stage.engine.stats()
        assert (stats.forced_parks, stats.recomputed_tokens, stats.preemptions) == (0, 0, 0)


async def test_a_thousand_idle_sessions_stop_nobody() -> None:
    """Most of them were never used; the others rest in their token logs."""
    async with open_stage(num_slots=2, num_pages=20, max_sessions=1000) as stage:
        stage.device.open()
        opened = [await _open(stage.engine) for _ in range(1000)]
        async with anyio.create_task_group() as tasks:
            for session in opened[::20]:
                tasks.start_soon(_one_turn, session)
        result = await stage.engine.complete(prompt(4, 1), greedy(4))
        assert [result.token_ids] == await cold_tokens(open_fake, [(prompt(4, 1), 4)])
        for session in opened:
            await session.close()


async def _open(engine: Engine) -> Session:
    session = engine.session(detached=True)
    async with session:
        return session


async def _one_turn(session: Session) -> None:
    async with session.turn(prompt(3), greedy(2)) as turn:
        await turn.wait()
