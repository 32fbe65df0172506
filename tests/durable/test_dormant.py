"""Sessions that are only in the store: woken whole, by whoever wants them, and left to it again."""

from collections.abc import Mapping
from typing import Any

import pytest

from kernel.actors.reply import Reply
from kernel.errors import SessionExists, SessionNotFound, StoreError
from kernel.ids import SCHEDULER, STORE, SessionId
from kernel.messages import CloseSession, ExportSession, GiveUp, Hibernate, Rewind, SetMark
from kernel.session_store import StoredTurn
from kernel.sessions.kept_states import NO_STATE
from kernel.sessions.session import SessionActor
from ownership import BaseName
from tests.durable.memory_store import MemoryStore
from tests.durable.worlds import Durable, settled
from tests.kernel.loopless import error_of, read, tokens_of
from tests.kernel.toys import Recorder


def with_turns(world: Durable, name: str = "a", turns: int = 2) -> SessionActor:
    session = world.session(name)
    for number in range(turns):
        world.start(session, [10 * number + 1, 10 * number + 2])
        world.rest()
    return session


def next_turn(world: Durable, session: SessionActor) -> list[int]:
    """The tokens of one more turn, and how many positions it did not compute."""
    request = world.start(session, [77])
    world.rest()
    read(request)
    return [*tokens_of(request), request.output.cached_tokens]


def hibernate(world: Durable, session: SessionActor) -> None:
    world.post(session, Hibernate())
    world.rest()


def facts(session: SessionActor) -> tuple[Any, ...]:
    state = session.state
    return list(state.log), list(state.turn_starts), dict(state.states.marks), state.slides


def test_a_dormant_session_has_no_actor_and_holds_nothing() -> None:
    """It costs no task, no slot and no memory."""
    world = Durable.on()
    session = with_turns(world)
    hibernate(world, session)

    assert not world.core.sessions
    assert world.core.dispatcher.actor(session.name) is None
    assert session.seat.actor is None
    world.assert_all_free()


def test_a_session_that_is_woken_goes_on_with_its_state() -> None:
    """The snapshot saves what the log would cost, and the tokens are those of one that stayed."""
    world, other = Durable.on(), Durable.on()
    stayed = with_turns(other)
    hibernate(world, with_turns(world))
    woken = world.wake("a")

    expected, got = next_turn(other, stayed), next_turn(world, woken)

    assert got == expected
    assert facts(woken) == facts(stayed)
    assert got[-1] == 11


def test_after_a_crash_every_session_is_at_its_last_acknowledged_turn() -> None:
    """And goes on from its log as if nothing had been."""
    world, other = Durable.on(), Durable.on()
    stayed, crashed = with_turns(other), with_turns(world)
    log = list(crashed.state.log)
    reborn = Durable.on(world.crash())
    woken = reborn.wake("a")

    assert list(woken.state.log) == log
    assert next_turn(reborn, woken)[:-1] == next_turn(other, stayed)[:-1]


@pytest.mark.parametrize("fault", ["damaged", "lost"])
def test_a_snapshot_that_cannot_be_read_falls_back_to_the_log_and_says_so(fault: str) -> None:
    """Content is never lost while the log is there."""
    probe = Recorder()
    world, other = Durable.on(probe=probe), Durable.on()
    hibernate(world, with_turns(world))
    if fault == "damaged":
        world.disk.damage_snapshot("a")
    else:
        world.disk.lose_snapshot("a")
    stayed = with_turns(other)
    woken = world.wake("a")
    got = next_turn(world, woken)

    assert got == [*next_turn(other, stayed)[:-1], 0]
    lost: list[Mapping[str, object]] = probe.named("session.state_lost")
    assert [one["reason"] for one in lost] == (["damaged"] if fault == "damaged" else [])


def test_a_log_that_cannot_be_read_is_an_error_and_not_a_new_session() -> None:
    """Said by name; and somebody else's session is none the worse."""
    world = Durable.on()
    hibernate(world, with_turns(world))
    world.disk.damaged_logs.add("a")
    stored = world.core.stored
    assert stored is not None
    reply = stored.wake(SessionId("a"))
    world.rest()

    error = settled(reply)
    assert isinstance(error, StoreError)
    assert error.reason == "damaged"
    assert not world.core.sessions


@pytest.mark.parametrize(
    "turns",
    [
        [StoredTurn(3, 1, MemoryStore.array(1, 2), "generate")],
        [StoredTurn(0, 1, MemoryStore.array(1, 2), "generate", {"chat": {"messages": 3}})],
    ],
)
def test_a_record_that_makes_no_sense_is_damaged(turns: list[StoredTurn]) -> None:
    """Turns that don't join, or messages that are none."""
    world = Durable.on()
    hibernate(world, with_turns(world))
    world.disk.sessions["a"].turns = turns
    stored = world.core.stored
    assert stored is not None
    reply = stored.wake(SessionId("a"))
    world.rest()

    assert isinstance(settled(reply), StoreError)
    assert not world.core.sessions


