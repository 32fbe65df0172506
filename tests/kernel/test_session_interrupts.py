"""Interrupts: what is kept is exact, on a state that can't be cut."""

import pytest

from kernel.errors import RequestAborted, TooLate, TurnNotFound, ValidationError
from kernel.sessions.session import SessionActor
from tests.kernel.loopless import Loopless, error_of, outcome, read, tokens_of


@pytest.fixture
def world() -> Loopless:
    return Loopless.open()


def test_an_interrupt_keeps_what_it_says(world: Loopless) -> None:
    """Exact, although the state has gone further: the claim is rolled back, the log is kept."""
    session = world.session()
    request = world.start(session, [1, 2])
    world.step(3)
    read(request)
    reply = world.interrupt(session, 1)
    world.step()

    assert outcome(reply) == 1
    assert session.state.log.tolist() == [1, 2, request.output.tokens[0]]
    assert request.output.end is not None
    assert request.output.end.reason == "interrupt"
    assert session.state.position <= 2


def test_more_than_was_received_can_not_be_kept(world: Loopless) -> None:
    """Nobody heard it; the turn goes on undisturbed."""
    session = world.session()
    request = world.start(session, [1, 2])
    world.step(2)
    reply = world.interrupt(session, 1)
    world.finish(request)

    error = outcome(reply)
    assert isinstance(error, ValidationError)
    assert error.parameter == "keep"
    assert len(tokens_of(request)) == 4


def test_of_two_interrupts_the_smaller_number_holds(world: Loopless) -> None:
    """Both are told what was kept."""
    session = world.session()
    request = world.start(session, [1, 2])
    world.step(3)
    read(request)
    replies = [
        world.interrupt(session, 3),
        world.interrupt(session, 1),
        world.interrupt(session, 2),
    ]
    world.step()

    assert [outcome(reply) for reply in replies] == [1, 1, 1]
    assert len(tokens_of(request)) == 1


def test_a_cancel_beats_an_interrupt_that_has_not_landed(world: Loopless) -> None:
    """Whoever asked for the interrupt hears of the cancel."""
    session = world.session()
    request = world.start(session, [1, 2])
    world.step()
    reply = world.interrupt(session, 0)
    world.cancel(session, request)
    world.step()

    assert isinstance(outcome(reply), RequestAborted)
    assert session.state.log.tolist() == []


def test_a_turn_that_arrives_during_an_interrupt_waits_for_it(world: Loopless) -> None:
    """Barge-in: the user's next words come before the old turn has landed."""
    session = world.session()
    request = world.start(session, [1, 2])
    world.step(2)
    world.interrupt(session, 0)
    following = world.start(session, [7])
    world.finish(following)

    assert tokens_of(request) == []
    assert session.state.log.tolist() == [1, 2, 7, *tokens_of(following)]


def test_a_late_interrupt_cuts_the_turn_that_ended(world: Loopless) -> None:
    """Speech is slower than text: the usual interrupt comes after the end."""
    session = world.session()
    first = world.start(session, [1, 2])
    world.finish(first)
    second = world.start(session, [3])
    world.finish(second)
    reply = world.interrupt(session, 1)
    third = world.start(session, [4])
    world.finish(third)
    history = [1, 2, *tokens_of(first), 3, tokens_of(second)[0], 4]
    cold = world.start(world.session("cold"), history)
    world.finish(cold)

    assert outcome(reply) == 1
    assert tokens_of(third) == tokens_of(cold)
    assert third.output.cached_tokens == 5, "the checkpoint, not nothing"


def test_a_late_interrupt_may_cut_further_and_not_back(world: Loopless) -> None:
    """What it once cut off is gone."""
    session = world.session()
    world.finish(world.start(session, [1, 2]))

    assert [outcome(world.interrupt(session, keep)) for keep in (None, 3, 1, None)] == [4, 3, 1, 1]
    assert isinstance(outcome(world.interrupt(session, 2)), ValidationError)


def test_a_late_interrupt_keeps_no_more_than_was_received(world: Loopless) -> None:
    """Nobody has heard the rest; and the caller's count says that something is amiss."""
    session = world.session()
    turn = world.start(session, [1, 2])
    world.finish(turn)
    turn.output.delivered = 2

    assert isinstance(outcome(world.interrupt(session, 3)), ValidationError)
    assert outcome(world.interrupt(session, 2)) == 2


