"""Going back to an earlier turn: exact, whatever is left of the states on the way.

A rewound session is a session that never had the turns that went: its log, its count of turns and
its draws go on from there, and cold runs over its log say whether its state does.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kernel import (
    SamplingParams,
    Session,
    SessionBusy,
    SessionClosed,
    TurnNotFound,
    ValidationError,
)
from kernel.errors import ClientError, TooLate
from kernel.outputs import RequestOutput
from tests.scenarios.inputs import DeviceFactory
from tests.scenarios.stage import Stage, greedy, open_fake, open_stage, prompt


@asynccontextmanager
async def open_running(
    open_device: DeviceFactory = open_fake, **config: Any
) -> AsyncGenerator[tuple[Stage, Session]]:
    """A stage whose device never waits, and a session on it."""
    async with open_stage(open_device, **config) as stage:
        stage.device.open()
        async with stage.engine.session() as session:
            yield stage, session


async def say(
    session: Session, text: list[int], params: SamplingParams | None = None
) -> RequestOutput:
    async with session.turn(text, params or greedy(4)) as turn:
        return await turn.wait()


async def play(stage: Stage, session: Session, turns: int) -> list[list[int]]:
    """So many turns; the log before each of them, and after the last."""
    logs: list[list[int]] = [[]]
    for number in range(turns):
        logs.append(stage.note(logs[-1], await say(session, prompt(5, number))))
    return logs


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_rewound_session_goes_on_as_if_the_rest_had_never_been(
    opened_device: DeviceFactory, turns: int
) -> None:
    """Cut at a turn, on every model: what comes next has the tokens of a cold run."""
    async with open_running(opened_device) as (stage, session):
        logs = await play(stage, session, 3)

        assert await session.rewind(turns) == turns
        assert (session.info.num_tokens, session.info.turns) == (len(logs[turns]), turns)
        stage.note(logs[turns], await say(session, [9], greedy(5)))


async def test_the_last_turn_is_undone_from_the_automatic_checkpoint() -> None:
    """The usual undo: what the turn started from is still there, so nothing is computed again."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 2)
        await session.rewind(-1)
        again = await say(session, [9])
        stage.note(logs[1], again)

    assert again.usage.cached_tokens == len(logs[1]) - 1
    assert again.usage.recomputed_tokens == 0


async def test_going_further_back_computes_the_log_again_and_once() -> None:
    """The states on the way are gone, and none can be cut; the next undo finds one again."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 4)
        await session.rewind(to=2)
        rewound = session.info
        assert stage.held_by(session) == ()
        stage.note(logs[2], await say(session, [9]))
        await session.rewind(-1)
        twice = await say(session, [8])
        stage.note(logs[2], twice)

    assert (rewound.position, rewound.pending_tokens, rewound.place) == (0, len(logs[2]), "log")
    assert twice.usage.cached_tokens == len(logs[2]) - 1


async def test_keeping_every_turn_changes_nothing() -> None:
    """What was appended after the last turn stays, and the state with it."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 2)
        await session.append(prompt(3, 7))
        before = session.info
        assert await session.rewind(2) == 2
        assert session.info == before
        stage.note([*logs[2], *prompt(3, 7)], await say(session, [9]))


async def test_what_was_appended_before_a_turn_stays_and_what_came_after_it_goes() -> None:
    """A turn begins where its own input begins: a system prompt survives the first undo."""
    async with open_running() as (stage, session):
        await session.append(prompt(6, 1))
        first = stage.note(prompt(6, 1), await say(session, prompt(3, 2)))
        await session.append(prompt(4, 3))
        assert session.info.num_tokens == len(first) + 4
        assert await session.rewind(-1) == 0
        assert session.info.num_tokens == 6
        stage.note(prompt(6, 1), await say(session, [9]))


async def test_a_rewound_session_draws_as_one_that_never_had_the_turns() -> None:
    """The draws are a function of seed, turn and index, and the turn's number goes back, too."""
    sampled = SamplingParams(seed=5, max_tokens=6, ignore_eos=True)
    async with open_running() as (stage, session), stage.engine.session() as other:
        first = await say(session, [1, 2], sampled)
        await say(session, [3], sampled)
        await say(session, [4], sampled)
        await session.rewind(1)
        again = await say(session, [5], sampled)
        assert (await say(other, [1, 2], sampled)).token_ids == first.token_ids
        assert (await say(other, [5], sampled)).token_ids == again.token_ids