def test_however_many_wake_a_session_it_is_read_once() -> None:
    """And all of them get the one actor."""
    world = Durable.on()
    hibernate(world, with_turns(world))
    stored = world.core.stored
    assert stored is not None
    world.disk.jobs.clear()
    replies = [stored.wake(SessionId("a")) for _ in range(3)]
    world.rest()

    assert len(world.disk.jobs) == 1
    assert len({id(settled(reply)) for reply in replies}) == 1


def test_a_session_nobody_has_is_not_found() -> None:
    """In the store as elsewhere."""
    world = Durable.on()
    stored = world.core.stored
    assert stored is not None
    reply = stored.wake(SessionId("nobody"))
    world.rest()

    assert isinstance(settled(reply), SessionNotFound)


def test_a_dormant_session_keeps_its_name() -> None:
    """A second one of that name would overwrite it."""
    world = Durable.on()
    hibernate(world, with_turns(world))

    with pytest.raises(SessionExists):
        world.session("a")


def test_who_is_in_use_does_not_go() -> None:
    """Neither with a turn, nor with mail, nor with a change on its way."""
    world = Durable.on()
    session = with_turns(world)
    request = world.start(session, [5])
    world.post(session, Hibernate())
    world.rest()
    read(request)
    world.interrupt(session, 0)
    world.post(session, Hibernate())
    world.rest()

    assert world.core.sessions == {"a": session}
    assert error_of(request) is None


def test_a_turn_that_comes_while_a_state_is_read_out_keeps_its_session_awake() -> None:
    """It is served at once, and nothing is closed under it."""
    world = Durable.on()
    session = with_turns(world)
    world.post(session, Hibernate())
    assert world.device.waiting_transfers
    request = world.start(session, [5])
    world.rest()

    assert error_of(request) is None
    assert world.core.sessions == {"a": session}


def test_a_close_that_comes_while_a_state_is_read_out_is_a_close() -> None:
    """The session is gone from memory and disk."""
    world = Durable.on()
    session = with_turns(world)
    world.post(session, Hibernate())
    world.post(session, CloseSession())
    world.rest()

    assert not world.disk.sessions
    world.assert_all_free()


def test_a_state_that_cannot_be_read_out_does_not_keep_its_session_in_memory() -> None:
    """The log is whole; the state is computed from it again."""
    world = Durable.on()
    session = with_turns(world)
    world.device.fail_next_transfer()
    hibernate(world, session)

    assert not world.core.sessions
    assert world.disk.sessions["a"].image is None
    assert next_turn(world, world.wake("a"))[-1] == 0


def test_the_death_of_the_scheduler_during_a_read_out_hurts_nobody() -> None:
    """Whoever waited is told, and goes without."""
    world = Durable.on()
    session = with_turns(world)
    world.post(session, Hibernate())
    exported: Reply[Any] = Reply()
    world.post(session, ExportSession(exported))
    world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
    world.rest()

    assert settled(exported).image is None
    assert not world.core.sessions
    assert list(world.wake("a").state.log) == list(session.state.log)


def test_the_death_of_the_store_during_a_snapshot_leaves_the_session_to_its_log() -> None:
    """The answer will never come, and nothing waits for it."""
    world = Durable.on()
    session = with_turns(world)
    world.post(session, Hibernate())
    world.device.complete_transfer()
    world.run()
    world.kill_store()
    world.rest()

    assert not world.core.sessions


def test_the_death_of_the_store_while_a_turn_waits_for_its_state_costs_the_state() -> None:
    """The turn runs from its log."""
    world = Durable.on()
    hibernate(world, with_turns(world))
    woken = world.wake("a")
    request = world.start(woken, [77])
    world.kill_store()
    world.rest()

    assert error_of(request) is None
    assert request.output.cached_tokens == 0


def test_a_turn_that_is_cancelled_while_its_state_is_read_leaves_nothing() -> None:
    """Neither a place in the queue, nor an image in memory."""
    world = Durable.on(num_slots=2)
    hibernate(world, with_turns(world))
    woken = world.wake("a")
    request = world.start(woken, [77])
    world.cancel(woken, request)
    counted = world.core.door.queued_reqs
    world.rest()
    store = world.core.dispatcher.actor(STORE)

    assert counted == 0
    assert store is not None
    assert not store.has_business_with(woken.name), "it counts no image any more"
    assert next_turn(world, woken)[-1] == 11


