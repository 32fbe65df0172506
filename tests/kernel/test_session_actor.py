"""A session decides what becomes of its turns, in the order of its mail."""

import pytest

from kernel import SamplingParams
from kernel.actors.reply import Reply
from kernel.errors import (
    EngineFault,
    PromptTooLong,
    RequestAborted,
    SessionBusy,
    SessionClosed,
    SessionLost,
    ValidationError,
)
from kernel.ids import SCHEDULER, TurnId, session_custodian
from kernel.messages import CancelTurn, CloseSession, GaveUp, GiveUp, InterruptTurn, TurnFinished
from ownership import BaseName
from tests.kernel.loopless import Loopless, error_of, outcome, tokens_of


@pytest.fixture
def world() -> Loopless:
    return Loopless.open()


# One turn at a time


def test_a_second_turn_is_refused_and_disturbs_nothing(world: Loopless) -> None:
    """The error names the turn that runs."""
    session = world.session()
    first = world.start(session, [1, 2])
    second = world.start(session, [3])
    world.finish(first)

    error = error_of(second)
    assert isinstance(error, SessionBusy)
    assert error.turn_id == first.id
    assert len(tokens_of(first)) == 4
    assert world.core.door.queued_reqs == 0


def test_a_second_turn_may_wait_for_its_place(world: Loopless) -> None:
    """It is accepted at once, and starts from what the first one leaves."""
    session = world.session()
    first = world.start(session, [1, 2])
    second = world.start(session, [3], wait=True)
    accepted = second.accepted.is_settled
    world.finish(second)

    assert accepted
    assert session.state.log.tolist() == [1, 2, *tokens_of(first), 3, *tokens_of(second)]
    assert second.output.prompt_tokens == 7


def test_a_refused_turn_lets_the_next_in_the_queue_start(world: Loopless) -> None:
    """A prompt that can never fit is found when its place has come; it must not block the rest."""
    session = world.session()
    first = world.start(session, [1])
    hopeless = world.start(session, range(200_001), wait=True)
    third = world.start(session, [2], wait=True)
    world.finish(third)

    assert isinstance(error_of(hopeless), PromptTooLong)
    assert len(session.state.log) == 2 + len(tokens_of(first)) + len(tokens_of(third))


def test_the_phase_says_what_the_session_does() -> None:
    """In a caller's words."""
    world = Loopless.open(max_num_seqs=1)
    session, other = world.session("a"), world.session("b")
    phases = [session.phase]
    blocking = world.start(other, [1])
    request = world.start(session, [2])
    phases.append(session.phase)
    world.finish(blocking)
    world.step()
    phases.append(session.phase)
    world.finish(request)
    phases.append(session.phase)
    world.close(session)
    phases.append(session.phase)

    assert phases == ["idle", "queued", "running", "idle", "closed"]


# The first decision stands


def test_a_cancelled_turn_is_forgotten_at_once(world: Loopless) -> None:
    """The session takes its next turn while the old one's claim is still on the device."""
    session = world.session()
    first = world.start(session, [1, 2, 3])
    world.finish(first)
    cancelled = world.start(session, [4])
    world.cancel(session, cancelled)
    third = world.start(session, [5])
    world.finish(third)
    cold = world.start(world.session("cold"), [1, 2, 3, *tokens_of(first), 5])
    world.finish(cold)

    assert isinstance(error_of(cancelled), RequestAborted)
    assert tokens_of(third) == tokens_of(cold)
    assert session.turns == 2


@pytest.mark.parametrize("decision", ["cancel", "close"])
def test_a_claim_that_comes_after_the_decision_is_rolled_back(
    world: Loopless, decision: str
) -> None:
    """The session has the finished claim in its mail when it decides otherwise."""
    session = world.session()
    request = world.start(session, [1], SamplingParams(temperature=0, max_tokens=1))
    dispatcher = world.core.dispatcher
    world.device.complete()
    while not any(isinstance(mail, TurnFinished) for mail in session.mailbox):
        dispatcher.run(1)
    # What the session handles first is the outcome; play a message that came before.
    first = CancelTurn(request.id, "abort") if decision == "cancel" else CloseSession()
    session.handle(first)
    world.run()

    assert isinstance(error_of(request), RequestAborted | SessionClosed)
    assert world.held_by(session) == 0
    assert session.state.log.tolist() == []
    world.close(session)
    world.assert_all_free()


def test_a_cancel_of_another_turn_is_void(world: Loopless) -> None:
    """A late one can't hit the next turn."""
    session = world.session()
    first = world.start(session, [1])
    world.finish(first)
    second = world.start(session, [2])
    world.cancel(session, first)
    world.finish(second)

    assert len(tokens_of(second)) == 4


def test_close_answers_everybody_once(world: Loopless) -> None:
    """The turn that runs, those that wait, and whoever asked to interrupt."""
    session = world.session()
    requests = [world.start(session, [n], wait=True) for n in range(1, 4)]
    world.step()
    world.interrupt(session, 0)
    interrupt = world.interrupt(session, 0, requests[2])
    world.close(session)
    world.step()

    assert [type(error_of(request)) for request in requests] == [SessionClosed] * 3
    assert isinstance(outcome(interrupt), SessionClosed)
    assert all(request.accepted.is_settled for request in requests)
    world.assert_all_free()


