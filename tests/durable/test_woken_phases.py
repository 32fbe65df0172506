"""What is pending when a session is woken is absorbed and committed first, as everywhere."""

from typing import Any

import pytest

from kernel.messages import Hibernate
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from tests.durable.memory_store import MemoryStore
from tests.durable.worlds import Durable
from tests.kernel.loopless import read, tokens_of

PAGE = 4


def with_snapshot(world: Durable, later_turns: int) -> SessionActor:
    """A session with a snapshot, and turns that came after it; then the process is gone."""
    session = world.session("a")
    world.start(session, [1, 2, 3])
    world.rest()
    world.post(session, Hibernate())
    world.rest()
    session = world.wake("a")
    for number in range(later_turns):
        world.start(session, [10 + number] * 3)
        world.rest()
    return session


def reopened(world: Durable, **config: Any) -> tuple[Durable, SessionActor]:
    again = Durable.on(world.crash(), **config)
    return again, again.wake("a")


def until_absorbed(world: Durable, session: SessionActor, request: TurnRequest) -> None:
    """Let steps, transfers and jobs go on until the turn has begun to say something."""
    while not request.output.tokens and request.output.end is None:
        world.run()
        if world.disk.waiting:
            world.disk.work()
        elif world.device.waiting:
            world.device.complete()
        elif world.device.waiting_transfers:
            world.device.complete_transfer()
    assert request.output.end is None
    assert session.active is not None


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_turns_that_are_cancelled_after_waking_do_not_compute_the_pending_part_again(
    has_snapshot: bool,
) -> None:
    """The first of them commits it; the tokens are those of a session that stayed in memory."""
    old = Durable.on()
    log = list(with_snapshot(old, later_turns=2).state.log)
    disk = old.crash()
    if not has_snapshot:
        disk.lose_snapshot("a")
    world, session = reopened(old)
    computed: list[int] = []
    for _ in range(3):
        before = world.core.counters.absorbed_tokens
        request = world.start(session, [7])
        until_absorbed(world, session, request)
        world.cancel(session, request)
        world.rest()
        computed.append(world.core.counters.absorbed_tokens - before)
    last = world.start(session, [7])
    world.rest()
    read(last)
    alone = Durable.on(MemoryStore())
    cold = alone.session("b")
    whole = alone.start(cold, [*log, 7])
    alone.rest()
    read(whole)

    pending = len(log) - (6 if has_snapshot else 0)
    assert pending > PAGE
    assert computed[0] >= pending
    assert max(computed[1:]) < PAGE
    assert last.output.cached_tokens == len(log) - 1
    assert tokens_of(last) == tokens_of(whole)


def test_a_short_pending_part_has_no_phase_of_its_own() -> None:
    """A page or less costs less than a commit in between."""
    old = Durable.on()
    with_snapshot(old, later_turns=0)
    world, session = reopened(old)
    request = world.start(session, [7])
    until_absorbed(world, session, request)

    assert session.state.state is None


def test_a_pool_without_room_for_both_has_no_phase_either() -> None:
    """The commit and the turn would not fit side by side; the turn runs all the same."""
    old = Durable.on()
    with_snapshot(old, later_turns=2)
    world, session = reopened(old, num_slots=1)
    request = world.start(session, [7])
    until_absorbed(world, session, request)
    no_state = session.state.state is None
    world.rest()

    assert no_state
    assert request.output.end is not None
    assert request.output.end.error is None


def test_an_interrupt_in_the_phase_keeps_what_it_has_absorbed() -> None:
    """The turn ends with its input, and the next one begins where the phase came to."""
    old = Durable.on()
    log = list(with_snapshot(old, later_turns=2).state.log)
    world, session = reopened(old)
    request = world.start(session, [7])
    while not world.device.waiting:
        world.run()
        world.disk.work()
    world.interrupt(session, None, request)
    world.rest()
    again = world.start(session, [8])
    world.rest()

    assert request.output.end is not None
    assert request.output.end.reason == "interrupt"
    assert list(session.state.log)[: len(log) + 1] == [*log, 7]
    assert again.output.cached_tokens >= len(log) - 1