def test_a_turn_that_is_interrupted_while_its_state_is_read_ends_with_its_input() -> None:
    """As one that is interrupted in the queue."""
    world = Durable.on()
    hibernate(world, with_turns(world))
    woken = world.wake("a")
    request = world.start(woken, [77])
    reply = world.interrupt(woken, None, request)
    world.rest()

    assert settled(reply) == 0
    assert error_of(request) is None
    assert list(woken.state.log)[-1] == 77
    assert world.disk.log_of("a") == list(woken.state.log)


def test_a_snapshot_goes_with_the_log_that_it_is_of() -> None:
    """Nobody asks for it after a cut below it, or is told that it was lost."""
    probe = Recorder()
    world = Durable.on(probe=probe)
    hibernate(world, with_turns(world))
    woken = world.wake("a")
    world.post(woken, Rewind(1, Reply()))
    world.rest()
    cached = next_turn(world, woken)[-1]

    assert cached == 0
    assert probe.named("session.state_lost") == []


def test_an_image_that_was_read_of_another_history_is_not_kept() -> None:
    """The log went back and forth while it was read; its position says nothing of its tokens."""
    world, other = Durable.on(), Durable.on()
    session = with_turns(world)
    base = session.state.base
    assert isinstance(base, BaseName)
    world.post(session, GiveUp(base))
    world.post(session, Rewind(0, Reply()))
    world.work()
    again = [7] * 20
    world.start(session, again)
    while world.device.waiting or world.disk.waiting:
        world.work() if world.disk.waiting else world.step()
    world.rest()
    cold = other.session("a")
    other.start(cold, again)
    other.rest()
    world.device.fail_next_transfer()  # so that no newer snapshot takes its place
    hibernate(world, session)

    assert next_turn(world, world.wake("a"))[:-1] == next_turn(other, cold)[:-1]


def test_marks_come_back_without_their_states() -> None:
    """What they name is computed from the log."""
    world = Durable.on()
    session = with_turns(world)
    world.post(session, SetMark("here", Reply()))
    world.rest()
    hibernate(world, session)
    woken = world.wake("a")

    (mark,) = woken.state.states.marks.values()
    assert (mark.length, mark.turns, mark.version) == (12, 2, NO_STATE)


def test_beyond_the_bound_those_that_rest_longest_go() -> None:
    """And come back when they are wanted, for another."""
    world = Durable.on(max_resident_sessions=2)
    for name in "abc":
        with_turns(world, name, turns=1)
    first = set(world.core.sessions)
    next_turn(world, world.wake("a"))

    assert first == {"b", "c"}
    assert set(world.core.sessions) == {"a", "c"}


def test_an_idle_timeout_leaves_a_session_to_the_store() -> None:
    """It has cost nothing to keep, and its caller may come back."""
    world = Durable.on()
    session = world.session("a", idle_timeout_s=5.0)
    request = world.start(session, [1, 2])
    world.rest()
    world.advance(6.0)
    world.rest()

    assert error_of(request) is None
    assert not world.core.sessions
    assert world.wake("a").identity.idle_timeout_s == 5.0


def test_an_idle_timeout_forgets_nothing_while_the_store_has_trouble() -> None:
    """It is tried again; only a session of which nothing is kept is closed."""
    world = Durable.on()
    session, fresh = with_turns(world), world.session("fresh", idle_timeout_s=5.0)
    log = list(session.state.log)
    session = world.session("b", idle_timeout_s=5.0)
    world.start(session, [1, 2])
    while not world.disk.waiting:
        world.step()
    world.kill_store()
    world.advance(6.0)
    still_there = set(world.core.sessions)
    world.rest()
    world.advance(6.0)
    world.rest()

    assert fresh.is_closed
    assert still_there == {"a", "b"}
    assert set(world.core.sessions) == {"a"}
    assert world.disk.log_of("b") == []
    assert world.disk.log_of("a") == log


def test_a_state_that_is_given_up_is_kept_on_disk_first() -> None:
    """The tier below the pools; the next turn starts from there."""
    world = Durable.on(num_slots=1, host_memory_bytes=0)
    one = with_turns(world, "a")
    other = with_turns(world, "b")

    assert one.state.state is None
    assert world.disk.sessions["a"].image is not None
    assert next_turn(world, one)[-1] == 11
    assert next_turn(world, other)[-1] == 11


def test_a_stop_keeps_every_session_and_closes_the_store() -> None:
    """Closing an engine is no reason to forget."""
    world = Durable.on()
    session = with_turns(world)
    log = list(session.state.log)
    world.core.stop(join_timeout_s=1.0)

    assert world.disk.log_of("a") == log
    assert not world.disk.opened
