"""Forks: a second session that starts from the first one's committed state, and owns its own.

A fork holds nothing of its parent. Its first turn names the parent's base and version, and is
refused the base like any other turn whose base has gone: then it computes the log.
"""

import anyio
import pytest

from kernel import SamplingParams, SessionClosed, SessionExists, SessionNotFound, TooManySessions
from tests.known import known
from tests.scenarios.inputs import DeviceFactory
from tests.scenarios.stage import Stage, greedy, open_stage, prompt


async def test_a_fork_goes_on_from_its_parents_state(opened_device: DeviceFactory) -> None:
    """No token of the history is computed again, and both go their own ways from there."""
    async with open_stage(opened_device, num_slots=4) as stage:
        async with stage.engine.session() as parent:
            shared = stage.note([], await stage.run(parent.turn(prompt(9), greedy(5))))
            async with parent.fork() as child:
                one = await stage.run(child.turn(prompt(3, 1), greedy(6)))
                other = await stage.run(parent.turn(prompt(3, 2), greedy(6)))
                stage.note(stage.note(shared, one), await stage.run(child.turn([7], greedy(4))))
                stage.note(shared, other)
            await stage.settle()

        assert one.usage.cached_tokens == len(shared) - 1
        assert stage.engine.stats().recomputed_tokens == 0
        stage.assert_at_rest()


async def test_two_forks_of_one_state_run_in_one_step() -> None:
    """Both pin the same base; it is given back by neither."""
    async with open_stage(num_slots=4) as stage, stage.engine.session() as parent:
        shared = stage.note([], await stage.run(parent.turn(prompt(9), greedy(5))))
        async with parent.fork() as left, parent.fork() as right:
            turns = [left.turn([1], greedy(6)), right.turn([2], greedy(6))]
            async with stage.engine.stream(prompt(2), greedy(1)), turns[0], turns[1]:
                await stage.settle()
                await stage.step()  # The one-shot's: the two were admitted behind it.
                assert stage.running() == {turn.request_id for turn in turns}
                await parent.close()
                assert stage.engine.audit().draining == 1
                for turn in turns:
                    stage.note(shared, await stage.finish(turn))


async def test_a_fork_of_a_running_session_leaves_the_turn_out() -> None:
    """What is not committed is not there: the fork sees the turn before."""
    async with open_stage(num_slots=4) as stage, stage.engine.session() as parent:
        history = stage.note([], await stage.run(parent.turn(prompt(5), greedy(4))))
        async with parent.turn(prompt(6, 1), greedy(9)) as turn:
            await stage.settle()
            await stage.step(3)
            async with parent.fork() as child:
                assert child.info.num_tokens == len(history)
                stage.note(history, await stage.run(child.turn([3], greedy(4))))
            stage.note(history, await stage.finish(turn))


async def test_a_fork_needs_no_second_slot() -> None:
    """On one slot the parent gives its state up, and the fork computes the log: both go on."""
    async with open_stage(num_slots=1) as stage, stage.engine.session() as parent:
        shared = stage.note([], await stage.run(parent.turn(prompt(9), greedy(5))))
        async with parent.fork() as child:
            one = await stage.run(child.turn([1], greedy(5)))
            stage.note(shared, one)
            stage.note(shared, await stage.run(parent.turn([2], greedy(5))))

        assert one.usage.cached_tokens == 0
        assert stage.engine.stats().forced_parks > 0


async def test_a_fork_outlives_its_parent() -> None:
    """Closed before the fork's first turn: the log is the fork's own."""
    async with open_stage(num_slots=3) as stage, stage.engine.session() as parent:
        shared = stage.note([], await stage.run(parent.turn(prompt(9), greedy(5))))
        async with parent.fork() as child:
            await parent.close()
            stage.note(shared, await stage.run(child.turn([1], greedy(5))))


