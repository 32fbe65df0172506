"""What arrives after a decision changes nothing, and what nobody waits for any more is let go."""

import pytest

from kernel import SamplingParams
from kernel.errors import EngineFault
from kernel.ids import SessionId
from kernel.messages import CancelTurn, StartTurn, TurnFinished
from kernel.requests.output_buffer import TurnEnd
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.kernel.turns import make_request

ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1)


@pytest.fixture
def world() -> Loopless:
    return Loopless.open()


def test_the_claim_of_a_cancelled_turn_is_not_the_next_turns(world: Loopless) -> None:
    """It is in the mail when the session cancels its turn and starts another."""
    session = world.session()
    first = world.start(session, [1], ONE_TOKEN)
    world.device.complete()
    while not any(isinstance(mail, TurnFinished) for mail in session.mailbox):
        world.core.dispatcher.run(1)
    second = make_request("next", [2], ONE_TOKEN)
    world.core.door.enter(second.id, 1)
    session.handle(CancelTurn(first.id, "abort"))
    session.handle(StartTurn(second))
    world.run()

    is_open = second.output.end is None
    world.finish(second)

    assert is_open
    assert second.output.end == TurnEnd("length", 1)
    assert session.state.log.tolist() == [2, *tokens_of(second)]


def test_a_closed_session_leaves_no_turn_at_the_scheduler(world: Loopless) -> None:
    """Not only its own slots are free: nothing goes on computing for nobody."""
    session = world.session()
    world.start(session, [1, 2], SamplingParams(temperature=0, max_tokens=100, ignore_eos=True))
    world.step(2)
    world.close(session)
    world.step()
    scheduler = world.core.scheduler
    assert scheduler is not None

    assert len(scheduler.roster) == 0
    assert world.device.waiting == ()
    world.assert_all_free()


def test_a_checkpoint_goes_when_the_next_turn_begins(world: Loopless) -> None:
    """It is kept for a late interrupt, which would now be too late."""
    session = world.session()
    held = [0]
    for token in range(3):
        request = world.start(session, [token + 1])
        held.append(world.held_by(session))
        world.finish(request)
        held.append(world.held_by(session))

    assert held == [0, 0, 1, 1, 2, 1, 2]


def test_a_step_that_lands_without_a_scheduler_is_landed_all_the_same(world: Loopless) -> None:
    """Supervision does it: a lease ends by landing, whoever is left."""
    world.start(world.session(), [1, 2])
    scheduler = world.core.scheduler
    assert scheduler is not None
    world.core.dispatcher.retire(scheduler)
    world.step()

    assert world.core.ledger.view.leases() == ()
    assert world.core.ledger.view.free_slots == world.core.limits.num_slots


def test_a_fork_starts_from_its_parents_state(world: Loopless) -> None:
    """Its first turn names the state by holder and version, and absorbs only what is new."""
    parent = world.session()
    first = world.start(parent, [1, 2, 3])
    world.finish(first)
    child = world.core.open_session(
        SessionId("child"), is_one_shot=False, idle_timeout_s=None, parent=parent
    )
    turn = world.start(child, [4])
    world.finish(turn)

    assert turn.output.cached_tokens == parent.state.position
    assert child.state.log.tolist() == [*parent.state.log, 4, *tokens_of(turn)]


def test_the_queued_turn_of_a_session_that_died_is_dropped_at_once() -> None:
    """Not admitted first, to be found out when its step has landed."""
    world = Loopless.open(max_num_seqs=1)
    running = world.start(world.session("runs"), [1])
    dead = world.session("dies")
    queued = world.start(dead, [2])
    scheduler = world.core.scheduler
    assert scheduler is not None
    before = [turn.id for turn in scheduler.roster]
    world.core.dispatcher.kill(dead.name, RuntimeError("planted"))
    world.run()

    assert before == [running.id, queued.id]
    assert [turn.id for turn in scheduler.roster] == [running.id]


def test_a_row_that_raises_ends_its_own_turn(world: Loopless) -> None:
    """The other rows of the step, and the scheduler, know nothing of it."""
    bad, good = (world.start(world.session(name), [1]) for name in ("bad", "good"))
    world.step()
    bad.output.tokens = None  # type: ignore[assignment]  # whatever makes its judging raise
    world.finish(good)

    assert isinstance(error_of(bad), EngineFault)
    assert len(tokens_of(good)) == 4
    assert world.core.dispatcher.deaths == 0