async def test_a_turn_that_was_cut_by_an_interrupt_is_one_turn() -> None:
    """Its boundary is where it began, however much of it was kept."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 1)
        await say(session, prompt(5, 8))
        assert await session.interrupt(1) == 1
        await session.rewind(-1)
        assert session.info.num_tokens == len(logs[1])
        stage.note(logs[1], await say(session, [9]))


async def test_turns_that_left_no_trace_are_not_counted() -> None:
    """A cancelled turn is not in the log, so there is nothing to go back over."""
    async with open_stage() as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        async with session.turn([7], greedy(9)):
            await stage.settle()
            await stage.step(2)
        await stage.drain()
        assert session.info.turns == 1
        assert await session.rewind(-1) == 0
        stage.note([], await stage.run(session.turn([5], greedy(3))))
        assert len(history) == 8


async def test_a_running_turn_is_not_disturbed() -> None:
    """Going back would take the log away on which it runs; a turn that waits counts as well."""
    async with open_stage() as stage, stage.engine.session() as session:
        async with session.turn(prompt(5), greedy(4)) as turn:
            await stage.settle()
            with pytest.raises(SessionBusy, match=r"await or cancel it") as caught:
                await session.rewind(0)
            assert caught.value.turn_id == turn.request_id
            stage.note([], await stage.finish(turn))


@pytest.mark.parametrize("to", [3, -3, 100])
async def test_there_must_be_so_many_turns(to: int) -> None:
    """Said with the number that there are; nothing was cut."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 2)
        with pytest.raises(ValidationError, match="the session has 2 turns") as caught:
            await session.rewind(to)
        assert caught.value.parameter == "to"
        assert session.info.num_tokens == len(logs[2])


async def test_without_turns_there_is_nothing_to_go_back_over() -> None:
    """And no way is named that there isn't."""
    async with open_running() as (_, session):
        assert await session.rewind(0) == 0
        with pytest.raises(ValidationError, match="the session has 0 turns; keep 0$"):
            await session.rewind(-1)


@pytest.mark.parametrize("to", [1.0, "1", None, True])
async def test_a_number_of_turns_is_an_int(to: Any) -> None:
    """Half a turn is none."""
    async with open_running() as (_, session):
        with pytest.raises(ValidationError, match="to="):
            await session.rewind(to)


async def test_a_closed_session_has_no_history() -> None:
    """Like every other call on it."""
    async with open_running() as (_, session):
        await say(session, [1])
        await session.close()
        with pytest.raises(SessionClosed):
            await session.rewind(0)


async def test_what_went_can_not_be_interrupted() -> None:
    """The last turn is gone, and with it what a late interrupt could cut."""
    async with open_running() as (_, session):
        await say(session, [1])
        await say(session, [2])
        await session.rewind(-1)
        with pytest.raises((TurnNotFound, TooLate)) as caught:
            await session.interrupt(0)
        assert isinstance(caught.value, ClientError)


async def test_a_fork_goes_back_over_its_parents_turns() -> None:
    """Its log is a copy, turns and all; the parent stays where it is."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 3)
        async with session.fork() as child:
            assert child.info.turns == 3
            assert await child.rewind(1) == 1
            stage.note(logs[1], await say(child, [9]))
        stage.note(logs[3], await say(session, [9]))


async def test_a_fork_that_goes_back_never_starts_from_a_state_beyond_its_log() -> None:
    """Its parent's state has absorbed what the fork has cut, and later tokens are others."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 2)
        async with session.fork() as child:
            await child.rewind(1)
            history = stage.note(logs[1], await say(child, prompt(7, 9), greedy(9)))
            assert len(history) > len(logs[2])
            await child.rewind(1)
            stage.note(logs[1], await say(child, prompt(7, 8), greedy(9)))


async def test_going_back_wakes_who_waits_for_the_room() -> None:
    """On one slot: what the rewound session held is free at once."""
    async with open_running(num_slots=1) as (stage, session):
        await play(stage, session, 2)
        await session.rewind(0)
        result = await stage.engine.complete(prompt(4), greedy(3))
        stage.note([], result)
        assert stage.engine.stats().forced_parks <= 1
