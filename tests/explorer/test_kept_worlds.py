"""What the explorer asks of stores and prefix caches: each question can be answered with no."""

from array import array

import attrs

from kernel.session_store import KeepTurn, Kept, RemoveSession, StoredTurn, StoreFault, StoreReport
from kernel.state_image import StateImage
from kernel.testing.explorer.cache_checks import cache_is_sound
from kernel.testing.explorer.choices import progress
from kernel.testing.explorer.forms import field
from kernel.testing.explorer.held_store import HeldStore
from kernel.testing.explorer.knowledge import possible_logs
from kernel.testing.explorer.large_worlds import WORLDS
from kernel.testing.explorer.stage import Stage
from kernel.testing.explorer.store_checks import store_at_rest, store_is_sound
from kernel.testing.explorer.world import World


def until_rest(world: World) -> Stage:
    stage = Stage(world)
    while events := progress(stage):
        stage.perform(events[0])
    return stage


def disk_of(stage: Stage) -> HeldStore:
    assert stage.store is not None
    return stage.store


def turn(*tokens: int) -> KeepTurn:
    return KeepTurn("a", StoredTurn(0, 1, array("I", tokens), "generate"))


def test_a_job_is_done_when_the_explorer_says_so_and_not_before() -> None:
    """What is on the disk until then is what a kill would leave."""
    store, reports = HeldStore(), list[StoreReport]()
    store.submit(turn(1, 2), reports.append)

    assert (store.holds("a"), "a" in store.disk.sessions, reports) == (True, False, [])
    store.end(is_done=True)
    assert (store.disk.log_of("a"), reports) == ([1, 2], [Kept()])


def test_a_job_that_fails_leaves_the_disk_as_it_was() -> None:
    """As the protocol says of a fault."""
    store, reports = HeldStore(), list[StoreReport]()
    store.submit(turn(1, 2), reports.append)
    store.submit(RemoveSession("a"), reports.append)

    store.end(is_done=False)

    assert isinstance(reports[0], StoreFault)
    assert not store.disk.sessions
    assert not store.holds("a")


def test_a_store_that_is_stopped_does_what_is_queued_and_takes_no_more() -> None:
    """The engine closes."""
    store, reports = HeldStore(), list[StoreReport]()
    store.submit(turn(1), reports.append)

    store.stop()
    store.submit(turn(2), reports.append)

    assert store.join(0.0)
    assert [type(report) for report in reports] == [StoreFault, Kept]


def test_a_turn_that_was_told_and_is_not_on_the_disk_is_broken() -> None:
    """The promise of a store."""
    stage = until_rest(WORLDS["store"])
    assert list(store_is_sound(stage)) == list(store_at_rest(stage)) == []

    disk_of(stage).disk.sessions.clear()

    assert [one.property for one in store_is_sound(stage)] == ["what was told is kept"]
    assert [one.property for one in store_at_rest(stage)] == [
        "at rest a session's log is the store's"
    ]


def test_a_snapshot_of_something_else_is_broken() -> None:
    """It would be loaded by the next turn."""
    stage = until_rest(WORLDS["store"])

    disk_of(stage).disk.sessions["a"].image = StateImage(1, {})

    assert [one.property for one in store_is_sound(stage)] == ["a snapshot is a cache of its log"]


def test_while_a_turn_is_being_kept_the_disk_may_have_it_or_not() -> None:
    """Nobody was told yet; but nothing else may stand there."""
    stage = Stage(WORLDS["store"])
    while not (stage.store and stage.store.jobs):
        stage.perform(progress(stage)[0])
    (caller,) = stage.callers

    (tokens,) = [asked.request.output.tokens for asked in caller.asked]
    possible = possible_logs(caller, has_died=False, is_disk=True)

    assert set(possible) == {(), (1,), (1, *tokens)}
    assert possible_logs(caller, has_died=False) == [()]


def test_who_starts_from_what_another_salt_has_left_is_seen() -> None:
    """By the turn that computed it; the cache might be wrong about the salt."""
    stage = Stage(WORLDS["cache"])
    while not stage.core.counters.cache_hits:
        stage.perform(progress(stage)[0])
    assert list(cache_is_sound(stage)) == []

    caller = stage.caller("p")
    salted = attrs.evolve(caller.plan, turns=(attrs.evolve(caller.plan.turns[0], salt="x"),))
    caller.plan = salted

    assert [one.property for one in cache_is_sound(stage)] == ["nobody starts from another's state"]


def test_a_cached_state_that_stands_in_the_wrong_place_is_seen() -> None:
    """It would be found by a beginning that it has not absorbed."""
    stage = Stage(WORLDS["cache"])
    while not stage.holds_states:
        stage.perform(progress(stage)[0])
    assert stage.core.scheduler is not None
    nodes = field(stage.core.scheduler.cache, "_nodes")
    _, node = next(iter(nodes.values()))

    node.edge = array("I", [9] * node.position).tobytes()

    assert [one.property for one in cache_is_sound(stage)] == ["a state holds its own history"]


def test_a_session_that_is_told_wrong_when_it_comes_back_is_seen() -> None:
    """Its caller holds what it finds against what it was told."""
    stage = until_rest(WORLDS["store"])
    (caller,) = stage.callers
    actor = caller.actor
    assert actor is not None

    actor.state.log.append(7)
    caller.adopt(actor)

    assert "comes back" in next(iter(store_is_sound(stage))).property
