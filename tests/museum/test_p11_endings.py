"""P11: an abort, a retraction or a failure is handled as a normal end."""

from typing import Any

import pytest

from kernel.errors import PromptTooLong, QueueTimeout, RequestAborted, StepError
from kernel.params import SamplingParams
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.museum.acts import finish, greedy, held, judge, one_shot, prompt, resting, talk, working
from tests.museum.exhibit import exhibit
from tests.scenarios.inputs import on_both_models
from tests.scenarios.stage import DeviceFactory, open_stage


@exhibit("M016", pattern="P11", guard="admission rule", bug="too-long-turn-is-accepted")
def test_m016_a_turn_that_is_too_long_leaves_the_session_as_it_is() -> None:
    """sgl-project/sglang#22273: it was cut to one token, run, and saved over a long session.

    It is refused at the submit, with the numbers, before it has borrowed anything.
    """
    world = Loopless.open(num_slots=3, num_pages=8)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(9), 4)
    state, free = held(world, session), world.free
    turn = world.start(session, prompt(16, 1), greedy(4))
    error = error_of(turn)
    assert isinstance(error, PromptTooLong)
    assert (error.prompt_tokens, error.limit) == (29, 32)
    assert (held(world, session), world.free) == (state, free)
    assert session.state.log.tolist() == log
    assert not world.device.waiting
    talk(world, session, log, prompt(3, 2), 2)
    world.close(session)
    world.assert_all_free()


@exhibit("M020", pattern="P11", guard="protocol", bug="abort-keeps-half-a-turn")
@on_both_models
@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_m020_a_cancel_falls_back_to_the_last_finished_turn(
    opened_device: DeviceFactory, steps: int
) -> None:
    """sgl-project/sglang#22790: lengths raised ahead of the device were saved by an abort.

    The turn that was cancelled, with a step in flight, has never been: turn 3 is that of a session
    that has had turn 1 only.
    """
    async with (
        open_stage(opened_device, num_slots=3, num_pages=24, max_num_batched_tokens=8) as stage,
        stage.engine.session() as session,
    ):
        history = stage.note([], await stage.run(session.turn(prompt(6), greedy(3))))
        before = stage.held_by(session)
        async with session.turn(prompt(5, 1), greedy(9)):
            await stage.step(steps)
        await stage.settle()
        assert stage.device.waiting
        assert session.info.num_tokens == len(history)
        assert [claim.position for claim in stage.held_by(session)] == [8]
        result = await stage.run(session.turn(prompt(3, 2), greedy(3)))
        assert result.usage.cached_tokens == before[0].position
        stage.note(history, result)


@exhibit("M026", pattern="P11", guard="protocol", bug="abort-keeps-half-a-turn")
@pytest.mark.parametrize("why", ["timeout", "cancel"])
def test_m026_a_turn_that_never_ran_is_not_in_the_history(why: str) -> None:
    """sgl-project/sglang#31767: a turn removed from the queue took the branch of a normal finish.

    A commit wants the claim that the finishing step gave back; a turn that never ran has none.
    """
    world = Loopless.open(num_slots=4, num_pages=40, max_num_seqs=1)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    base = resting(session)
    running = one_shot(world, "running", prompt(4, 1), 4)
    world.step()
    queued = world.start(session, prompt(6, 2), greedy(2), queue_timeout_s=3.0)
    if why == "timeout":
        world.advance(3)
        assert isinstance(error_of(queued), QueueTimeout)
    else:
        world.cancel(session, queued)
        assert isinstance(error_of(queued), RequestAborted)
    assert session.state.log.tolist() == log
    assert resting(session) == base
    finish(world, running)
    talk(world, session, log, prompt(2, 3), 2)
    assert session.turns == 2
    world.close(session)
    world.assert_all_free()


def _crowded(**config: Any) -> Loopless:
    """One row, and a policy by which an urgent request takes it."""
    given: dict[str, Any] = {"num_slots": 4, "num_pages": 60, "max_num_seqs": 1, **config}
    return Loopless.open(scheduling_policy="priority", **given)


@exhibit("M028", pattern="P11", guard="protocol", bug="preemption-advances-the-history")
@pytest.mark.parametrize("ends_by", ["finish", "failure"])
def test_m028_a_preemption_does_not_advance_the_session(ends_by: str) -> None:
    """sgl-project/sglang#40252: the retraction of a turn saved half an answer as history.

    Readmitted, the turn ends as if nothing had happened; failed for good, it has never been.
    """
    world = _crowded()
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    base, tokens = resting(session), prompt(4, 1)
    turn = world.start(session, tokens, greedy(8))
    world.step(4)
    urgent = one_shot(world, "urgent", prompt(3, 2), 2, priority=-9)
    world.step()
    assert working(world, turn) is None
    assert turn.output.tokens
    assert session.state.log.tolist() == log
    assert resting(session) == base
    finish(world, urgent)
    if ends_by == "finish":
        finish(world, turn)
        judge(log, tokens, turn)
        assert turn.output.preemptions == 1
    else:
        world.device.fail(why="for good")
        world.run()
        assert isinstance(error_of(turn), StepError)
        assert resting(session) == base
    talk(world, session, log, prompt(3, 3), 3)
    world.close(session)
    world.assert_all_free()


@exhibit("M059", pattern="P11", guard="protocol", bug="preempted-turn-starts-its-answer-again")
@pytest.mark.parametrize("streamed", [1, 3, 6])
def test_m059_what_was_streamed_before_a_preemption_is_not_spliced(streamed: int) -> None:
    """sgl-project/sglang#39645: the stream went on with the tail of another answer.

    Tokens that were drawn are input when the turn goes on, also with sampling: the answer is that
    of the same turn left in peace.
    """
    answers: list[list[int]] = []
    params = SamplingParams(temperature=1.0, max_tokens=9, ignore_eos=True, seed=7)
    for is_disturbed in (False, True):
        world = _crowded()
        session = world.session("s")
        turn = world.start(session, prompt(5), params)
        if is_disturbed:
            world.step(streamed)
            heard = list(turn.output.tokens)
            assert len(heard) == streamed
            urgent = one_shot(world, "urgent", prompt(3, 2), 2, priority=-9)
            world.step()
            assert working(world, turn) is None
            finish(world, urgent)
        finish(world, turn)
        answers.append(tokens_of(turn))
        assert turn.output.preemptions == int(is_disturbed)
        world.close(session)
        world.assert_all_free()
    assert answers[0] == answers[1]
    assert len(answers[1]) == 9


@exhibit("M069", pattern="P11", guard="protocol", bug="preempted-turn-waits-in-no-queue")
def test_m069_a_preempted_turn_has_a_way_on() -> None:
    """sgl-project/sglang#6857: a retracted turn was queued in a state that no rule takes from.

    It waits like a new one, in its old place, and is admitted when there is room.
    """
    world = Loopless.open(num_slots=4, num_pages=7)
    senior = one_shot(world, "senior", prompt(8, 1), 13)
    junior = one_shot(world, "junior", prompt(8, 2), 7)
    while not junior.output.preemptions:
        assert senior.output.end is None
        world.step()
    scheduler = world.core.scheduler
    assert scheduler is not None
    assert [turn.id for turn in scheduler.roster.waiting] == [junior.id]
    late = one_shot(world, "late", prompt(3, 3), 2)
    finish(world, senior, junior, late)
    for request, tokens in ((senior, prompt(8, 1)), (junior, prompt(8, 2)), (late, prompt(3, 3))):
        judge([], tokens, request)
    world.assert_all_free()
