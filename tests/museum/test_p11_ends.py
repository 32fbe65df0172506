"""P11, from M086 on: an end is what it is: an empty answer, an error, a state that has gone."""

import pytest

from kernel import SamplingParams, StepError
from tests.kernel.loopless import Loopless
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    assert_solo,
    finish_all,
    history_of,
    live_rows,
    one_shot,
    solo,
    was_admitted,
)
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M100", pattern="P11", guard="protocol", bug="first-token-stops-nothing")
async def test_m100_an_answer_without_tokens_is_an_ordinary_end() -> None:
    """vllm-project/vllm#52693: a stop as the first token killed the engine under the next turn.

    The second turn stops at once, with the third queued behind it. It ends as "stop" with no
    text, the stop token is in the log, and the third turn goes on from there.
    """
    async with open_stage(num_slots=3) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        (stop,) = solo([*history, *prompt(3, 1)], 1)
        params = SamplingParams(temperature=0, max_tokens=9, stop_token_ids=[stop])
        async with session.turn(prompt(3, 1), params) as second:
            third = session.turn(prompt(2, 2), greedy(4), wait=True)
            async with third:
                empty = await stage.finish(second)
                assert (empty.finish_reason, empty.outputs[0].text) == ("stop", "")
                assert empty.token_ids == (stop,)
                history = stage.note(history, empty)
                stage.note(history, await stage.finish(third))
        assert stage.engine.health().ready


@exhibit("M101", pattern="P11", guard="protocol", bug="failed-turn-ends-in-peace")
async def test_m101_an_error_is_no_turn_boundary_and_a_slow_reader_sees_each_boundary() -> None:
    """vllm-project/vllm#53861: an abort looked like the end of a turn, and outputs merged over one.

    The step of the second turn fails: its reader gets what had come, then the error, and never a
    finish reason. The first turn is read only when the third has ended: all of it, and no more.
    """
    async with open_stage(num_slots=4) as stage, stage.engine.session() as session:
        slow = session.turn(prompt(5), greedy(3))
        async with slow:
            await stage.settle()
            await stage.step(3)
            assert slow.has_result
            async with session.turn(prompt(3, 1), greedy(5)) as failing:
                await stage.settle()
                await stage.step(2)
                received = await stage.read(failing)
                await stage.fail_step("planted")
                with pytest.raises(StepError, match="planted"):
                    async for delta in failing:
                        assert delta.finish_reason is None
                assert len(received) == 2
                assert not failing.has_result
            first = solo(prompt(5), 3)
            third = await stage.run(session.turn(prompt(2, 2), greedy(4)))
            stage.note([*prompt(5), *first], third)
            deltas = [delta async for delta in slow]
            assert [list(delta.token_ids) for delta in deltas] == [first]
            assert deltas[-1].finish_reason == "length"


@exhibit("M178", pattern="P11", guard="position check", bug="missing-base-counts-as-absorbed")
def test_m178_a_base_that_has_gone_is_computed_again_and_not_taken_for_loaded() -> None:
    """LMCache/LMCache#4600: a load that failed was logged, and counted as finished.

    A turn waits, and names its session's state as its base. Before it is admitted the state has to
    give way. The turn starts from nothing and computes the whole log, and counts nothing as cached.
    """
    world = Loopless.open(num_slots=2, num_pages=40, max_num_seqs=2)
    session = world.session("a")
    world.finish(world.start(session, prompt(6), greedy(4)))
    before = history_of(session)
    rows = [world.start(one_shot(world, f"s{n}"), prompt(5, n), greedy(3 + n)) for n in range(2)]
    turn = world.start(session, prompt(3, 2), greedy(4))
    world.step()
    assert world.held_by(session) == 0, "it gave way while the turn was waiting"
    assert not was_admitted(turn)
    while not was_admitted(turn):
        world.step()
    row = next(row for row in live_rows(world) if len(row.tokens) > 1)
    assert (row.initial, row.position) == ("zeros", 0)
    assert list(row.tokens) == [*before, *turn.tokens]
    finish_all(world, turn, *rows)
    assert (turn.output.cached_tokens, turn.output.recomputed_tokens) == (0, len(before) - 1)
    assert_solo(before, turn)
    world.close(session)
    world.assert_all_free()
