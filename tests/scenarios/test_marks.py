"""Named checkpoints: places in a session's history to come back to, as often as one likes.

A checkpoint keeps the state that was committed when it was made, which copies nothing, as long as
there is room for it; without it the log says the same, only later.
"""

from typing import Any

import pytest

from kernel import CheckpointNotFound, SessionBusy, SessionClosed, ValidationError
from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.engine.inspection import session_info
from kernel.messages import GiveUp, SetMark
from kernel.sessions.history import MOST_MARKS
from ownership import BaseName
from tests.kernel.loopless import Loopless
from tests.kernel.toys import CALLER
from tests.known import known
from tests.pressure.worlds import name_of
from tests.scenarios.inputs import DeviceFactory
from tests.scenarios.stage import greedy, open_stage, prompt
from tests.scenarios.test_rewind import open_running, play, say


@pytest.mark.parametrize("later", [1, 3])
async def test_a_checkpoint_is_restored_any_number_of_times(
    opened_device: DeviceFactory, later: int
) -> None:
    """Each time the session goes on from the same log and the same state, on every model."""
    async with open_running(opened_device) as (stage, session):
        logs = await play(stage, session, 2)
        mark = await session.checkpoint()
        for number in range(later):
            await say(session, prompt(4, 20 + number))
        for attempt in range(3):
            assert await session.restore(mark) == 2
            assert (session.info.num_tokens, session.info.turns) == (len(logs[2]), 2)
            again = await say(session, prompt(3, 30 + attempt), greedy(5))
            stage.note(logs[2], again)
            assert again.usage.cached_tokens == len(logs[2]) - 1
            assert again.usage.recomputed_tokens == 0


async def test_a_checkpoint_copies_nothing() -> None:
    """It is one name more for a state that is there; a slot of its own it has after a turn."""
    async with open_running() as (stage, session):
        await play(stage, session, 2)
        before = stage.held_by(session)
        mark = await session.checkpoint()
        assert stage.held_by(session) == before
        await say(session, [1])
        await say(session, [2])
        assert len(stage.held_by(session)) == 3, "the state, its automatic checkpoint, the mark's"
        await session.drop_checkpoint(mark)
        assert len(stage.held_by(session)) == 2


async def test_checkpoints_at_one_place_share_a_state() -> None:
    """The state is closed with the last of them."""
    async with open_running() as (stage, session):
        await play(stage, session, 1)
        await session.checkpoint("one")
        await session.checkpoint("two")
        for text in ([1], [2]):
            await say(session, text)
        assert len(stage.held_by(session)) == 3
        await session.drop_checkpoint("one")
        assert len(stage.held_by(session)) == 3
        await session.drop_checkpoint("two")
        assert len(stage.held_by(session)) == 2


async def test_going_back_drops_the_checkpoints_beyond_and_keeps_those_before() -> None:
    """The log that they stood on is gone; what is written in its place is something else."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 1)
        await session.checkpoint("early")
        await say(session, [1])
        await session.checkpoint("late")
        assert await session.restore("early") == 1
        stage.note(logs[1], await say(session, prompt(9, 3)))
        with pytest.raises(CheckpointNotFound, match="'late'") as caught:
            await session.restore("late")
        assert (caught.value.name, caught.value.session_id) == ("late", session.session_id)
        assert [mark.name for mark in known(session.info.checkpoints)] == ["early"]
        await session.restore("early")


@pytest.mark.parametrize("how", ["rewind", "interrupt", "restore"])
async def test_a_checkpoint_goes_when_the_log_below_it_changes(how: str) -> None:
    """By whatever: a turn undone, a turn cut late, another checkpoint restored."""
    async with open_running() as (stage, session):
        await play(stage, session, 1)
        await session.checkpoint("before")
        await say(session, [1])
        await session.checkpoint("after")
        if how == "rewind":
            await session.rewind(-1)
        elif how == "interrupt":
            await session.interrupt(1)
        else:
            await session.restore("before")
        assert [mark.name for mark in known(session.info.checkpoints)] == ["before"]
        with pytest.raises(CheckpointNotFound):
            await session.drop_checkpoint("after")


async def test_a_checkpoint_at_the_cut_stays() -> None:
    """Nothing below it has changed: it is where the session stands."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 1)
        await session.checkpoint("here")
        await say(session, [1])
        await session.rewind(-1)
        assert [mark.name for mark in known(session.info.checkpoints)] == ["here"]
        stage.note(logs[1], await say(session, [2]))


