"""States at rest move to host memory and come back as they were; every other way ends clean."""

import pytest

from kernel.engine.inspection import health
from kernel.errors import EngineFault
from kernel.ids import GPU_POOL, SCHEDULER
from kernel.messages import ReadOutState, StateRead
from kernel.sessions.session import SessionActor
from ownership import BaseName, Place
from tests.kernel.loopless import Loopless, error_of
from tests.pressure.worlds import (
    assert_all_free,
    greedy,
    name_of,
    open_world,
    places_of,
    rest,
    talk,
    words,
)


def crowded(**config: object) -> tuple[Loopless, SessionActor]:
    """One slot, in which a session rests, and a turn that needs it: the copy is under way."""
    world = open_world(num_slots=1, num_pages=16, **config)
    session = rest(world, "a")
    world.start(world.session("b", is_one_shot=True), words(6), greedy(3))
    return world, session


def test_a_state_at_rest_moves_to_host_memory_and_is_started_from_there() -> None:
    """Its turn computes nothing again, and the way out is a transfer beside the steps."""
    world, session = crowded()
    assert len(world.device.waiting_transfers) == 1
    assert not world.device.waiting, "the only slot is still the session's"
    name, position = name_of(session), session.state.position
    world.copy()

    assert places_of(world, session) == [Place.HOST]
    assert (name_of(session), session.state.position) == (name, position)
    assert len(world.device.waiting) == 1, "what it made room for runs"
    assert world.core.counters.forced_parks == 1
    world.step(3)
    again = talk(world, session, words(3, 9), 4)
    assert (again.output.cached_tokens, again.output.recomputed_tokens) == (12, 0)
    assert places_of(world, session) == [Place.HOST, Place.DEVICE], "the older is a checkpoint"
    world.close(session)
    assert_all_free(world)


def test_without_room_in_host_memory_a_state_gives_way_to_its_log() -> None:
    """The next tier is asked at once; nobody waits for room that nobody promised."""
    world, session = crowded(host_memory_bytes=0)
    assert not world.device.waiting_transfers
    assert places_of(world, session) == []
    world.step(3)
    assert talk(world, session, words(3, 9), 4).output.recomputed_tokens > 0
    world.close(session)
    assert_all_free(world)


def test_a_copy_that_fails_leaves_the_log() -> None:
    """The state was to go, and it goes; what the session says is the same."""
    world, session = crowded()
    world.device.fail_transfer()
    world.run()

    assert places_of(world, session) == []
    assert len(world.device.waiting) == 1
    world.step(3)
    assert talk(world, session, words(3, 9), 4).output.recomputed_tokens > 0
    world.close(session)
    assert_all_free(world)


def test_a_session_that_is_closed_meanwhile_leaves_nothing() -> None:
    """The state drains until the copy has landed; the copy is rolled back."""
    world, session = crowded()
    world.close(session)
    assert world.free[0] == 0
    world.copy()
    world.step(3)
    assert_all_free(world)


def test_a_session_that_dies_meanwhile_leaves_nothing() -> None:
    """Nobody is there to take the copy: the scheduler answers itself."""
    world, session = crowded()
    world.core.dispatcher.kill(session.name, RuntimeError("planted"))
    world.run()
    world.copy()
    world.step(3)
    assert world.core.ledger.audit().at_rest
    assert world.core.ledger.view.counters.reclaimed == 1


def test_a_session_that_went_on_meanwhile_keeps_its_new_state() -> None:
    """The copy is of a state that is no longer: it is rolled back, and the answer says so."""
    world = open_world(num_slots=3, num_pages=16, max_num_seqs=2)
    first, second = rest(world, "a"), rest(world, "b")
    third = rest(world, "c")
    other = world.start(world.session("d", is_one_shot=True), words(6), greedy(3))
    assert len(world.device.waiting_transfers) == 1
    world.copy()
    world.finish(other)
    assert places_of(world, first) == [Place.HOST]
    for session in (first, second, third):
        talk(world, session, words(2, 5), 2)
        world.close(session)
    assert_all_free(world)


def test_a_state_that_was_replaced_while_it_was_copied_stays_replaced() -> None:
    """The compare-and-swap: the copy started from a state that its session has no more."""
    world = open_world(num_slots=2, num_pages=32)
    session = rest(world, "a")
    scheduler = world.core.scheduler
    assert scheduler is not None
    assert scheduler.parking.park(name_of(session))
    request = world.start(session, words(3, 9), kind="append")
    world.step()
    assert request.output.end is not None
    after = name_of(session)
    world.copy()

    assert name_of(session) == after
    assert Place.HOST not in places_of(world, session)
    world.close(session)
    assert_all_free(world)


def test_a_turn_may_start_from_a_state_that_is_being_parked() -> None:
    """Both copy out of it, and the state ends up in host memory under its own name."""
    world = open_world(num_slots=2, num_pages=32)
    session = rest(world, "a")
    scheduler = world.core.scheduler
    assert scheduler is not None
    assert scheduler.parking.park(name_of(session))
    request = world.start(session, words(3, 9), greedy(4))
    world.copy()
    assert places_of(world, session) == [Place.HOST]
    assert world.free[0] == 0, "it drains until the turn's first step has landed"
    world.step()
    assert world.free[0] == 1
    world.finish(request)
    world.close(session)
    assert_all_free(world)