async def test_a_fork_never_starts_from_a_namesake_of_its_parent() -> None:
    """The parent is closed and another session takes its name while the fork's turn waits."""
    async with open_stage(num_slots=3, max_num_seqs=1) as stage:
        engine = stage.engine
        async with engine.session(session_id="a") as parent:
            shared = stage.note([], await stage.run(parent.turn(prompt(9), greedy(5))))
            child = parent.fork(session_id="child", detached=True)
            async with child:
                pass
        async with engine.session(session_id="a") as namesake:
            other = stage.note([], await stage.run(namesake.turn(prompt(9, 5), greedy(5))))
            stage.note(shared, await stage.run(child.turn([1], greedy(5))))
            stage.note(other, await stage.run(namesake.turn([1], greedy(5))))
        await child.close()


async def test_a_late_interrupt_of_a_forks_first_turn_falls_back_to_the_parents_state() -> None:
    """The state that it started from serves as its checkpoint while it is there."""
    async with open_stage(num_slots=4) as stage, stage.engine.session() as parent:
        shared = stage.note([], await stage.run(parent.turn(prompt(9), greedy(5))))
        async with parent.fork() as child:
            async with child.turn([1], greedy(6)) as turn:
                await stage.settle()
                result = await stage.finish(turn)
            assert await child.interrupt(2) == 2
            history = [*shared, 1, *result.token_ids[:2]]
            again = await stage.run(child.turn([5], greedy(3)))
            stage.note(history, again)

        assert again.usage.cached_tokens == len(shared) - 1


async def test_a_fork_of_a_fork_without_a_turn_starts_from_the_same_state() -> None:
    """Forking is a name and a copy of the log, so it can be repeated at no cost."""
    async with open_stage(num_slots=4) as stage, stage.engine.session() as parent:
        shared = stage.note([], await stage.run(parent.turn(prompt(9), greedy(5))))
        async with parent.fork() as child, child.fork() as grandchild:
            assert grandchild.info.position == len(shared) - 1
            assert (grandchild.info.place, grandchild.info.bytes) == ("device", 0)
            result = await stage.run(grandchild.turn([1], greedy(5)))
            stage.note(shared, result)
            assert result.usage.cached_tokens == len(shared) - 1


async def test_pending_tokens_are_absorbed_once_by_a_fork_too() -> None:
    """A long pending part is the first phase of a fork's turn, on top of the parent's state."""
    async with open_stage(num_slots=4) as stage, stage.engine.session() as parent:
        history = stage.note([], await stage.run(parent.turn(prompt(3), greedy(2))))
        async with parent.turn(prompt(30, 1), greedy(8)) as turn:
            async with anyio.create_task_group() as tasks:
                await stage.settle()
                tasks.start_soon(turn.interrupt, 0)
                await anyio.wait_all_tasks_blocked()
                await stage.settle()
                await stage.step()
        history += prompt(30, 1)
        async with parent.fork() as child:
            assert known(child.info.pending_tokens) == len(history) - known(parent.info.position)
            result = await stage.run(child.turn([1], greedy(5)))
            stage.note(history, result)
            assert result.usage.cached_tokens == parent.info.position


async def _refused(stage: Stage) -> None:
    engine = stage.engine
    async with engine.session(session_id="a") as parent:
        with pytest.raises(SessionExists):
            async with parent.fork(session_id="a"):
                pass
        async with parent.fork(session_id="b") as child:
            assert child.info.num_tokens == 0
            with pytest.raises(TooManySessions):
                async with parent.fork():
                    pass
        await parent.close()
        with pytest.raises(SessionClosed):
            async with parent.fork():
                pass
    with pytest.raises(SessionNotFound):
        async with engine.session(session_id="c").fork():
            pass


async def test_a_fork_that_cannot_be_is_refused_by_name() -> None:
    """Names, bounds and closed parents, as for any session; nothing is half opened."""
    async with open_stage(max_sessions=2) as stage:
        await _refused(stage)
        await stage.settle()
        stage.assert_at_rest()


async def test_forks_draw_by_their_own_turns() -> None:
    """One seed and one turn number draw alike in both; the default seed is the request's own."""
    async with open_stage(num_slots=4) as stage, stage.engine.session() as parent:
        await stage.run(parent.turn(prompt(9), greedy(5)))
        params = SamplingParams(temperature=1.0, seed=7, max_tokens=12, ignore_eos=True)
        async with parent.fork() as child:
            one = await stage.run(child.turn([1], params))
            other = await stage.run(parent.turn([1], params))

        assert one.token_ids == other.token_ids