async def test_a_name_in_use_is_moved() -> None:
    """One place has one name; the old one is let go of."""
    async with open_running() as (stage, session):
        await play(stage, session, 1)
        await session.checkpoint("draft")
        second = stage.note([], await say(session, [7]))
        assert await session.checkpoint("draft") == "draft"
        (found,) = known(session.info.checkpoints)
        assert (found.turns, found.num_tokens) == (2, session.info.num_tokens)
        assert second
        stage.noted.pop()


async def test_a_fresh_name_is_nobodys() -> None:
    """Also where the caller has chosen one that looks like it."""
    async with open_running() as (_, session):
        await say(session, [1])
        names = [await session.checkpoint() for _ in range(2)]
        assert len({*names}) == 2
        await session.checkpoint("mine")
        assert [mark.name for mark in known(session.info.checkpoints)] == [*names, "mine"]


async def test_info_says_what_a_checkpoint_stands_for_and_keeps() -> None:
    """Where it stands, whether its state is there, and what dropping it would give back."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 1)
        await session.checkpoint("here")
        (fresh,) = known(session.info.checkpoints)
        for text in ([1], [2]):
            await say(session, text)
        (old,) = known(session.info.checkpoints)
        free = stage.free
        await session.drop_checkpoint("here")
        slots, pages = (now - was for now, was in zip(stage.free, free, strict=True))

        model, page_size = stage.engine.core.model, stage.engine.core.limits.page_size
        assert (fresh.position, fresh.has_state, fresh.bytes) == (len(logs[1]) - 1, True, 0)
        assert (old.turns, old.num_tokens, old.position) == (1, len(logs[1]), len(logs[1]) - 1)
        assert slots == 1
        assert old.bytes == slots * model.slot_bytes + pages * page_size * model.page_token_bytes


async def test_a_checkpoint_of_a_running_session_is_of_what_is_committed() -> None:
    """The turn that runs is left out, and its commit leaves the marked state alone."""
    async with open_stage() as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        async with session.turn([7], greedy(4)) as turn:
            await stage.settle()
            mark = await session.checkpoint()
            stage.note(history, await stage.finish(turn))
        async with session.turn([8], greedy(2)):
            with pytest.raises(SessionBusy):
                await session.restore(mark)
        await stage.drain()
        assert await session.restore(mark) == 1
        stage.note(history, await stage.run(session.turn([9], greedy(4))))


async def test_over_the_bound_the_oldest_states_are_given_up_and_their_marks_stay() -> None:
    """Restored all the same: the log is computed again, which costs time and nothing else."""
    async with open_stage() as sizes:
        one = sizes.engine.core.model.slot_bytes
        page = sizes.engine.core.model.page_token_bytes * sizes.engine.core.limits.page_size
    async with open_running(max_checkpoint_bytes=2 * (one + page)) as (stage, session):
        logs: list[list[int]] = [[]]
        for number in range(5):
            logs.append(stage.note(logs[-1], await say(session, prompt(5, number))))
            await session.checkpoint(f"m{number}")
        for text in ([1], [2]):
            await say(session, text)
        found = {mark.name: mark for mark in known(session.info.checkpoints)}
        assert [name for name in found if found[name].has_state] == ["m3", "m4"], found
        assert sum(mark.bytes for mark in found.values()) <= 2 * (one + page)
        assert found["m0"].num_tokens == len(logs[1])
        assert await session.restore("m1") == 2
        again = await say(session, [9])
        stage.note(logs[2], again)

    assert again.usage.cached_tokens == 0
    assert again.usage.recomputed_tokens == len(logs[2]) - 1


@pytest.mark.parametrize("how", ["a turn begins", "the state is given up"])
def test_the_bound_holds_also_when_an_automatic_checkpoint_is_dropped(how: str) -> None:
    """Its state is only marked from then on, and counts."""
    world = Loopless.open(num_slots=10, num_pages=64, max_checkpoint_bytes=100)
    session = world.session("a")
    for number in range(4):
        world.finish(world.start(session, prompt(2, number), greedy(2)))
        world.post(session, SetMark(f"m{number}", Reply()))
    before = sum(mark.bytes for mark in known(session_info(world.core, session).checkpoints))
    if how == "a turn begins":
        world.start(session, prompt(2, 9), greedy(2))
    else:
        world.core.dispatcher.post(Address[Any](session.name), GiveUp(name_of(session)), CALLER)
        world.run()
    states = session.state.states
    marks = known(session_info(world.core, session).checkpoints)

    assert before <= 100
    assert sum(mark.bytes for mark in marks) <= 100, marks
    assert len(states.kept) < 4
    world.close(session)
    world.step(len(world.device.waiting))
    world.assert_all_free()


async def test_under_pressure_marked_states_go_before_any_committed_state() -> None:
    """After automatic checkpoints; the sessions lose nothing but the short way back."""
    async with open_running(num_slots=3, max_num_seqs=1) as (stage, session):
        logs = await play(stage, session, 1)
        await session.checkpoint("kept")
        first = stage.note(logs[1], await say(session, [1]))
        async with stage.engine.session() as other:
            rest = stage.note([], await say(other, prompt(4, 5)))
            assert all(mark.has_state for mark in known(session.info.checkpoints))
            # Full: the session's state, its mark's and the other's; a turn needs one slot more.
            stage.note(rest, await say(other, [5]))
            assert not any(mark.has_state for mark in known(session.info.checkpoints))
            assert session.info.position == len(first) - 1
        await session.restore("kept")
        stage.note(logs[1], await say(session, [9]))


async def test_when_the_state_is_given_up_the_next_turn_starts_from_a_marked_one() -> None:
    """The nearest state that is kept at or before the log's end; the rest is computed."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 1)
        await session.checkpoint("kept")
        history = stage.note(logs[1], await say(session, [1]))
        actor = stage.engine.core.sessions[next(iter(stage.engine.core.sessions))]
        base = actor.state.base
        assert isinstance(base, BaseName)
        actor.state.give_up(base)
        assert session.info.position == len(logs[1]) - 1
        again = await say(session, [9])
        stage.note(history, again)

    assert again.usage.cached_tokens == len(logs[1]) - 1