def test_a_pool_that_dies_with_a_copy_leaves_the_state_with_its_session() -> None:
    """Given up it would only drain, behind a device that hangs; here a late landing frees all."""
    world = open_world(num_slots=1, num_pages=16, step_timeout_s=5.0)
    session = rest(world, "a")
    world.device.hang_next_transfer()
    turn = world.start(world.session("b", is_one_shot=True), words(6), greedy(3))
    world.advance(6.0)

    assert world.core.recovery.restarts == 1
    assert places_of(world, session) == [Place.DEVICE]
    assert isinstance(error_of(turn), EngineFault), "the only slot may never come back"
    world.device.unhang()
    world.run()
    while world.device.waiting_transfers:
        world.copy()
    assert not world.core.ledger.view.leases()
    again = talk(world, session, words(3, 9), 4)
    assert again.output.recomputed_tokens == 0
    world.close(session)
    assert_all_free(world)


def test_a_scheduler_that_dies_with_a_copy_leaves_the_state_with_its_session() -> None:
    """The copy lands without an owner who wants it, and goes back."""
    world, session = crowded()
    world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
    world.run()
    world.copy()

    assert places_of(world, session) == [Place.DEVICE]
    again = talk(world, session, words(3, 9), 4)
    assert again.output.recomputed_tokens == 0
    world.close(session)
    world.assert_all_free()


def test_a_pool_that_is_dead_when_a_copy_is_launched_gives_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody takes the lease: it lands at once, and the state goes to the log."""
    world = open_world(num_slots=1, num_pages=16)
    session = rest(world, "a")
    dispatcher = world.core.dispatcher
    post = dispatcher.post

    def lose(address: object, message: object, sender: object) -> object:
        if getattr(address, "name", None) == GPU_POOL and "Transfer" in type(message).__name__:
            return message
        return post(address, message, sender)  # type: ignore[arg-type, type-var]  # as it came

    monkeypatch.setattr(dispatcher, "post", lose)
    turn = world.start(world.session("b", is_one_shot=True), words(6), greedy(3))
    world.finish(turn)
    assert places_of(world, session) == []
    world.close(session)
    assert_all_free(world)


# Host memory


def rounds(world: Loopless, names: str, count: int = 3) -> list[SessionActor]:
    """Sessions that take turns, so that all but one are out of the way each time."""
    sessions = [rest(world, name) for name in names]
    for number in range(count):
        for session in sessions:
            talk(world, session, words(2, number), 3)
    return sessions


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_host_memory_of_few_slots_is_of_use_and_never_in_the_way(slots: int) -> None:
    """A full tier passes what comes next on to the log; everybody is served."""
    per_slot = 8 + 16 * 32
    world = open_world(num_slots=1, num_pages=16, host_memory_bytes=slots * per_slot)
    assert world.core.limits.host_slots == slots
    first = rest(world, "a")
    other = rest(world, "b")
    assert places_of(world, first) == [Place.HOST], "what was parked stays there"
    talk(world, first, words(2), 2)
    for session in (first, other):
        world.close(session)
    sessions = rounds(world, "cdefg")
    for session in sessions:
        world.close(session)
    assert_all_free(world)


def test_the_least_recently_committed_state_makes_room_in_host_memory() -> None:
    """So that what leaves the device next finds room at once; the newest stay."""
    per_slot = 8 + 16 * 32
    world = open_world(num_slots=1, num_pages=16, host_memory_bytes=3 * per_slot)
    sessions = [rest(world, name) for name in "abcd"]
    assert [places_of(world, session) for session in sessions] == [
        [],
        [Place.HOST],
        [Place.HOST],
        [Place.DEVICE],
    ]
    for session in sessions:
        world.close(session)
    assert_all_free(world)


def test_a_state_that_a_turn_waits_to_start_from_stays_in_host_memory() -> None:
    """Another one makes the room, though it was committed later."""
    per_slot = 8 + 16 * 32
    world = open_world(num_slots=1, num_pages=16, max_num_seqs=1, host_memory_bytes=3 * per_slot)
    sessions = [rest(world, name) for name in "abc"]
    assert places_of(world, sessions[0]) == [Place.HOST]
    running = world.start(sessions[2], words(2), greedy(6))
    waits = world.start(sessions[0], words(2), greedy(2))
    next_one = world.start(world.session("d", is_one_shot=True), words(2), greedy(2))
    for request in (running, waits, next_one):
        world.finish(request)
    assert waits.output.recomputed_tokens == 0
    for session in sessions:
        world.close(session)
    assert_all_free(world)


# Read-outs


class Asker:
    """Takes a session's answers in its place."""

    def __init__(self, world: Loopless, session: SessionActor, patch: pytest.MonkeyPatch) -> None:
        self.answers: list[StateRead] = []
        self.world, self.session = world, session
        handle = SessionActor.handle

        def take(actor: SessionActor, message: object, /) -> None:
            if isinstance(message, StateRead):
                self.answers.append(message)
            else:
                handle(actor, message)  # type: ignore[arg-type]  # whatever came

        patch.setattr(SessionActor, "handle", take)

    def ask(self, base: BaseName) -> None:
        scheduler = self.world.core.scheduler
        assert scheduler is not None
        self.world.post(scheduler, ReadOutState(self.session.name, base))


