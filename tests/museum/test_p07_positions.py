"""P7: the position of the state and the position of the tokens differ."""

from typing import Any

import pytest

from kernel import RequestOutput
from kernel.engine.request import RunningTurn
from kernel.errors import ValidationError
from kernel.params import SamplingParams
from tests.kernel.loopless import Loopless, outcome, read
from tests.museum.acts import greedy, held, judge, one_shot, prompt, resting, talk, working
from tests.museum.exhibit import exhibit
from tests.scenarios.inputs import on_both_models
from tests.scenarios.stage import DeviceFactory, open_stage


@exhibit("M018", pattern="P7", guard="admission rule", bug="unknown-options-are-ignored")
async def test_m018_an_option_that_is_not_served_is_refused_before_anything_moves() -> None:
    """sgl-project/sglang#20557: one unusual option made a turn skip what its session had.

    Options never change what a session owns: unknown ones are refused by name, at submit, and the
    log-probabilities that the report's option was about are served without computing more.
    """
    async with open_stage(num_slots=2, num_pages=20) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(6), greedy(4))))
        before, free = session.info, stage.free
        unusual: dict[str, Any] = {"logprob_start_len": 0}
        with pytest.raises(ValidationError, match="logprob_start_len"):
            session.turn(prompt(3, 1), greedy(2), **unusual)
        with pytest.raises(ValidationError, match="logprob_start_len"):
            SamplingParams.from_openai({"logprobs": True, **unusual})
        assert (session.info, stage.free) == (before, free)
        told = greedy(2, logprobs=1, prompt_logprobs=1)
        result = await stage.run(session.turn(prompt(3, 1), told))
        assert result.usage.cached_tokens == 9
        assert [entry is None for entry in result.prompt_logprobs or ()] == [False] * 3
        stage.note(history, result)
    assert stage.free == stage.capacity