async def test_a_fork_has_none_of_its_parents_checkpoints() -> None:
    """A state has one owner; the fork marks its own places."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 1)
        await session.checkpoint("parents")
        async with session.fork() as child:
            assert child.info.checkpoints == ()
            mark = await child.checkpoint()
            await say(child, [1])
            await child.restore(mark)
            again = await say(child, [2])
            stage.note(logs[1], again)
            with pytest.raises(CheckpointNotFound):
                await child.restore("parents")
        await session.restore("parents")

    assert again.usage.cached_tokens == len(logs[1]) - 1


async def test_a_checkpoint_before_the_first_turn_is_the_empty_session() -> None:
    """A place like any other: there is no state to keep."""
    async with open_running() as (stage, session):
        mark = await session.checkpoint()
        await say(session, prompt(6))
        assert await session.restore(mark) == 0
        assert session.info.num_tokens == 0
        stage.note([], await say(session, prompt(6, 4)))


async def test_pending_tokens_belong_to_a_checkpoint() -> None:
    """The log is longer than the state has absorbed; both come back."""
    async with open_running() as (stage, session):
        logs = await play(stage, session, 1)
        result = await say(session, prompt(3, 5))
        await session.interrupt(1)
        marked = [*logs[1], *prompt(3, 5), result.token_ids[0]]
        await session.checkpoint("cut")
        await say(session, [1])
        await session.restore("cut")
        assert session.info.num_tokens == len(marked)
        stage.note(marked, await say(session, [2]))


@pytest.mark.parametrize("name", ["", 3, b"x"])
async def test_a_name_is_a_text(name: Any) -> None:
    """And not an empty one."""
    async with open_running() as (_, session):
        with pytest.raises(ValidationError, match="name="):
            await session.checkpoint(name)


async def test_a_session_has_a_bounded_number_of_checkpoints() -> None:
    """Each is small without its state, and not nothing; one in use can still be moved."""
    async with open_running() as (_, session):
        await say(session, [1])
        for number in range(MOST_MARKS):
            await session.checkpoint(f"m{number}")
        with pytest.raises(ValidationError, match="drop one"):
            await session.checkpoint("one more")
        await session.checkpoint("m3")
        await session.drop_checkpoint("m0")
        await session.checkpoint("one more")


async def test_a_closed_session_has_no_checkpoints() -> None:
    """They go with it, states and all."""
    async with open_running() as (stage, session):
        await play(stage, session, 1)
        mark = await session.checkpoint()
        await say(session, [1])
        await session.close()
        assert session.info.checkpoints == ()
        for call in (session.restore, session.drop_checkpoint, session.checkpoint):
            with pytest.raises(SessionClosed):
                await call(mark)
        with pytest.raises(ValidationError, match="mark="):
            await session.restore(3)  # type: ignore[arg-type]  # what untyped code may do