def test_a_state_is_read_out_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """In either place; the image is the same, since a moved state is bit-identical."""
    world = open_world(num_slots=1, num_pages=16)
    session = rest(world, "a")
    asker = Asker(world, session, monkeypatch)
    asker.ask(name_of(session))
    world.copy()
    other = world.start(world.session("b", is_one_shot=True), words(6), greedy(3))
    world.finish(other)
    assert places_of(world, session) == [Place.HOST]
    asker.ask(name_of(session))
    world.copy()

    on_device, in_host = (answer.image for answer in asker.answers)
    assert on_device is not None
    assert in_host is not None
    assert (on_device.position, on_device.arrays) == (in_host.position, in_host.arrays)
    world.close(session)
    assert_all_free(world)


def test_one_transfer_is_with_the_device_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run one after another: of two, the second's deadline would run during the first."""
    world = open_world(num_slots=1, num_pages=16)
    session = rest(world, "a")
    asker = Asker(world, session, monkeypatch)
    for _ in range(3):
        asker.ask(name_of(session))
        assert len(world.device.waiting_transfers) == 1
    world.copy()
    assert (len(asker.answers), len(world.device.waiting_transfers)) == (1, 1)
    world.copy()
    assert (len(asker.answers), len(world.device.waiting_transfers)) == (3, 0), "both together"
    world.close(session)
    assert_all_free(world)


def test_a_state_that_is_gone_is_read_out_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answered once, with the reason."""
    world = open_world(num_slots=2, num_pages=16)
    session = rest(world, "a")
    asker = Asker(world, session, monkeypatch)
    base = name_of(session)
    talk(world, session, words(2), 2)
    talk(world, session, words(2), 2)
    asker.ask(base)

    assert [(answer.image, answer.why) for answer in asker.answers] == [(None, "the state is gone")]
    world.close(session)
    assert_all_free(world)


def test_a_state_that_is_replaced_while_it_is_read_is_still_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is pinned, so it drains, and the image is what it was."""
    world = open_world(num_slots=3, num_pages=32)
    session = rest(world, "a")
    asker = Asker(world, session, monkeypatch)
    base, position = name_of(session), session.state.position
    asker.ask(base)
    request = world.start(session, words(2), kind="append")
    world.step()
    assert request.output.end is not None
    assert base != name_of(session)
    world.copy()

    (answer,) = asker.answers
    assert answer.base == base
    assert answer.image is not None
    assert answer.image.position == position
    world.close(session)
    assert_all_free(world)


@pytest.mark.parametrize("how", ["fails", "pool dies", "session closes"])
def test_a_read_out_that_comes_to_nothing_is_answered_or_forgotten(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The state stays; an answer to nobody is none."""
    world = open_world(num_slots=1, num_pages=16, step_timeout_s=5.0)
    session = rest(world, "a")
    asker = Asker(world, session, monkeypatch)
    asker.ask(name_of(session))
    if how == "fails":
        world.device.fail_transfer(why="planted")
        world.run()
        assert [(answer.image, answer.why) for answer in asker.answers] == [(None, "planted")]
    elif how == "pool dies":
        world.advance(6.0)
        assert [answer.image for answer in asker.answers] == [None]
        assert places_of(world, session) == [Place.DEVICE]
        world.copy()
    else:
        world.close(session)
        world.copy()
        assert asker.answers == []
    if how != "session closes":
        talk(world, session, words(2), 2)
        world.close(session)
    assert_all_free(world)


# The engine's own end, and what is seen from outside


@pytest.mark.parametrize("how", ["parking", "reading"])
def test_an_engine_that_stops_with_a_copy_under_way_leaves_nothing(how: str) -> None:
    """The worker reports what it has not done as failed, or does it; either way all is free."""
    world = open_world(num_slots=1, num_pages=16)
    session = rest(world, "a")
    if how == "parking":
        world.start(world.session("b", is_one_shot=True), words(6), greedy(3))
    else:
        scheduler = world.core.scheduler
        assert scheduler is not None
        world.post(scheduler, ReadOutState(session.name, name_of(session)))
    assert world.device.waiting_transfers
    audit = world.core.stop(join_timeout_s=0.0)
    assert audit.at_rest, audit
    assert world.core.ledger.view.counters.reclaimed == 0


def test_a_transfer_that_takes_long_is_seen() -> None:
    """Half of what a step may take: the engine is not well, and nobody has died of it yet."""
    world, session = crowded(step_timeout_s=10.0)
    assert not health(world.core, is_running=True).stalled
    world.advance(6.0)
    assert health(world.core, is_running=True).stalled
    world.copy()
    assert not health(world.core, is_running=True).stalled
    world.step(3)
    world.close(session)
    assert_all_free(world)
