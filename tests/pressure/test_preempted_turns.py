"""A preempted turn's state waits in host memory; whatever ends the turn there ends it clean."""

import attrs
import pytest

from kernel.engine.inspection import stats
from kernel.errors import EngineFault, RequestAborted, SessionClosed, SessionLost
from kernel.ids import SCHEDULER
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest, TurnState
from ownership import Place
from tests.kernel.loopless import Loopless, error_of, read, tokens_of
from tests.pressure.worlds import (
    assert_all_free,
    assert_cold,
    drain,
    greedy,
    open_world,
    places_of,
    talk,
    words,
)

STAGES = ("copying", "parked", "in flight", "landed")


@attrs.define(eq=False)
class Scene:
    """Two turns on pages for one and a half: the senior has grown into the junior's."""

    world: Loopless
    senior: TurnRequest
    session: SessionActor
    junior: TurnRequest

    @classmethod
    def open(cls, stage: str = "copying", **config: object) -> "Scene":
        world = open_world(**{"num_slots": 3, "num_pages": 5, "max_num_seqs": 2, **config})
        senior = world.start(world.session("senior", is_one_shot=True), words(7), greedy(9))
        session = world.session("junior")
        junior = world.start(session, words(5, 3), greedy(9))
        while not junior.output.preemptions:
            world.step()
        scene = cls(world, senior, session, junior)
        scene.go_on_to(stage)
        return scene

    def go_on_to(self, stage: str) -> None:
        """Move on to a point of the junior's way."""
        world = self.world
        if stage == "copying":
            assert len(world.device.waiting_transfers) == 1
            assert self.state() is TurnState.PARKING
            return
        world.copy()
        assert self.state() is TurnState.WAITING
        assert len(world.device.waiting) == 1, "the senior goes on"
        if stage == "parked":
            return
        world.finish(self.senior)
        assert self.state() is TurnState.RUNNING
        assert self.junior.output.recomputed_tokens == 0
        if stage == "landed":
            world.step()

    def state(self) -> TurnState:
        scheduler = self.world.core.scheduler
        assert scheduler is not None
        turn = scheduler.roster.get(self.junior.id)
        assert turn is not None
        return turn.state

    @property
    def num_parked(self) -> int:
        scheduler = self.world.core.scheduler
        assert scheduler is not None
        return len(scheduler.parking.parked)

    def assert_clean(self) -> None:
        drain(self.world)
        assert len(tokens_of(self.senior)) == 9
        assert_cold(self.world, words(7), tokens_of(self.senior))
        if not self.session.is_closed:
            self.world.close(self.session)
        assert_all_free(self.world)


def test_a_preempted_turn_computes_nothing_again() -> None:
    """Its state came back as it was, and its tokens are those of a turn that nobody disturbed."""
    scene = Scene.open()
    scene.world.finish(scene.junior)

    assert scene.junior.output.preemptions == 1
    assert scene.junior.output.recomputed_tokens == 0
    assert scene.world.core.counters.recomputed_tokens == 0
    assert_cold(scene.world, words(5, 3), tokens_of(scene.junior))
    talk(scene.world, scene.session, words(2), 2)
    scene.assert_clean()


def test_without_host_memory_it_computes_its_context_again() -> None:
    """The room comes back at once, and the tokens are the same."""
    world = open_world(num_slots=3, num_pages=5, max_num_seqs=2, host_memory_bytes=0)
    senior = world.start(world.session("senior", is_one_shot=True), words(7), greedy(9))
    session = world.session("junior")
    junior = world.start(session, words(5, 3), greedy(9))
    world.finish(junior)
    assert junior.output.recomputed_tokens > 0
    assert_cold(world, words(5, 3), tokens_of(junior))
    Scene(world, senior, session, junior).assert_clean()


def test_the_room_is_the_seniors_only_when_the_copy_has_landed() -> None:
    """The device still reads it; nobody else is asked for what is coming already."""
    scene = Scene.open()
    world = scene.world
    asked = world.core.counters.forced_parks
    world.start(world.session("other", is_one_shot=True), words(1), greedy(1))
    assert not world.device.waiting, "no junior is admitted while a senior waits for room"
    assert world.core.counters.forced_parks == asked
    scene.assert_clean()


