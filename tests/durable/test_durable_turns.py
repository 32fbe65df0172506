"""A turn counts when its tokens are kept: told means on the disk; what wasn't told has not been."""

import pytest

from kernel.actors.reply import Reply
from kernel.errors import (
    RequestAborted,
    SessionBusy,
    SessionClosed,
    SessionLost,
    StoreError,
)
from kernel.ids import SCHEDULER
from kernel.messages import DropMark, Rewind, SetMark
from kernel.session_store import CutLog, KeepFacts, KeepTurn
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from tests.durable.worlds import Durable, settled
from tests.kernel.loopless import error_of, outcome, read, tokens_of


def saving(world: Durable, session: SessionActor) -> TurnRequest:
    """A turn that has finished on the device, and is on its way to the disk."""
    request = world.start(session, [1, 2, 3])
    while not world.disk.waiting:
        world.step()
    return request


def with_two_turns(world: Durable) -> SessionActor:
    session = world.session("a")
    for _ in range(2):
        saving(world, session)
        world.work()
    return session


def kept_by(world: Durable, session: SessionActor) -> list[int]:
    return world.disk.log_of(session.session_id)


def test_the_caller_is_told_the_end_when_the_turn_is_kept_and_not_before() -> None:
    """Acknowledged means kept; tokens that came before are a preview."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    early, log_early = request.output.end, len(session.state.log)
    world.work()

    assert (early, log_early) == (None, 0)
    assert tokens_of(request) == request.output.tokens
    assert kept_by(world, session) == list(session.state.log) == [1, 2, 3, *tokens_of(request)]
    assert session.state.position == len(session.state.log) - 1


def test_a_turn_that_cannot_be_kept_has_not_happened() -> None:
    """The log is as it was, the claim goes back, and the next turn is none the worse."""
    world = Durable.on()
    session = world.session("a")
    world.disk.is_full = True
    request = saving(world, session)
    world.work()
    failed = error_of(request)
    log, held = len(session.state.log), world.held_by(session)
    world.disk.is_full = False
    again = saving(world, session)
    world.work()

    assert isinstance(failed, StoreError)
    assert failed.reason == "full"
    assert (log, held) == (0, 0)
    assert tokens_of(again) == request.output.tokens
    assert kept_by(world, session) == list(session.state.log)


def test_a_second_turn_that_fails_leaves_the_first() -> None:
    """State, log and store are where the first turn left them."""
    world = Durable.on()
    session = world.session("a")
    saving(world, session)
    world.work()
    before = list(session.state.log), session.state.position
    world.disk.fail_next.append("failed")
    request = saving(world, session)
    world.work()

    assert isinstance(error_of(request), StoreError)
    assert (list(session.state.log), session.state.position) == before
    assert kept_by(world, session) == before[0]


def test_a_cancel_that_comes_while_a_turn_is_kept_comes_too_late() -> None:
    """The outcome was decided; the caller would have been told already, but for the disk."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    world.cancel(session, request)
    world.work()

    assert error_of(request) is None
    assert kept_by(world, session) == list(session.state.log)


def test_a_cancel_before_that_keeps_nothing() -> None:
    """Not even a name."""
    world = Durable.on()
    session = world.session("a")
    request = world.start(session, [1, 2, 3])
    world.cancel(session, request)
    world.rest()

    assert isinstance(error_of(request), RequestAborted)
    assert not world.disk.sessions


def test_an_interrupt_that_comes_while_a_turn_is_kept_cuts_it_after_that() -> None:
    """Both steps are durable, and the interrupt is answered when the second is."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    read(request)
    reply = world.interrupt(session, 1, request)
    world.work(2)
    told, early = error_of(request), reply.is_settled
    world.work()

    assert (told, early) == (None, False)
    assert outcome(reply) == 1
    assert kept_by(world, session) == list(session.state.log) == [1, 2, 3, request.output.tokens[0]]


def test_a_late_interrupt_that_cannot_be_kept_cuts_nothing() -> None:
    """Its caller is told so, and may try again."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    world.work()
    read(request)
    before = list(session.state.log)
    world.disk.fail_next.append("failed")
    refused = world.interrupt(session, 1)
    world.work()
    unchanged = list(session.state.log)
    taken = world.interrupt(session, 1)
    world.work()

    assert isinstance(outcome(refused), StoreError)
    assert unchanged == before
    assert outcome(taken) == 1
    assert kept_by(world, session) == list(session.state.log) == before[:4]


