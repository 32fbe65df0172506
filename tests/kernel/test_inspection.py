"""Looking in: what stats, health and session info say, and that looking changes nothing."""

import pytest

from adapters.fake_device import FakeDevice
from kernel.actors.reply import Reply
from kernel.config import EngineConfig
from kernel.engine.inspection import health, session_info, stats
from kernel.messages import GiveUp, SetMark
from kernel.outputs import SessionInfo
from tests.kernel.loopless import Loopless
from tests.kernel.small import GREEDY
from tests.known import known
from tests.pressure.worlds import greedy, name_of, open_world, words


def info(world: Loopless, name: str = "a") -> SessionInfo:
    (actor,) = [actor for actor in world.core.sessions.values() if actor.session_id == name]
    return session_info(world.core, actor)


def test_the_gauges_add_up_to_the_whole_pool() -> None:
    """At every moment, so that a dashboard can stack them."""
    world = Loopless.open(num_slots=4)
    session = world.session()
    world.finish(world.start(session, [1, 2, 3]))
    world.start(session, [4])
    world.step()
    now = stats(world.core)

    assert (now.slots_total, now.slots_batch, now.slots_session) == (4, 1, 1)
    assert (
        now.slots_free
        + now.slots_batch
        + now.slots_session
        + now.slots_cache
        + now.slots_draining
        + now.slots_quarantined
        == now.slots_total
    )
    assert (now.num_requests_running, now.num_requests_waiting, now.num_sessions) == (1, 0, 1)


def test_the_counters_count_turns_by_how_they_ended() -> None:
    """Finished, cancelled and failed are three numbers."""
    world = Loopless.open()
    session = world.session()
    world.finish(world.start(session, [1, 2, 3]))
    world.cancel(session, world.start(session, [4]))
    world.step()
    world.start(session, [5])
    world.device.fail()
    world.run()
    now = stats(world.core)

    assert (now.turns_finished, now.turns_cancelled, now.turns_failed) == (1, 1, 1)
    assert now.steps == 6
    assert now.generation_tokens == 5, "four of the first turn, and one that nobody waited for"
    assert now.cached_tokens == 12
    assert (now.reclaimed, now.restarts) == (0, 0)


def test_what_waits_is_counted_in_requests_and_tokens() -> None:
    """The same numbers as the bounds at the door."""
    world = Loopless.open(max_num_seqs=1)
    world.start(world.session("a"), [1])
    world.start(world.session("b"), [1, 2, 3])
    now = stats(world.core)

    assert (now.num_requests_running, now.num_requests_waiting) == (1, 1)
    assert now.num_queued_tokens == 3


def test_looking_costs_no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes half a second for a million pages, on everybody's event loop, and is an event."""
    world = Loopless.open()
    world.finish(world.start(world.session(), [1, 2, 3]))
    before = stats(world.core)
    for place in ("kernel.engine.core.Ledger.audit", "ownership.view.audit"):
        monkeypatch.delattr(place)

    assert stats(world.core) == before


def test_looking_changes_nothing() -> None:
    """An operator may look as often as he likes."""
    world = Loopless.open()
    session = world.session()
    world.finish(world.start(session, [1, 2, 3]))
    before = world.core.ledger.view.counters
    first = stats(world.core), info(world), health(world.core, is_running=True)

    assert (stats(world.core), info(world), health(world.core, is_running=True)) == first
    assert world.core.ledger.view.counters == before


def test_a_session_tells_where_its_state_is() -> None:
    """On the device, with its bytes; or only in the log, at no cost."""
    world = Loopless.open()
    session = world.session()
    fresh = info(world)
    world.finish(world.start(session, [1, 2, 3]))
    rested = info(world)

    assert (fresh.place, fresh.bytes, fresh.num_tokens) == ("log", 0, 0)
    assert (rested.place, rested.num_tokens, rested.position) == ("device", 7, 6)
    assert rested.pending_tokens == 1
    # A slot of eight bytes, and two pages of four tokens of eight bytes.
    assert rested.bytes == 8 + 2 * 4 * 8
    assert (rested.version, rested.turns, rested.state) == (1, 1, "idle")


@pytest.mark.parametrize(("slots", "pages", "size"), [(True, False, 8), (False, True, 64)])
def test_bytes_are_those_that_the_model_uses(slots: bool, pages: bool, size: int) -> None:
    """A recurrent model has no pages, an attention model no slot."""
    device = FakeDevice(mode="manual", eos_token_ids=(), uses_slots=slots, uses_pages=pages)
    world = Loopless.open(device=device)
    world.finish(world.start(world.session(), [1, 2, 3]))

    assert info(world).bytes == size


