"""P9, from M086 on: a slot, a row and a turn start clean, whoever had them before."""

import pytest

from kernel import SamplingParams
from tests.kernel.loopless import Loopless
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    assert_solo,
    finish_all,
    history_of,
    live_rows,
    on_the_tiny_model,
    one_shot,
    open_tiny,
    solo,
    words,
)
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M092", pattern="P9", guard="ledger", bug="preempted-keeps-its-claim")
def test_m092_a_resumed_turn_knows_nothing_of_its_former_place() -> None:
    """vllm-project/vllm#35157: after a forced preemption a request resumed with its old index.

    Two juniors are preempted at once, and resume when the seniors have gone, in other slots and
    on other pages. Their rows name what their new claims hold, and the answers are unbroken.
    """
    world = Loopless.open(num_slots=2, num_pages=16, scheduling_policy="priority")
    juniors = [
        world.start(one_shot(world, f"j{n}"), prompt(7 - n, n), greedy(12)) for n in range(2)
    ]
    world.step(4)
    former = [row.slot for row in live_rows(world)]
    seniors = [
        world.start(one_shot(world, f"s{n}"), prompt(20, 5 + n), greedy(2 + n), priority=-9)
        for n in range(2)
    ]
    world.step()
    assert [turn.output.preemptions for turn in juniors] == [1, 1]
    finish_all(world, *seniors)
    resumed = [row.slot for row in live_rows(world)]
    assert resumed != former
    while world.device.waiting:
        (lease,) = world.core.ledger.view.leases()
        for row, place in zip(
            live_rows(world), world.core.ledger.view.placements(lease), strict=True
        ):
            assert (row.slot, tuple(row.pages)) == (place.slot, tuple(place.pages))
            assert len(row.pages) * 4 >= row.position + len(row.tokens)
        world.step()
    for turn in (*juniors, *seniors):
        assert_solo([], turn)
    assert not world.device.poison_reads
    world.assert_all_free()


@exhibit("M102", pattern="P9", guard="protocol", bug="one-turn-object-for-ever")
async def test_m102_the_reason_of_one_turn_does_not_show_in_the_next() -> None:
    """vllm-project/vllm#57584: a session reused its request, and told the former stop reason.

    One turn ends by a stop token, the next by its limit, one by an interrupt, one by its limit
    again: each tells its own reason, and none that it has not got.
    """
    async with open_stage(num_slots=3) as stage, stage.engine.session() as session:
        (_, stop, *_) = solo(prompt(5), 3)
        stopping = SamplingParams(temperature=0, max_tokens=9, stop_token_ids=[stop])
        first = (await stage.run(session.turn(prompt(5), stopping))).outputs[0]
        assert (first.finish_reason, first.stop_reason) == ("stop", stop)
        second = (await stage.run(session.turn(prompt(3, 1), greedy(2)))).outputs[0]
        assert (second.finish_reason, second.stop_reason) == ("length", None)
        async with session.turn(prompt(2, 2), greedy(9)) as turn:
            await stage.settle()
            await stage.step(2)
            await stage.read(turn)
            stage.device.holds = False
            stage.device.open()
            await turn.interrupt(1)
            third = (await turn.wait()).outputs[0]
        assert (third.finish_reason, len(third.token_ids)) == ("interrupt", 1)
        stage.device.holds = True
        fourth = (await stage.run(session.turn(prompt(3, 3), greedy(2)))).outputs[0]
        assert (fourth.finish_reason, fourth.stop_reason) == ("length", None)
        assert len(fourth.token_ids) == 2


@exhibit("M112", pattern="P9", guard="protocol", bug="first-decode-row-invents-its-token")
def test_m112_a_first_row_that_decodes_has_its_own_last_token_and_sampling() -> None:
    """vllm-project/vllm#39833: without a prefill step a slot kept its former owner's last token.

    A turn without input decodes at once: the token that its session's log holds back, with its own
    sampling, in a slot that another client has just left.
    """
    world = Loopless.open(num_slots=2, num_pages=40)
    session = world.session("a")
    world.finish(world.start(session, prompt(6), greedy(4)))
    hot = SamplingParams(temperature=1.0, seed=5, max_tokens=6, top_k=7)
    former = world.start(one_shot(world), prompt(6, 1), hot)
    (row,) = live_rows(world)
    left = row.slot
    world.finish(former)
    log = history_of(session)
    turn = world.start(session, [], greedy(5))
    (row,) = live_rows(world)
    assert (row.slot, list(row.tokens), row.position) == (left, log[-1:], len(log) - 1)
    assert row.sampling is not None
    assert (row.sampling.temperature, row.sampling.index, row.sampling.top_k) == (0.0, 0, 0)
    world.finish(turn)
    assert_solo(log, turn)
    world.close(session)
    world.assert_all_free()


@exhibit("M152", pattern="P9", guard="ledger", bug="device-skips-zeroing")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@on_the_tiny_model
async def test_m152_a_used_slot_answers_like_a_new_one() -> None:
    """InternLM/lmdeploy#4434: the life of a state across requests had to be rebuilt.

    On the real scan, whose given-back memory is poisoned: clients follow each other in one slot,
    after an end, a cancel and a failed step, and each answers as it would alone.
    """
    async with open_stage(open_tiny, num_slots=1, num_pages=30) as stage:
        stage.note([], await stage.run(stage.engine.stream(words(9), greedy(5))))
        stage.note([], await stage.run(stage.engine.stream(words(5, 1), greedy(5))))
        async with stage.engine.stream(words(12, 2), greedy(9)):
            await stage.settle()
            await stage.step(3)
        await stage.settle()
        await stage.land()
        stage.note([], await stage.run(stage.engine.stream(words(2, 3), greedy(4))))
        async with stage.engine.stream(words(12, 4), greedy(9)):
            await stage.settle()
            await stage.step(2)
            await stage.fail_step()
        stage.note([], await stage.run(stage.engine.stream(words(6, 5), greedy(4))))
        assert {row.slot for step in stage.device.steps for row in step.rows} == {0}
        stage.assert_at_rest()