def test_a_turn_that_comes_while_the_log_is_cut_waits_for_that() -> None:
    """It must not start from a log that is about to go."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    world.work()
    read(request)
    world.interrupt(session, 0)
    following = world.start(session, [9])
    early = following.output.admitted_at
    world.work()
    world.rest()

    assert early is None
    assert list(session.state.log) == [1, 2, 3, 9, *tokens_of(following)]
    assert kept_by(world, session) == list(session.state.log)


def test_a_turn_that_waits_for_a_cut_can_be_cancelled() -> None:
    """It never ran, and nothing of it is anywhere."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    world.work()
    read(request)
    world.interrupt(session, 0)
    following = world.start(session, [9])
    world.cancel(session, following)
    world.rest()

    assert isinstance(error_of(following), RequestAborted)
    assert kept_by(world, session) == list(session.state.log) == [1, 2, 3]
    assert world.core.door.queued_reqs == 0


def test_a_second_turn_finds_the_session_busy_while_the_first_is_kept() -> None:
    """Or waits, if it was told to."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    refused = world.start(session, [7])
    waiting = world.start(session, [8], wait=True)
    world.work()
    world.rest()

    assert isinstance(error_of(refused), SessionBusy)
    assert error_of(request) is None
    assert kept_by(world, session)[7:] == [8, *tokens_of(waiting)]


def test_close_while_a_turn_is_kept_rolls_it_back_and_removes_the_session() -> None:
    """Whatever the disk holds by then goes with it."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    session.removed = Reply()
    world.close(session)
    early = session.removed.is_settled
    world.work()

    assert isinstance(error_of(request), SessionClosed)
    assert (early, session.removed.is_settled) == (False, True)
    assert settled(session.removed) is None
    assert not world.disk.sessions
    world.assert_all_free()


def test_a_session_that_dies_while_its_turn_is_kept_has_its_claim_reclaimed() -> None:
    """The caller is told that it is lost; the log on the disk is attachable."""
    world = Durable.on()
    session = world.session("a")
    saving(world, session)
    world.work()
    request = saving(world, session)
    world.core.dispatcher.kill(session.name, RuntimeError("planted"))
    world.run()
    world.work()

    assert isinstance(error_of(request), SessionLost)
    assert world.core.ledger.audit().at_rest
    assert list(world.wake("a").state.log) == kept_by(world, session)


def test_the_death_of_the_store_fails_the_turn_and_the_next_one_is_kept() -> None:
    """Nobody knows what is on the disk; so the log is put right before anything else."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    world.kill_store()
    failed = error_of(request)
    world.work()
    after_death = kept_by(world, session)
    again = saving(world, session)
    world.work()

    assert isinstance(failed, StoreError)
    assert after_death == []
    assert kept_by(world, session) == list(session.state.log)
    assert tokens_of(again) == request.output.tokens


def test_half_a_change_that_failed_is_taken_off_the_disk() -> None:
    """The facts were refused and the turn was not; its caller was told that it failed."""
    world = Durable.on()
    session = world.session("a")
    world.disk.fail_next.append("full")
    request = saving(world, session)
    world.work()

    assert isinstance(error_of(request), StoreError)
    assert kept_by(world, session) == list(session.state.log) == []


def test_a_cut_that_the_store_died_with_is_undone_on_the_disk() -> None:
    """Its job may be done after the death; what it has cut is written again."""
    world = Durable.on()
    session = with_two_turns(world)
    before = list(session.state.log)
    reply: Reply[int] = Reply()
    world.post(session, Rewind(0, reply))
    world.kill_store()
    world.work()

    assert isinstance(outcome(reply), StoreError)
    assert kept_by(world, session) == list(session.state.log) == before


def test_putting_a_refused_cut_right_never_takes_a_told_turn_off_the_disk() -> None:
    """Killed between two jobs of that, the process would find less than it has told."""
    world = Durable.on()
    session = with_two_turns(world)
    before = list(session.state.log)
    world.disk.fail_next.append("full")
    reply: Reply[int] = Reply()
    world.post(session, Rewind(1, reply))
    kept = [kept_by(world, session)]
    while world.disk.waiting:
        world.work(1)
        kept.append(kept_by(world, session))

    assert isinstance(outcome(reply), StoreError)
    assert len(kept) > 2
    assert all(log == before for log in kept)


def test_the_death_of_the_scheduler_does_not_concern_a_turn_that_is_being_kept() -> None:
    """It has let go of the turn already."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
    world.run()
    world.work()

    assert error_of(request) is None
    assert kept_by(world, session) == list(session.state.log)