def test_a_state_that_was_given_up_is_in_the_log_only() -> None:
    """The next turn computes it again; the info says so before."""
    world = Loopless.open(num_slots=1, max_num_seqs=1)
    session = world.session()
    world.finish(world.start(session, [1, 2, 3]))
    world.finish(world.start(world.session("b"), [1]))
    found = info(world)

    assert (found.place, found.bytes, found.position, found.num_tokens) == ("log", 0, 0, 7)
    assert found.version == 2
    assert stats(world.core).forced_parks == 1


def test_health_tells_a_stalled_step_before_it_is_lost() -> None:
    """Half of the limit is the warning; past the limit it stands in quarantine."""
    world = Loopless.open(step_timeout_s=10.0)
    world.device.hang_next()
    world.start(world.session(), [1])
    fresh = health(world.core, is_running=True)
    world.clock.at += 6
    stalled = health(world.core, is_running=True)
    world.advance(5)
    lost = health(world.core, is_running=True)

    assert (fresh.live, fresh.ready, fresh.stalled) == (True, True, False)
    assert stalled.stalled
    assert (lost.stalled, lost.quarantined_slots, lost.quarantined_pages) == (False, 1, 1)
    assert lost.live
    assert stats(world.core).restarts == 1


def test_health_says_why_an_engine_serves_no_more() -> None:
    """Not ready while it drains, not live when its device is lost."""
    world = Loopless.open()
    world.core.door.close()
    draining = health(world.core, is_running=True)
    world = Loopless.open()
    world.start(world.session(), [1])
    world.device.fail(why="on fire", device_lost=True)
    world.run()
    lost = health(world.core, is_running=True)

    assert (draining.live, draining.ready) == (True, False)
    assert "closed" in draining.why
    assert (lost.live, lost.ready) == (False, False)
    assert "on fire" in lost.why
    assert not health(world.core, is_running=False).live


async def test_the_door_shows_the_same() -> None:
    """``engine.stats()``, ``health()`` and ``list_sessions()`` are these."""
    from kernel import Engine

    config = EngineConfig(model="fake", page_size=4)
    async with Engine.open(config, device=FakeDevice(eos_token_ids=())) as engine:
        async with engine.session(session_id="a") as session:
            async with session.turn([1, 2, 3], GREEDY) as turn:
                await turn.wait()

            assert engine.stats() == stats(engine.core)
            assert engine.health() == health(engine.core, is_running=True)
            assert engine.list_sessions() == [session.info]


def test_a_turn_between_its_two_phases_runs() -> None:
    """It keeps its row while its session commits; to a dashboard it must not vanish meanwhile."""
    world = Loopless.open()
    session = world.session()
    first = world.start(session, list(range(1, 10)), GREEDY)
    world.step()
    world.interrupt(session, 0)
    world.finish(first)
    assert (session.state.position, len(session.state.log)) == (0, 9)
    turn = world.start(session, [7], GREEDY)
    scheduler = world.core.scheduler
    assert scheduler is not None
    seen: set[tuple[int, int, int]] = set()
    while turn.output.end is None:
        world.device.complete()
        while not world.core.dispatcher.is_quiet:
            world.core.dispatcher.run(1)
            if scheduler.roster.get(turn.id) is not None:
                now = stats(world.core)
                committing = len(scheduler.roster.committing)
                seen.add((committing, now.num_requests_running, now.num_requests_waiting))

    assert (1, 1, 0) in seen
    assert {running + waiting for _, running, waiting in seen} == {1}


def test_a_session_that_is_down_to_a_marks_state_says_what_that_takes() -> None:
    """Place and position are that state's, so bytes and first position are, too."""
    world = open_world(num_slots=4, num_pages=24)
    session = world.session(slides=True)
    world.finish(world.start(session, words(50), greedy(1)))
    world.post(session, SetMark("here", Reply()))
    marked = info(world)
    world.finish(world.start(session, words(2), greedy(1)))
    fork = world.session("fork", parent=session)
    newest = info(world)
    assert info(world, "fork").first_position == known(newest.first_position) > 0
    assert info(world, "fork").bytes == 0
    world.post(session, GiveUp(name_of(session)))
    now = info(world)

    assert fork.state.version == 0
    assert (now.position, now.place) == (marked.position, "device")
    assert now.bytes == marked.bytes > 0
    assert now.first_position == known(marked.first_position) > 0