def test_an_interrupt_of_a_turn_of_the_past_is_too_late(world: Loopless) -> None:
    """The session has accepted another one, whose history it would take away."""
    session = world.session()
    first = world.start(session, [1])
    world.finish(first)
    second = world.start(session, [2])
    running = outcome(world.interrupt(session, 0, first))
    world.finish(second)

    assert isinstance(running, TooLate)
    assert isinstance(outcome(world.interrupt(session, 0, first)), TooLate)


def test_an_interrupt_without_any_turn_finds_none(world: Loopless) -> None:
    """There is nothing that it could mean."""
    session = world.session()

    assert isinstance(outcome(world.interrupt(session, None)), TurnNotFound)


def test_a_waiting_turn_can_be_interrupted_before_its_place_has_come(world: Loopless) -> None:
    """Its input is kept, in its place in the log, and nothing is generated."""
    session = world.session()
    first = world.start(session, [1])
    second = world.start(session, [2], wait=True)
    reply = world.interrupt(session, None, second)
    world.finish(first)

    assert outcome(reply) == 0
    assert session.state.log.tolist() == [1, *tokens_of(first), 2]


# Two phases


def a_long_pending_history(world: Loopless, session: SessionActor) -> list[int]:
    """A state far behind its log: a long input whose turn was cut back to nothing of its own."""
    first = world.start(session, [1, 2])
    world.finish(first)
    prompt = list(range(100, 110))
    second = world.start(session, prompt)
    world.step(2)
    read(second)
    world.interrupt(session, 0)
    world.step()
    log = [1, 2, *tokens_of(first), *prompt]
    assert session.state.log.tolist() == log
    assert len(log) - session.state.position > world.core.limits.page_size
    return log


def test_a_long_pending_part_is_committed_first(world: Loopless) -> None:
    """As a phase of the next turn, so that interrupts in a row don't add up."""
    session = world.session()
    log = a_long_pending_history(world, session)
    version = session.state.version
    request = world.start(session, [7])
    world.step()
    between = session.state.position, session.state.version, len(request.output.tokens)
    world.finish(request)
    cold = world.start(world.session("cold"), [*log, 7])
    world.finish(cold)

    assert between == (len(log) - 1, version + 1, 0)
    assert tokens_of(request) == tokens_of(cold)
    assert session.state.version == version + 2


def test_a_cancel_in_the_second_phase_keeps_the_commit_of_the_first(world: Loopless) -> None:
    """It absorbed what was in the log before the turn, and nothing of the turn."""
    session = world.session()
    log = a_long_pending_history(world, session)
    request = world.start(session, [7])
    world.step(3)
    generated = len(request.output.tokens)
    world.cancel(session, request)
    world.step()
    again = world.start(session, [8])
    world.finish(again)
    cold = world.start(world.session("cold"), [*log, 8])
    world.finish(cold)

    assert generated > 0
    assert isinstance(error_of(request), RequestAborted)
    assert again.output.cached_tokens == len(log) - 1
    assert tokens_of(again) == tokens_of(cold)


def test_a_cancel_in_the_first_phase_leaves_the_session_as_it_was(world: Loopless) -> None:
    """The claim of the phase comes late, and is rolled back."""
    session = world.session()
    log = a_long_pending_history(world, session)
    before = session.state.position
    request = world.start(session, [7])
    world.cancel(session, request)
    world.step()

    assert session.state.position == before
    assert session.state.log.tolist() == log
    assert world.core.ledger.audit().batch == 0


def test_an_interrupt_in_the_first_phase_keeps_the_input(world: Loopless) -> None:
    """There is nothing generated to keep; the phase is committed if it was done."""
    session = world.session()
    log = a_long_pending_history(world, session)
    request = world.start(session, [7])
    reply = world.interrupt(session, 0)
    world.step()
    if request.output.end is None:
        world.step()

    assert outcome(reply) == 0
    assert session.state.log.tolist() == [*log, 7]
    assert world.core.ledger.audit().batch == 0


def test_a_short_pending_part_is_absorbed_with_the_input(world: Loopless) -> None:
    """A commit more would cost a copy and save nothing."""
    session = world.session()
    world.finish(world.start(session, [1, 2]))
    version = session.state.version
    world.finish(world.start(session, [7]))

    assert session.state.version == version + 1