def test_mail_for_a_closed_session_is_answered(world: Loopless) -> None:
    """A turn and an interrupt that were posted before the close was handled."""
    session = world.session()
    late: Reply[int] = Reply()
    session.mailbox.post(CloseSession(), session.name)
    session.mailbox.post(InterruptTurn(None, None, late), session.name)
    request = world.start(session, [1])

    assert isinstance(outcome(late), SessionClosed)
    assert isinstance(error_of(request), SessionClosed)
    assert world.core.door.queued_reqs == 0


# Deaths


def test_a_session_survives_the_death_of_the_scheduler(world: Loopless) -> None:
    """Its turn fails; its state was never touched by it."""
    session = world.session()
    first = world.start(session, [1, 2])
    world.finish(first)
    failed = world.start(session, [3])
    world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
    world.run()
    again = world.start(session, [3])
    world.finish(again)

    assert isinstance(error_of(failed), EngineFault)
    assert again.output.cached_tokens == 5


def test_the_death_of_a_session_is_told_to_its_callers(world: Loopless) -> None:
    """And its id is free for a new one."""
    session = world.session()
    requests = [world.start(session, [n], wait=True) for n in (1, 2)]
    world.core.dispatcher.kill(session.name, RuntimeError("planted"))
    world.run()
    world.step()
    again = world.start(world.session(), [3])
    world.finish(again)

    assert [type(error_of(request)) for request in requests] == [SessionLost] * 2
    assert len(tokens_of(again)) == 4
    assert world.core.num_sessions == 1


# Odds and ends


def test_a_one_shot_closes_itself_and_keeps_nothing(world: Loopless) -> None:
    """A session of one turn: nothing is committed for nobody."""
    session = world.session("once", is_one_shot=True)
    world.finish(world.start(session, [1, 2]))

    assert session.is_closed
    assert world.core.sessions == {}
    assert world.core.ledger.view.counters.commits == 0
    world.assert_all_free()


def test_one_token_to_append_needs_no_step(world: Loopless) -> None:
    """It is held back as pending; the next turn starts from it."""
    session = world.session()
    request = world.start(session, [7], kind="append")

    assert request.output.end is not None
    assert request.output.end.error is None
    assert world.device.waiting == ()
    assert (session.state.log.tolist(), session.turns) == ([7], 0)
    assert world.core.door.queued_reqs == 0


@pytest.mark.parametrize("kind", ["generate", "append"])
def test_an_empty_prompt_without_a_history_is_refused(world: Loopless, kind: str) -> None:
    """There is nothing to absorb and nothing to continue."""
    session = world.session()
    request = world.start(session, [], kind=kind)

    assert isinstance(error_of(request), ValidationError)
    assert session.phase == "idle"


def test_an_empty_prompt_continues_a_history(world: Loopless) -> None:
    """As one longer turn would have gone on."""
    session = world.session()
    first = world.start(session, [1, 2])
    world.finish(first)
    second = world.start(session, [])
    world.finish(second)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    whole = world.start(world.session("whole"), [1, 2], params)
    world.finish(whole)

    assert tokens_of(first) + tokens_of(second) == tokens_of(whole)


def test_every_ask_for_a_state_is_answered(world: Loopless) -> None:
    """The scheduler waits for the answer, also of one who has nothing to give."""
    session = world.session()
    world.finish(world.start(session, [1, 2]))
    scheduler = world.core.scheduler
    assert scheduler is not None
    name = session_custodian(session.session_id)
    answers: list[GaveUp] = []
    for version in (9, 1, 1):
        session.handle(GiveUp(BaseName(name, version)))
        answers += [mail for mail in scheduler.mailbox if isinstance(mail, GaveUp)]
        world.run()

    assert [answer.moved for answer in answers] == [False, True, False]
    assert world.held_by(session) == 0


def test_a_stop_string_ends_the_turn_before_it(world: Loopless) -> None:
    """Found at the edge between two handlers; the log is cut with the text."""
    probe = world.start(world.session("probe"), [1, 2])
    world.finish(probe)
    third = world.device.tokenizer.decode(tokens_of(probe)[2:3])
    params = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True, stop=third)
    session = world.session()
    request = world.start(session, [1, 2], params)
    world.finish(request)

    assert request.output.end is not None
    assert (request.output.end.reason, request.output.end.stop_reason) == ("stop", third)
    assert tokens_of(request) == tokens_of(probe)[:2]
    assert session.state.log.tolist() == [1, 2, *tokens_of(probe)[:2]]


def test_a_turn_id_is_all_that_a_late_message_needs(world: Loopless) -> None:
    """Cancels for turns that never were are void."""
    session = world.session()
    world.post(session, CancelTurn(TurnId("never"), "abort"))

    assert session.phase == "idle"
