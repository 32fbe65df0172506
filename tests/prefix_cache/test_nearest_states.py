"""A turn whose base is gone starts from the furthest state left, its session's or a cached one."""

import pytest

from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.engine.desk import CALLER
from kernel.ids import SCHEDULER
from kernel.messages import GiveUp, Hibernate, Rested, SchedulerMessage, SetMark
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from ownership import BaseName
from tests.durable.worlds import Durable
from tests.kernel.loopless import Loopless, tokens_of
from tests.museum.acts import cold, finish, one_shot
from tests.prefix_cache.test_publishing import open_cached, positions
from tests.scenarios.inputs import greedy, prompt


def marked(world: Loopless, marks: int = 1) -> SessionActor:
    """A session with so many marks, and one turn after the last of them."""
    session = world.session("s")
    for number in range(marks):
        finish(world, world.start(session, prompt(9, number), greedy(2)))
        world.post(session, SetMark(f"m{number}", Reply()))
    finish(world, world.start(session, prompt(15, 7), greedy(2)))
    return session


def lengths(session: SessionActor) -> list[int]:
    return [mark.length for mark in session.state.states.marks.values()]


def give_up(world: Loopless, session: SessionActor, base: object) -> None:
    assert isinstance(base, BaseName)
    world.post(session, GiveUp(base))


def gone_while_it_waits(world: Loopless, session: SessionActor, *, also: int = 0) -> TurnRequest:
    """A turn that waits for a row while its base is given up, and so many more of its states."""
    states = session.state.states
    blocker = world.start(world.session("blocker"), prompt(5, 3), greedy(3))
    turn = world.start(session, prompt(3, 1), greedy(4))
    others = states.others[:also]
    for base in (session.state.base, *others):
        give_up(world, session, base)
    finish(world, blocker)
    finish(world, turn)
    return turn


def assert_exact(log: list[int], turn: TurnRequest) -> None:
    assert tokens_of(turn) == cold([*log, *prompt(3, 1)], 4)


@pytest.mark.parametrize(("also", "left"), [(0, 1), (1, 0)])
def test_the_furthest_mark_that_is_left_is_where_it_starts(also: int, left: int) -> None:
    """Not the cache alone, and not nothing; the tokens are those of a cold run."""
    world = open_cached(max_num_seqs=1)
    session = marked(world, marks=2)
    world.core.clear_cache()
    world.run()
    log = list(session.state.log)
    turn = gone_while_it_waits(world, session, also=also)

    assert turn.output.cached_tokens == lengths(session)[left] - 1
    assert_exact(log, turn)


def test_without_a_mark_or_a_cached_state_it_starts_from_the_log() -> None:
    """Also where each mark's state was given up with it."""
    world = open_cached(max_num_seqs=1, enable_prefix_caching=False)
    session = marked(world, marks=2)
    log = list(session.state.log)
    turn = gone_while_it_waits(world, session, also=2)

    assert turn.output.cached_tokens == 0
    assert_exact(log, turn)


@pytest.mark.parametrize("cached", [6, 20])
@pytest.mark.parametrize("when", ["while it waits", "before it comes"])
def test_the_cache_is_asked_too_and_the_furthest_wins(cached: int, when: str) -> None:
    """A cached state beyond the mark's, or the mark's beyond a cached one."""
    world = open_cached(max_num_seqs=1)
    session = marked(world)
    log, (mark,) = list(session.state.log), lengths(session)
    world.core.clear_cache()
    world.run()
    finish(world, one_shot(world, "same", log[:cached], 1))
    stands_at = positions(world)[-1]
    assert stands_at in (cached - 1, cached)
    if when == "while it waits":
        turn = gone_while_it_waits(world, session)
    else:
        give_up(world, session, session.state.base)
        turn = world.start(session, prompt(3, 1), greedy(4))
        finish(world, turn)

    assert turn.output.cached_tokens == max(stands_at, mark - 1)
    assert_exact(log, turn)


def test_a_session_whose_own_state_is_there_does_not_look_into_the_cache() -> None:
    """It stands as far as any."""
    world = open_cached(max_num_seqs=1)
    session = marked(world)
    log = list(session.state.log)
    finish(world, one_shot(world, "same", log, 1))
    hits = world.core.counters.cache_hits
    turn = world.start(session, prompt(3, 1), greedy(4))
    finish(world, turn)

    assert (turn.output.cached_tokens, world.core.counters.cache_hits) == (len(log) - 1, hits)
    assert_exact(log, turn)


@pytest.mark.parametrize("cached", [6, 20])
def test_a_cached_state_beyond_the_snapshot_on_disk_wins(cached: int) -> None:
    """And the snapshot where it is the further one."""
    world = Durable.on(enable_prefix_caching=True, prefix_cache_block=4)
    session = world.session("s")
    world.start(session, prompt(9), greedy(2))
    world.rest()
    world.post(session, Hibernate())
    world.rest()
    session = world.wake("s")
    world.start(session, prompt(15, 7), greedy(2))
    world.rest()
    again = Durable.on(world.crash(), enable_prefix_caching=True, prefix_cache_block=4)
    session = again.wake("s")
    log = list(session.state.log)
    shot = one_shot(again, "same", log[:cached], 1)
    again.rest()
    assert shot.output.end is not None
    stands_at = positions(again)[-1]
    turn = again.start(session, prompt(3, 1), greedy(4))
    again.rest()

    assert turn.output.cached_tokens == max(stands_at, 10)
    assert tokens_of(turn) == cold([*log, *prompt(3, 1)], 4)


def test_a_named_position_is_kept_when_a_turn_loses_its_base_in_its_first_phase() -> None:
    """It has no phases then, and what it was to leave behind in the second is planned now."""
    world = open_cached(max_num_batched_tokens=4)
    session = marked(world, marks=2)
    give_up(world, session, session.state.base)
    world.core.clear_cache()
    world.run()
    log, scheduler = list(session.state.log), world.core.scheduler
    assert scheduler is not None
    named = len(log) + 2
    turn = world.start(session, prompt(3, 1), greedy(4), cache_at=(named,))
    (opened,) = scheduler.roster
    had_a_phase = opened.absorb_first
    world.device.complete()
    while scheduler.flight is not None:
        world.core.dispatcher.run(1)
    # As where host memory has no room for a turn that gives way.
    work = scheduler._work  # pyright: ignore[reportPrivateUsage]  # no senior turn is needed so
    work.unload(opened)
    base = opened.base
    assert isinstance(base, BaseName)
    assert session.state.give_up(base)
    world.core.dispatcher.post(Address[SchedulerMessage](SCHEDULER), Rested(), CALLER)
    world.run()
    finish(world, turn)

    assert (had_a_phase, opened.absorb_first) == (True, False)
    assert named in positions(world)
    assert_exact(log, turn)
