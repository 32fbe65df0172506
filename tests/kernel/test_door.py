"""The door: counts what waits, so that a full engine refuses before a message is sent."""

import pytest

from kernel.actors.door import Door
from kernel.errors import EngineClosed, EngineFault, QueueFull
from kernel.ids import TurnId
from kernel.messages import CancelTurn
from tests.kernel.loopless import Loopless

A, B, C = TurnId("a"), TurnId("b"), TurnId("c")


def test_a_request_over_the_bound_is_refused_with_numbers() -> None:
    """A caller can tell what is full, and how full."""
    door = Door(max_reqs=2, max_tokens=100)
    door.enter(A, 1)
    door.enter(B, 1)

    with pytest.raises(QueueFull) as caught:
        door.enter(C, 1)
    assert (caught.value.what, caught.value.queued, caught.value.limit) == ("requests", 2, 2)
    assert (door.queued_reqs, door.queued_tokens) == (2, 2)


def test_tokens_over_the_bound_are_refused_and_not_counted() -> None:
    """Long prompts fill a queue as well as many."""
    door = Door(max_reqs=10, max_tokens=10)
    door.enter(A, 6)

    with pytest.raises(QueueFull) as caught:
        door.enter(B, 5)
    assert (caught.value.what, caught.value.queued, caught.value.limit) == ("tokens", 6, 10)
    assert (door.queued_reqs, door.queued_tokens) == (1, 6)
    door.enter(B, 4)


def test_a_prompt_longer_than_the_bound_enters_an_empty_queue() -> None:
    """Refused then it would be refused for ever, by an engine that can serve it."""
    door = Door(max_reqs=10, max_tokens=10)
    door.enter(A, 50)

    assert door.queued_tokens == 50
    with pytest.raises(QueueFull):
        door.enter(B, 1)


def test_leaving_is_idempotent() -> None:
    """A session and the scheduler may both let go of a turn."""
    door = Door(max_reqs=1, max_tokens=10)
    door.enter(A, 4)
    door.leave(A)
    door.leave(A)
    door.leave(B)

    assert (door.queued_reqs, door.queued_tokens) == (0, 0)


def test_the_first_reason_for_closing_stands() -> None:
    """A lost device stays the reason, also when the engine is closed after it."""
    door = Door(max_reqs=1, max_tokens=10)
    fault = EngineFault(actor="gpu-pool", why="planted")
    door.fail(fault)
    door.close(EngineClosed())

    with pytest.raises(EngineFault) as caught:
        door.enter(A, 1)
    assert caught.value is fault
    with pytest.raises(EngineFault):
        door.check_working()


def test_a_closed_door_lets_what_is_inside_run() -> None:
    """Draining: no new work, and the open turns end as they would have."""
    door = Door(max_reqs=1, max_tokens=10)
    door.close()
    door.check_working()

    with pytest.raises(EngineClosed):
        door.check_open()


def test_a_forgotten_turn_counts_until_the_scheduler_has_let_go() -> None:
    """Otherwise a flood of submits and cancels would fill the scheduler's mail without a bound."""
    world = Loopless.open(max_num_seqs=1, max_num_queued_reqs=2)
    first = world.start(world.session("first"), [1])
    session = world.session("second")
    request = world.start(session, [2])
    queued = world.core.door.queued_reqs
    dispatcher = world.core.dispatcher
    # The session forgets the turn in its handler; the scheduler's message is still to be handled.
    session.handle(CancelTurn(request.id, "abort"))
    forgotten = (session.active, world.core.door.queued_reqs)
    world.run()

    assert queued == 1, "the first turn was admitted and is not counted any more"
    assert forgotten == (None, 1)
    assert world.core.door.queued_reqs == 0
    assert dispatcher.is_quiet
    world.finish(first)


def test_a_turn_counts_until_it_is_admitted_and_not_again_after_a_preemption() -> None:
    """The bound is on turns that have not begun."""
    world = Loopless.open(max_num_seqs=1)
    requests = [world.start(world.session(name), [1, 2]) for name in "abc"]
    counts = [world.core.door.queued_reqs]
    for request in requests:
        world.finish(request)
        counts.append(world.core.door.queued_reqs)

    assert counts == [2, 1, 0, 0]
    assert world.core.door.queued_tokens == 0