@exhibit("M019", pattern="P7", guard="ledger", bug="surplus-pages-leaked")
def test_m019_pages_beyond_the_committed_position_go_back() -> None:
    """sgl-project/sglang#22862: what lay between the kept and the allocated length was lost.

    Pages beyond the position are the claim's own: a preemption gives them back, and so does the
    commit of less than was reserved.
    """
    world = Loopless.open(num_slots=4, num_pages=40, max_num_seqs=1, scheduling_policy="priority")
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    tokens = prompt(21, 1)
    turn = world.start(session, tokens, greedy(9))
    world.step(3)
    urgent = one_shot(world, "urgent", prompt(2, 2), 2, priority=-9)
    world.step()
    assert working(world, turn) is None
    assert [len(claim.pages) for claim in held(world, session)] == [2]
    world.finish(urgent)
    assert working(world, turn) is not None
    read(turn)
    reply = world.interrupt(session, 0)
    world.step()
    assert outcome(reply) == 0
    judge(log, tokens, turn)
    claims = held(world, session)
    assert world.free[1] == 40 - len({page for claim in claims for page in claim.pages})
    for claim in claims:
        assert len(claim.pages) == -(-claim.position // 4)

    long = world.start(session, prompt(3, 3), greedy(12))
    world.step(2)
    read(long)
    reply = world.interrupt(session, 1)
    while long.output.end is None:
        world.step()
    assert outcome(reply) == 1
    judge(log, prompt(3, 3), long)
    for claim in held(world, session):
        assert len(claim.pages) == -(-claim.position // 4)
    world.close(session)
    world.assert_all_free()


@exhibit("M072", pattern="P7", guard="position check", bug="state-beyond-its-log-is-kept")
@pytest.mark.parametrize("keep", range(6))
def test_m072_a_state_is_kept_under_its_exact_position_or_not_at_all(keep: int) -> None:
    """sgl-project/sglang#34808: a state was attached to a node nearer than its real depth.

    An interrupt keeps fewer tokens than the state has absorbed: then the state is dropped, and the
    next turn absorbs the difference from where the session was.
    """
    world = Loopless.open(num_slots=4, num_pages=40)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(6), 4)
    turn = world.start(session, prompt(5, 1), greedy(9))
    world.step(6)
    read(turn)
    reply = world.interrupt(session, keep)
    while turn.output.end is None:
        world.step()
    assert outcome(reply) == keep
    judge(log, prompt(5, 1), turn)
    assert len(log) == 15 + keep
    for claim in held(world, session):
        assert claim.position <= len(log) - 1
    assert session.state.position == 9
    for salt in (2, 3):
        talk(world, session, log, prompt(2, salt), 3)
    world.close(session)
    world.assert_all_free()


@exhibit("M073", pattern="P7", guard="position check", bug="pages-are-frozen-on-another-grid")
@pytest.mark.parametrize("chunk", [1, 3, 4, 5, 6, 7, 11])
def test_m073_chunks_and_pages_need_no_common_grid(chunk: int) -> None:
    """sgl-project/sglang#35086: one constant stood for two chunk sizes.

    Nobody computes an index: a claim knows its position, whatever the chunk, and its pages are
    frozen by that.
    """
    world = Loopless.open(num_slots=4, num_pages=40, max_num_seqs=1, max_num_batched_tokens=chunk)
    session, log = world.session("s"), list[int]()
    for salt, length in enumerate((9, 5, 12)):
        turn = world.start(session, prompt(length, salt), greedy(3))
        while turn.output.end is None:
            claim = working(world, turn)
            assert claim is not None
            assert len(claim.pages) - claim.exclusive == claim.position // 4
            (step,) = world.device.waiting
            assert step.rows[0].position == claim.position
            world.step()
        judge(log, prompt(length, salt), turn)
        assert session.state.position == len(log) - 1
    world.close(session)
    world.assert_all_free()


@exhibit("M074", pattern="P7", guard="position check", bug="tail-on-a-page-edge-minus-one-is-lost")
@on_both_models
@pytest.mark.parametrize("start", [7, 63, 64])
async def test_m074_a_tail_of_any_length_after_a_base_equals_a_cold_run(
    opened_device: DeviceFactory, start: int
) -> None:
    """sgl-project/sglang#29633: a tail of one token after a hit gave a broken first token.

    From positions around the edges of a page and of a chunk of the scan (64), with as many tokens
    more as fill neither, one, or both.
    """
    async with open_stage(opened_device, num_slots=3, num_pages=40, max_num_seqs=1) as stage:
        stage.device.open()
        for tail in (1, 2, 64):
            async with stage.engine.session() as session:
                first = await _whole(session.turn(prompt(start - 1), greedy(2)))
                assert session.info.position == start
                second = await _whole(session.turn(prompt(tail, tail), greedy(2)))
                assert second.usage.cached_tokens == start
                stage.note(stage.note([], first), second)


async def _whole(turn: RunningTurn) -> RequestOutput:
    async with turn:
        return await turn.wait()


@exhibit("M085", pattern="P7", guard="ledger", bug="tail-shared")
@pytest.mark.parametrize("length", range(3, 14))
def test_m085_slot_and_pages_start_from_one_position(length: int) -> None:
    """vllm-project/vllm#46281: the state matched one block more than the attention layers did.

    A base has one position; the slot is a copy made there, the full pages below it are shared, and
    the partly filled one is copied.
    """
    world = Loopless.open(num_slots=4, num_pages=40)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(length - 2), 3)
    (state,) = held(world, session)
    turn = world.start(session, prompt(6, 1), greedy(3))
    (step,) = world.device.waiting
    (row,) = step.rows
    assert row.position == state.position == length
    full = length // 4
    assert tuple(row.pages[:full]) == state.pages[:full]
    assert not {*row.pages[full:]} & {*state.pages}
    assert (row.tail_copy is not None) == bool(length % 4)
    if row.tail_copy is not None:
        assert (row.tail_copy.source, row.tail_copy.target) == (state.pages[full], row.pages[full])
    assert getattr(row.initial, "slot", None) == state.slot
    world.finish(turn)
    judge(log, prompt(6, 1), turn)
    assert turn.output.cached_tokens == length
    assert resting(session).version == 2
    world.close(session)
    world.assert_all_free()
