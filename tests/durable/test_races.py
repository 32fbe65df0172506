"""Meetings of sessions, their store and its death that the simulation has found."""

import anyio
import pytest

from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.errors import SessionLost, SessionNotFound
from kernel.ids import SCHEDULER, SessionId, TurnId
from kernel.messages import (
    CancelTurn,
    Exported,
    ExportSession,
    GiveUp,
    Hibernate,
    SessionMessage,
    SetMark,
)
from kernel.messages.store import StateStored
from kernel.sessions.session import SessionActor
from kernel.testing.simulation.disk import Disk
from ownership import BaseName
from tests.durable.memory_store import MemoryFiles
from tests.durable.worlds import Durable, open_engine, settled
from tests.kernel.loopless import tokens_of
from tests.kernel.toys import CALLER
from tests.scenarios.inputs import greedy


def with_a_turn(world: Durable, tokens: list[int] | None = None) -> SessionActor:
    session = world.session("a")
    world.start(session, tokens or [1, 2, 3])
    world.rest()
    return session


async def test_closing_a_session_that_is_closed_already_returns() -> None:
    """By its idle timer, say: nobody is left who could answer."""
    async with open_engine(MemoryFiles(), session_store="anywhere") as engine:
        session = engine.session(idle_timeout_s=0.01)
        await session.__aenter__()
        with anyio.fail_after(5):
            while engine.list_sessions():  # noqa: ASYNC110  it tells nobody
                await anyio.sleep(0.01)
        with anyio.fail_after(5):
            await session.close()


async def test_a_session_that_is_woken_stays_until_who_woke_it_has_used_it() -> None:
    """Else it would be woken and left to the store for ever, beside sessions that can't go."""
    async with open_engine(
        MemoryFiles(), session_store="anywhere", max_resident_sessions=1
    ) as engine:
        async with engine.session() as kept:
            async with kept.turn([1, 2, 3], greedy(2)) as turn:
                await turn.wait()
            async with engine.session(), engine.session():
                with anyio.fail_after(5):
                    for _ in range(3):
                        async with kept.turn([4], greedy(2)) as turn:
                            await turn.wait()


@pytest.mark.parametrize("how", ["closes", "goes dormant"])
def test_a_session_that_leaves_answers_what_it_was_asked(how: str) -> None:
    """The scheduler counts on the room until it hears that there is none."""
    world = Durable.on(num_slots=1)
    session = with_a_turn(world)
    base = session.state.base
    assert isinstance(base, BaseName)
    room = world.core.scheduler._admission.room  # type: ignore[union-attr]
    room.asked.add(base)
    world.core.dispatcher.post(Address[SessionMessage](session.name), GiveUp(base), SCHEDULER)
    world.run()
    assert world.device.waiting_transfers, "the state is read out first"

    if how == "closes":
        world.close(session)
    else:
        session.go_dormant()
        world.run()
    world.rest()

    assert not room.asked
    world.assert_all_free()


def test_a_session_that_goes_dormant_answers_who_wants_its_bytes() -> None:
    """Without the state, if that is not at hand: the log is all that is needed."""
    world = Durable.on()
    session = with_a_turn(world)
    world.post(session, Hibernate())
    world.rest()
    session = world.wake("a")
    reply: Reply[Exported] = Reply()
    world.post(session, ExportSession(reply))
    assert not reply.is_settled, "its snapshot is being read"

    world.post(session, Hibernate())
    world.rest()

    exported = settled(reply)
    assert isinstance(exported, Exported)
    assert exported.record.log_len == len(session.state.log)


def test_a_session_that_is_asked_twice_to_rest_rests() -> None:
    """A second ask behind the first one is no reason to stay, and to be asked again."""
    world = Durable.on(max_resident_sessions=1)
    session = with_a_turn(world)
    here = Address[SessionMessage](session.name)
    world.core.dispatcher.post(here, Hibernate(), SCHEDULER)
    world.core.dispatcher.post(here, Hibernate(), SCHEDULER)

    for _ in range(200):
        world.core.dispatcher.run(1)
    world.rest()

    assert not world.core.sessions


def test_a_session_that_dies_answers_for_the_change_that_is_being_kept() -> None:
    """Whoever asked for it waits for nothing else."""
    world = Durable.on()
    session = with_a_turn(world)
    reply: Reply[int] = Reply()
    world.post(session, SetMark("here", reply))
    assert world.disk.waiting

    world.core.dispatcher.kill(session.name, RuntimeError("planted"))
    world.run()

    assert isinstance(settled(reply), SessionLost)


def test_what_the_store_has_passed_on_before_it_died_is_undone() -> None:
    """Its caller was told that the turn has not happened, and the disk comes to say the same."""
    world = Durable.on()
    session = with_a_turn(world)
    log = list(session.state.log)
    request = world.start(session, [7])
    while not world.disk.waiting:
        world.step()
    world.kill_store()
    assert request.output.end is not None
    assert request.output.end.error is not None

    world.rest()

    assert list(session.state.log) == log
    assert world.disk.log_of("a") == log