@pytest.mark.parametrize("tokens", [[4], [4, 5, 6]])
def test_appended_tokens_are_kept_before_they_are_acknowledged(tokens: list[int]) -> None:
    """Computed or not: one token alone is only held back as pending."""
    world = Durable.on()
    session = world.session("a")
    request = world.start(session, tokens, kind="append")
    while not world.disk.waiting:
        world.step()
    early = request.output.end
    world.work()

    assert early is None
    assert error_of(request) is None
    assert kept_by(world, session) == tokens


def test_a_rewind_is_kept_before_it_is_acknowledged() -> None:
    """And refused whole, if it can't be."""
    world = Durable.on()
    session = world.session("a")
    for _ in range(2):
        saving(world, session)
        world.work()
    refused: Reply[int] = Reply()
    taken: Reply[int] = Reply()
    world.disk.fail_next.append("failed")
    world.post(session, Rewind(-1, refused))
    world.work()
    unchanged = list(session.state.log)
    world.post(session, Rewind(-1, taken))
    early = taken.is_settled
    world.work()

    assert isinstance(outcome(refused), StoreError)
    assert len(unchanged) == 14
    assert (early, outcome(taken)) == (False, 1)
    assert kept_by(world, session) == list(session.state.log) == unchanged[:7]


def test_marks_are_kept_and_go_with_the_log_they_stand_on() -> None:
    """A mark that came back beyond the log would name another history."""
    world = Durable.on()
    session = world.session("a")
    saving(world, session)
    world.work()
    saving(world, session)
    world.work()
    replies: list[Reply[int]] = [Reply() for _ in range(3)]
    world.post(session, SetMark("here", replies[0]))
    world.work()
    with_mark = dict(world.disk.sessions["a"].facts)
    world.post(session, Rewind(1, replies[1]))
    world.work()
    without = dict(world.disk.sessions["a"].facts)
    world.post(session, SetMark("there", replies[2]))
    world.post(session, DropMark("there", Reply()))
    world.work()

    assert with_mark["marks"] == {"here": [14, 2, 13]}
    assert without["marks"] == {}
    assert world.disk.sessions["a"].facts["marks"] == {}
    assert all(reply.is_settled for reply in replies)


def test_a_turn_that_ends_while_a_mark_is_kept_is_kept_after_it() -> None:
    """One change at a time; and an interrupt of what runs waits for none."""
    world = Durable.on()
    session = world.session("a")
    saving(world, session)
    world.work()
    request = world.start(session, [9])
    marked: Reply[int] = Reply()
    world.post(session, SetMark("here", marked))
    interrupted = world.interrupt(session, None)
    world.step()
    early = request.output.end, marked.is_settled
    world.work()

    assert early == (None, False)
    assert outcome(marked) == 1
    assert error_of(request) is None
    assert outcome(interrupted) == len(tokens_of(request))
    assert kept_by(world, session) == list(session.state.log)
    assert list(session.state.log)[7:] == [9, *tokens_of(request)]


def test_a_fork_writes_the_history_that_it_inherits_with_its_first_turn() -> None:
    """It is another session, with a log of its own; the parent's stays as it is."""
    world = Durable.on()
    session = world.session("a")
    saving(world, session)
    world.work()
    fork = world.session("b", parent=session)
    world.run()
    before = "b" in world.disk.sessions
    request = world.start(fork, [5])
    while not world.disk.waiting:
        world.step()
    world.work()

    assert not before
    assert kept_by(world, fork) == [*kept_by(world, session), 5, *tokens_of(request)]
    assert len(world.disk.sessions["b"].turns) == 2


def test_a_one_shot_is_not_kept() -> None:
    """Nobody could ask for it again."""
    world = Durable.on()
    session = world.session("one-shot:1", is_one_shot=True)
    request = world.start(session, [1, 2])
    world.finish(request)

    assert error_of(request) is None
    assert not world.disk.jobs


def test_a_turn_costs_the_store_one_job() -> None:
    """The first one in a session another: what is to be known of it."""
    world = Durable.on()
    session = world.session("a")
    kinds: list[list[type]] = []
    for _ in range(2):
        world.disk.jobs.clear()
        saving(world, session)
        world.work()
        kinds.append([type(job) for job in world.disk.jobs])

    assert kinds == [[KeepFacts, KeepTurn], [KeepTurn]]


def test_a_cut_below_the_last_state_is_one_job() -> None:
    """The store drops its snapshot with it."""
    world = Durable.on()
    session = world.session("a")
    request = saving(world, session)
    world.work()
    read(request)
    world.disk.jobs.clear()
    world.interrupt(session, 0)
    world.work()

    assert world.disk.jobs == [CutLog("a", 3)]