def test_a_copy_that_fails_leaves_a_turn_that_waits() -> None:
    """Its claim goes back, and it computes its context again."""
    scene = Scene.open()
    scene.world.device.fail_transfer()
    scene.world.run()
    assert scene.state() is TurnState.WAITING
    assert scene.num_parked == 0
    scene.world.finish(scene.junior)
    assert scene.junior.output.recomputed_tokens > 0
    assert_cold(scene.world, words(5, 3), tokens_of(scene.junior))
    scene.assert_clean()


@pytest.mark.parametrize("stage", STAGES)
def test_a_cancelled_turn_gives_back_all_that_it_has(stage: str) -> None:
    """Both handles, in whatever place; the session is where it was."""
    scene = Scene.open(stage)
    scene.world.cancel(scene.session, scene.junior)
    assert isinstance(error_of(scene.junior), RequestAborted)
    assert len(scene.session.state.log) == 0
    talk(scene.world, scene.session, words(4, 8), 3)
    scene.assert_clean()


@pytest.mark.parametrize("stage", STAGES)
def test_a_closed_session_gives_back_all_that_its_turn_has(stage: str) -> None:
    """Close forgets the turn, wherever that is."""
    scene = Scene.open(stage)
    scene.world.close(scene.session)
    assert isinstance(error_of(scene.junior), SessionClosed)
    scene.assert_clean()


@pytest.mark.parametrize("stage", STAGES)
def test_a_dead_session_leaves_nothing_of_its_turn(stage: str) -> None:
    """The scheduler hears of it as of a cancel."""
    scene = Scene.open(stage)
    scene.world.core.dispatcher.kill(scene.session.name, RuntimeError("planted"))
    scene.world.run()
    assert isinstance(error_of(scene.junior), SessionLost)
    scene.assert_clean()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("keep", [None, 1, 0])
def test_an_interrupted_turn_ends_with_its_state_wherever_that_is(
    stage: str, keep: int | None
) -> None:
    """Committed if it lies within what is kept; the next turn never computes it again."""
    scene = Scene.open(stage)
    read(scene.junior)
    received = scene.junior.output.delivered
    scene.world.interrupt(scene.session, keep, scene.junior)
    if stage in ("in flight", "landed"):
        scene.world.step()
    end = scene.junior.output.end
    assert end is not None
    assert end.reason == "interrupt"
    if keep is not None:
        assert end.kept == keep
    else:
        assert end.kept >= received
    assert_cold(scene.world, words(5, 3), tokens_of(scene.junior))
    place = Place.HOST if stage == "parked" else Place.DEVICE
    assert places_of(scene.world, scene.session) == ([place] if keep is None else [])
    drain(scene.world)
    again = talk(scene.world, scene.session, words(4, 8), 3)
    assert again.output.recomputed_tokens == 0
    scene.assert_clean()


@pytest.mark.parametrize("how", ["goes on", "cancel", "interrupt", "close", "die", "preempt"])
def test_a_turn_that_was_admitted_again_and_has_no_row_yet_has_two_claims(how: str) -> None:
    """One in host memory, one on the device that has yet to be filled; all ends give back both."""
    world = open_world(
        num_slots=3,
        num_pages=9,
        max_num_seqs=2,
        max_num_batched_tokens=2,
        scheduling_policy="priority",
    )
    session = world.session("junior")
    junior = world.start(session, words(12, 3), greedy(4), priority=5)
    world.step(2)
    senior = world.start(
        world.session("senior", is_one_shot=True), words(31), greedy(2), priority=-50
    )
    world.step()
    scene = Scene(world, senior, session, junior)
    world.copy()
    assert scene.state() is TurnState.WAITING
    urgent = world.start(
        world.session("urgent", is_one_shot=True), words(9, 2), greedy(2), priority=-40
    )
    world.finish(senior)
    assert (scene.state(), scene.num_parked) == (TurnState.RUNNING, 1)
    assert len(world.device.waiting[0].rows) == 1, "the urgent prompt takes the whole budget"
    _end(scene, how)
    world.finish(urgent)
    if how in ("goes on", "preempt"):
        world.finish(junior)
        assert junior.output.recomputed_tokens == 0
        assert_cold(world, words(12, 3), tokens_of(junior))
    if how not in ("die", "close"):
        talk(world, session, words(4, 8), 3)
        world.close(session)
    drain(scene.world)
    assert_all_free(world)


