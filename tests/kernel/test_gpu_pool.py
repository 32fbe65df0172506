"""The GPU pool: starts steps, reports their ends once, owns nothing."""

from adapters.fake_device import FakeDevice
from kernel.errors import EngineFault, StepError
from kernel.ids import GPU_POOL, SCHEDULER
from kernel.messages import LaunchStep
from kernel.step import CopyOf, DeviceStep
from ownership import DEVICE
from tests.kernel.loopless import Loopless, error_of, tokens_of


def rows_of(step: DeviceStep) -> list[tuple[int, int, list[int]]]:
    return [(int(str(row.slot)), row.position, list(row.tokens)) for row in step.rows]


def test_a_step_carries_where_each_row_reads_and_writes() -> None:
    """The scheduler plans by turn; the pool adds slots, positions and pages from the ledger."""
    world = Loopless.open()
    world.start(world.session("a"), [1, 2, 3, 4, 5])
    (step,) = world.device.waiting
    (row,) = step.rows

    assert (row.initial, row.position, list(row.tokens)) == ("zeros", 0, [1, 2, 3, 4, 5])
    assert len(row.pages) == 2
    assert row.tail_copy is None
    assert row.sampling is not None


def test_a_warm_row_is_told_to_copy_its_base() -> None:
    """Slot and tail; the full pages are shared, and nothing is written into the base."""
    world = Loopless.open()
    session = world.session("a")
    world.finish(world.start(session, [1, 2, 3]))
    world.start(session, [4])
    (step,) = world.device.waiting
    (row,) = step.rows

    assert isinstance(row.initial, CopyOf)
    assert row.initial.slot != row.slot
    assert row.tail_copy is not None
    assert row.tail_copy.target == row.pages[1]
    assert row.position == 6


def test_only_the_first_step_of_a_turn_copies() -> None:
    """Then the slot holds the row's own state."""
    world = Loopless.open()
    session = world.session("a")
    world.finish(world.start(session, [1, 2, 3]))
    world.start(session, [4])
    world.step()
    (row,) = world.device.waiting[0].rows

    assert (row.initial, row.tail_copy) == ("kept", None)


def test_given_back_memory_is_named_to_the_device_once() -> None:
    """A checking device poisons it, so that a late read shows."""
    world = Loopless.open()
    session = world.session("a")
    world.finish(world.start(session, [1, 2, 3]))
    world.close(session)
    world.start(world.session("b"), [1])
    first = world.device.waiting[0]
    world.step()
    second = world.device.waiting[0]

    assert len(first.freed_slots) == 1
    assert len(first.freed_pages) == 2
    assert not second.freed_slots


def test_claims_are_with_the_device_until_the_completion_was_handled() -> None:
    """However the turn ended meanwhile."""
    world = Loopless.open()
    session = world.session("a")
    request = world.start(session, [1, 2])
    world.cancel(session, request)
    on_device = world.core.ledger.view.held_by(DEVICE)
    free = world.free
    world.step()

    assert request.output.end is not None
    assert [claim.turn for claim in on_device] == [request.id]
    assert free[0] == world.core.limits.num_slots - 1
    world.close(session)
    world.assert_all_free()


def test_a_failed_step_fails_its_turns_alone() -> None:
    """Sessions are where they were before the turn, and take the next one."""
    world = Loopless.open()
    session = world.session("a")
    first = world.start(session, [1, 2])
    world.finish(first)
    failed = world.start(session, [3])
    world.device.fail(why="out of memory")
    world.run()
    end = failed.output.end
    assert end is not None
    assert isinstance(end.error, StepError)
    assert "out of memory" in end.error.why
    again = world.start(session, [3])
    world.finish(again)
    cold = world.start(world.session("cold"), [1, 2, *tokens_of(first), 3])
    world.finish(cold)

    assert tokens_of(again) == tokens_of(cold)
    assert world.core.dispatcher.deaths == 0


def test_a_step_past_its_deadline_is_a_death_of_the_pool() -> None:
    """Said as one: the turn's error names the actor and the limit."""
    world = Loopless.open(step_timeout_s=5.0)
    request = world.start(world.session("a"), [1, 2])
    world.advance(4.9)
    in_time = request.output.end
    world.advance(0.2)

    end = request.output.end
    assert in_time is None
    assert end is not None
    assert isinstance(end.error, EngineFault)
    assert end.error.actor == GPU_POOL
    assert "took longer than 5 s" in end.error.why
    assert world.core.dispatcher.incarnation_of(GPU_POOL) == 2


def test_a_completed_step_has_no_deadline_left() -> None:
    """An alarm for a step that is over is nobody's death."""
    world = Loopless.open(step_timeout_s=5.0)
    world.finish(world.start(world.session("a"), [1, 2]))
    world.advance(100)

    assert world.core.dispatcher.deaths == 0


def test_a_step_that_no_scheduler_waits_for_is_landed_by_the_pools_owner() -> None:
    """The scheduler died with the step in flight: its successor rolls the rows back."""
    world = Loopless.open()
    session = world.session("a")
    request = world.start(session, [1, 2])
    world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
    world.run()
    ended = request.output.end
    world.step()
    again = world.start(session, [3])
    world.finish(again)
    world.close(session)

    assert isinstance(ended and ended.error, EngineFault)
    assert len(tokens_of(again)) == 4
    world.assert_all_free()


def test_a_launch_that_died_with_the_pool_lands_as_failed() -> None:
    """Killed between two messages, with a step in its mail that no device has seen."""
    world = Loopless.open()
    dispatcher = world.core.dispatcher
    session = world.session("a")
    request = world.start(session, [1, 2])
    world.device.complete()
    pool = world.core.recovery.pool
    assert pool is not None
    while not any(isinstance(mail, LaunchStep) for mail in pool.mailbox):
        dispatcher.run(1)
    before = len(world.device.waiting)
    dispatcher.kill(GPU_POOL, RuntimeError("planted"))
    world.run()

    assert before == 0
    assert isinstance(error_of(request), StepError)
    world.close(session)
    assert world.core.ledger.audit().at_rest


def test_several_turns_share_a_step_in_order_of_rank() -> None:
    """Continuous batching: a turn joins at the next step, whoever runs already."""
    world = Loopless.open(device=FakeDevice(mode="manual", eos_token_ids=()))
    world.start(world.session("a"), [1])
    world.start(world.session("b"), [2])
    world.start(world.session("c"), [3])
    alone = rows_of(world.device.waiting[0])
    world.step()
    together = rows_of(world.device.waiting[0])

    assert [tokens for _, _, tokens in alone] == [[1]]
    assert [tokens for _, _, tokens in together][1:] == [[2], [3]]
    assert len({slot for slot, _, _ in together}) == 3