def test_a_session_that_has_mail_does_not_go() -> None:
    """What comes right behind the ask to go is handled, and not answered as closed."""
    world = Durable.on()
    world.post(with_a_turn(world), Hibernate())
    world.rest()
    woken = world.wake("a")
    reply: Reply[int] = Reply()
    address = Address[SessionMessage](woken.name)
    for message in (Hibernate(), SetMark("here", reply)):
        world.core.dispatcher.post(address, message, CALLER)
    world.run()
    world.rest()

    assert settled(reply) == 1
    assert "here" in woken.state.states.marks


def about_to_rest(world: Durable) -> SessionActor:
    """Its idle timeout has passed, and its state is read out."""
    session = world.session("a", idle_timeout_s=5.0)
    world.start(session, [1, 2, 3])
    world.rest()
    world.advance(6.0)
    world.copy()
    return session


def test_an_idle_session_that_was_held_up_by_mail_goes_after_the_next_timeout() -> None:
    """Mail without a turn starts no rest of its own."""
    world = Durable.on()
    session = about_to_rest(world)
    world.disk.work()
    while not any(isinstance(mail, StateStored) for mail in session.mailbox):
        world.core.dispatcher.run(1)
    here = Address[SessionMessage](session.name)
    world.core.dispatcher.post(here, CancelTurn(TurnId("long gone"), "abort"), CALLER)
    world.rest()
    assert not session.is_closed

    world.advance(6.0)
    world.rest()
    assert not world.core.sessions


def test_a_timeout_shorter_than_the_disk_is_slow_asks_for_one_snapshot() -> None:
    world = Durable.on()
    about_to_rest(world)
    for _ in range(3):
        world.advance(6.0)

    assert len(world.disk.waiting) == 1
    world.rest()
    assert not world.core.sessions


def test_a_session_that_somebody_waits_for_is_not_asked_to_go() -> None:
    """However many are in memory; it may go once they have used it, or have left."""
    world = Durable.on(max_resident_sessions=1)
    session = with_a_turn(world)
    world.post(session, Hibernate())
    world.rest()
    world.session("b")
    stored = world.core.stored
    assert stored is not None

    with stored.wanted(SessionId("a")):
        world.wake("a")
        world.rest()
        during = set(world.core.sessions)
    world.rest()

    assert during == {"a", "b"}
    assert set(world.core.sessions) == {"b"}


def test_an_ask_of_a_scheduler_that_died_is_nobodys_any_more() -> None:
    """Its successor has asked for nothing, and the session keeps its state."""
    world = Durable.on()
    session = with_a_turn(world)
    base = session.state.base
    assert isinstance(base, BaseName)
    world.post(session, GiveUp(base))
    world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
    world.rest()

    assert session.state.base == base


def test_a_session_that_is_removed_while_it_is_woken_is_not_found() -> None:
    """Else it would be woken as something that is not on the disk."""
    world = Durable.on()
    session = with_a_turn(world)
    world.post(session, Hibernate())
    world.rest()
    stored = world.core.stored
    assert stored is not None
    waking = stored.wake(SessionId("a"))
    world.run()

    removed = stored.forget(SessionId("a"))
    world.rest()
    world.run()

    assert isinstance(settled(waking), SessionNotFound)
    assert removed.is_settled
    assert not world.core.sessions
    assert not stored.holds("a")


def test_a_state_at_the_last_position_leaves_no_first_phase() -> None:
    """A turn with nothing to absorb in it would wait for the end of that phase for ever."""
    world, other = Durable.on(), Durable.on()
    long = list(range(1, 20))
    session, stays = with_a_turn(world, long), with_a_turn(other, long)
    world.post(session, Hibernate())
    world.rest()
    session = world.wake("a")
    assert session.state.base_position == 0, "its state is on the disk alone"

    request, expected = world.start(session, [77]), other.start(stays, [77])
    world.rest()
    other.rest()

    assert request.output.end is not None
    assert tokens_of(request) == tokens_of(expected)


def test_the_simulated_disk_is_the_store_that_the_tests_have() -> None:
    """Both are the protocol written down; what one does, the other does."""
    world = Durable.on(manual=False)
    session = with_a_turn(world)
    world.post(session, SetMark("here", Reply()))
    world.start(session, [5, 6])
    world.rest()
    world.interrupt(session, 0)
    world.post(session, Hibernate())
    world.rest()
    stored = world.core.stored
    assert stored is not None

    disk = Disk()
    for job in world.disk.jobs:
        disk.do(job)

    kept = disk.sessions["a"]
    assert [token for turn in kept.turns for token in turn.tokens] == world.disk.log_of("a")
    assert kept.facts == world.disk.sessions["a"].facts
    assert disk.usage() == stored.worker.usage()