def _end(scene: Scene, how: str) -> None:
    world = scene.world
    if how == "cancel":
        world.cancel(scene.session, scene.junior)
    elif how == "interrupt":
        world.interrupt(scene.session, None, scene.junior)
        assert places_of(world, scene.session) == [Place.HOST]
    elif how == "close":
        world.close(scene.session)
    elif how == "die":
        world.core.dispatcher.kill(scene.session.name, RuntimeError("planted"))
        world.run()
    elif how == "preempt":
        other = world.start(
            world.session("other", is_one_shot=True), words(30), greedy(2), priority=-90
        )
        world.step()
        assert (scene.state(), scene.num_parked) == (TurnState.WAITING, 1)
        world.finish(other)


def test_an_interrupted_turn_without_a_state_ends_without_one() -> None:
    """The other outcome: there is no host memory, so nothing can be committed."""
    world = open_world(num_slots=3, num_pages=5, max_num_seqs=2, host_memory_bytes=0)
    senior = world.start(world.session("senior", is_one_shot=True), words(7), greedy(9))
    session = world.session("junior")
    junior = world.start(session, words(5, 3), greedy(9))
    while not junior.output.preemptions:
        world.step()
    kept = len(junior.output.tokens)
    world.interrupt(session, None, junior)

    end = junior.output.end
    assert end is not None
    assert (end.reason, end.kept) == ("interrupt", kept)
    assert places_of(world, session) == []
    assert len(session.state.log) == 5 + kept
    world.finish(senior)
    talk(world, session, words(4, 8), 3)
    Scene(world, senior, session, junior).assert_clean()


@pytest.mark.parametrize("stage", STAGES)
def test_an_engine_that_stops_takes_all_of_a_preempted_turn_back(stage: str) -> None:
    """Its session is closed, its turn ends, and a copy under way lands before the audit."""
    scene = Scene.open(stage)
    assert stats(scene.world.core).num_requests_waiting == (stage in ("copying", "parked"))
    audit = scene.world.core.stop(join_timeout_s=0.0)
    assert audit.at_rest, audit
    assert scene.world.core.ledger.view.counters.reclaimed == 0
    assert scene.junior.output.end is not None


@pytest.mark.parametrize("stage", STAGES)
def test_a_scheduler_that_dies_leaves_nothing_of_a_preempted_turn(stage: str) -> None:
    """Its turns fail; what it held is taken back, a copy under way when it lands."""
    scene = Scene.open(stage)
    world = scene.world
    world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
    world.run()
    assert isinstance(error_of(scene.junior), EngineFault)
    drain(scene.world)
    talk(world, scene.session, words(4, 8), 3)
    world.close(scene.session)
    audit = world.core.ledger.audit()
    assert audit.at_rest, audit
    assert not world.device.poison_reads


def test_a_pool_that_dies_with_the_copy_leaves_a_turn_that_computes_again() -> None:
    """Its claim drains behind the device that hangs; the turn itself goes on."""
    world = open_world(num_slots=4, num_pages=8, max_num_seqs=2, step_timeout_s=5.0)
    senior = world.start(world.session("senior", is_one_shot=True), words(15), greedy(9))
    session = world.session("junior")
    world.device.hang_next_transfer()
    junior = world.start(session, words(5, 3), greedy(14))
    while not junior.output.preemptions:
        world.step()
    world.advance(6.0)
    assert junior.output.end is None, "it was in no step, so it lives on"
    world.device.unhang()
    world.run()
    world.copy()
    world.finish(junior)
    assert junior.output.recomputed_tokens > 0
    assert_cold(world, words(5, 3), tokens_of(junior))
    world.finish(senior)
    world.close(session)
    assert_all_free(world)


def test_what_is_on_its_way_to_host_memory_is_counted_on() -> None:
    """One junior makes the room; the other runs on beside the copy."""
    world = open_world(num_slots=4, num_pages=6, max_num_seqs=3)
    senior = world.start(world.session("senior", is_one_shot=True), words(7), greedy(5))
    others = [
        world.start(world.session(f"j{number}", is_one_shot=True), words(5, number), greedy(4))
        for number in range(2)
    ]
    while not others[1].output.preemptions:
        world.step()
    assert len(world.device.waiting_transfers) == 1
    world.step()
    assert others[0].output.preemptions == 0
    world.copy()
    for request in (senior, *others):
        world.finish(request)
        assert request.output.recomputed_tokens == 0
    assert world.core.counters.preemptions == 1
    assert_all_free(world)
