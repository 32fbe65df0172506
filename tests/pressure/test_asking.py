"""What is asked for, and of whom, when there are two places and a turn is short in one of them."""

import pytest

from kernel.actors.reply import Reply
from kernel.errors import EngineFault
from kernel.ids import GPU_POOL
from kernel.messages import Rested, SetMark
from kernel.scheduling.scheduler import Scheduler
from ownership import Place
from tests.kernel.loopless import Loopless, error_of
from tests.pressure.worlds import (
    assert_all_free,
    drain,
    greedy,
    name_of,
    open_world,
    places_of,
    rest,
    talk,
    words,
)

PER_STATE = 8 + 16 * 32
"""Bytes of host memory for one slot and sixteen pages."""


def scheduler_of(world: Loopless) -> Scheduler:
    assert world.core.scheduler is not None
    return world.core.scheduler


def test_a_state_in_host_memory_is_not_asked_for_room_on_the_device() -> None:
    """Two juniors have yet to copy their bases; one of these is in host memory, and stays."""
    world = open_world(
        num_slots=6, num_pages=24, max_num_batched_tokens=4, scheduling_policy="priority"
    )
    scheduler = scheduler_of(world)
    first = rest(world, "a")
    assert scheduler.parking.park(name_of(first))
    world.post(scheduler, Rested())
    world.copy()
    second = rest(world, "b")
    name = name_of(first)

    long = world.start(world.session("c", is_one_shot=True), words(40), greedy(2))
    of_second = world.start(second, words(2), greedy(2))
    of_first = world.start(first, words(2), greedy(2))
    world.step()
    assert [turn.has_landed for turn in scheduler.roster.running] == [True, False, False]
    senior = world.start(world.session("d", is_one_shot=True), words(89), greedy(2), priority=-100)
    world.step()
    assert name_of(first) == name, "a state that has moved twice would have another name"
    for request in (senior, of_first, of_second, long):
        world.finish(request)
        assert error_of(request) is None

    assert of_first.output.recomputed_tokens == 0
    for session in (first, second):
        talk(world, session, words(2), 2)
        world.close(session)
    assert_all_free(world)


def test_a_copy_that_hangs_takes_no_room_on_the_device_beyond_the_state_that_it_pins() -> None:
    """Its own pages are in host memory: a turn that fits beside the state is not failed."""
    world = open_world(num_slots=4, num_pages=16, step_timeout_s=5.0)
    rest(world, "a", 21)
    world.device.hang_next_transfer()
    world.start(world.session("b", is_one_shot=True), words(46), greedy(1))
    world.advance(6.0)
    assert world.core.ledger.view.quarantined_leases == 1
    rest(world, "c")
    assert world.free[1] == 7
    turn = world.start(world.session("d", is_one_shot=True), words(34), greedy(1))
    assert turn.output.end is None
    world.finish(turn)
    assert error_of(turn) is None


def test_what_drains_behind_a_hanging_copy_is_lost_as_well_as_what_rests_there() -> None:
    """Both are pinned, one of them by name no more: a turn that fits beside one alone fails."""
    world = open_world(num_slots=4, num_pages=16, step_timeout_s=5.0)
    resting, closed = rest(world, "a"), rest(world, "b", 21)
    world.device.hang_next_transfer()
    for session in (resting, closed):
        assert scheduler_of(world).parking.park(name_of(session))
    world.post(scheduler_of(world), Rested())
    world.advance(6.0)
    world.close(closed)
    assert world.free[1] == 16 - 3 - 6
    turn = world.start(world.session("c", is_one_shot=True), words(30), greedy(1))
    assert isinstance(error_of(turn), EngineFault)
    fits = world.start(world.session("d", is_one_shot=True), words(27), greedy(1))
    world.finish(fits)
    assert error_of(fits) is None


def test_a_turn_that_can_not_slide_beside_a_hanging_copy_fails() -> None:
    """It would need its own claim and the next one; for ever, and everybody behind it with it."""
    world = open_world(num_slots=4, num_pages=16, step_timeout_s=5.0)
    pinned, endless = rest(world, "a", 21), world.session("b")
    endless.state.slides = True
    world.finish(world.start(endless, words(4), greedy(1)))
    world.device.hang_next_transfer()
    assert scheduler_of(world).parking.park(name_of(pinned))
    world.post(scheduler_of(world), Rested())
    world.advance(6.0)
    sliding = world.start(endless, words(20), greedy(30))
    behind = world.start(world.session("c", is_one_shot=True), words(4), greedy(2))
    while world.device.waiting:
        world.step()
    assert isinstance(error_of(sliding), EngineFault)
    assert error_of(behind) is None


def test_a_preempted_turn_whose_copy_is_never_launched_makes_its_room_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else would wake the scheduler: no step runs, and nobody has mail for it."""
    world = open_world(num_slots=1, num_pages=16, scheduling_policy="priority")
    junior = world.start(world.session("a", is_one_shot=True), words(6), greedy(6), priority=5)
    world.step(2)
    post = world.core.dispatcher.post

    def lose(address: object, message: object, sender: object) -> object:
        if getattr(address, "name", None) == GPU_POOL and "Transfer" in type(message).__name__:
            return message
        return post(address, message, sender)  # type: ignore[arg-type, type-var]  # as it came

    monkeypatch.setattr(world.core.dispatcher, "post", lose)
    senior = world.start(world.session("b", is_one_shot=True), words(6), greedy(2), priority=-100)
    world.step()
    assert world.device.waiting
    for request in (senior, junior):
        world.finish(request)
        assert error_of(request) is None
    assert_all_free(world)


def test_host_memory_that_is_full_of_what_nobody_uses_makes_room() -> None:
    """What was spared, for a turn that was cancelled, goes when the next copy finds no room."""
    world = open_world(num_slots=1, num_pages=16, max_num_seqs=1, host_memory_bytes=2 * PER_STATE)
    sessions = [rest(world, "a"), rest(world, "b")]
    spared = world.start(sessions[0], words(2), greedy(2))
    world.copy()
    world.cancel(sessions[0], spared)
    drain(world)
    assert [places_of(world, session) for session in sessions] == [[Place.HOST]] * 2
    assert world.core.ledger.view.free(Place.HOST)[0] == 0

    sessions += [rest(world, name) for name in "cdef"]
    assert places_of(world, sessions[-2]) == [Place.HOST]
    assert places_of(world, sessions[0]) == []
    for session in sessions:
        world.close(session)
    assert_all_free(world)


def test_a_session_can_be_asked_for_all_of_its_states_at_once() -> None:
    """However short the queue is meant to be: its marks are no requests."""
    world = open_world(num_slots=64, num_pages=256, max_num_queued_reqs=1, host_memory_bytes=0)
    session = world.session("a")
    for number in range(40):
        world.finish(world.start(session, words(2, number), greedy(2)))
        world.post(session, SetMark(f"mark {number}", Reply()))
    assert world.held_by(session) == 40
    whole = world.start(world.session("b", is_one_shot=True), words(1020), greedy(2))
    world.finish(whole)
    assert error_of(whole) is None
    assert world.held_by(session) == 0
    world.close(session)
    assert_all_free(world)
