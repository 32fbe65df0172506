"""The workload: working claims, and every way in which one leaves."""

import pytest

from kernel.actors.door import Door
from kernel.errors import EngineFault
from kernel.flight import Counters, Flight
from kernel.ids import SCHEDULER
from kernel.messages import PhaseAbsorbed, TurnFailed, TurnFinished
from kernel.scheduling.parking import Parking
from kernel.scheduling.workload import Workload
from kernel.turn import OpenTurn, TurnState
from ownership import DEVICE, Absorbed, CustodianId, StepFailed
from tests.kernel.toys import Stack, Toy, reserve
from tests.kernel.turns import make_turn


class Scene:
    """A workload with a real ledger and dispatcher, and a toy for the session."""

    def __init__(self) -> None:
        self.stack = Stack()
        self.port = self.stack.ledger.batch_port(SCHEDULER)
        self.door = Door(max_reqs=10, max_tokens=100)
        self.counters = Counters()
        system, view = self.stack.dispatcher, self.stack.ledger.view
        parking = Parking(system, self.port, view, self.counters, lambda: 1)
        self.work = Workload(system, self.port, self.door, self.counters, parking)

    def session(self) -> Toy:
        return self.stack.spawn("session:a")

    def running(self, name: str = "a", arrival: int = 0) -> OpenTurn:
        turn = make_turn(name, arrival=arrival, session="session:a")
        self.door.enter(turn.id, 1)
        self.work.roster.add(turn)
        self.work.claims[turn.id] = reserve(self.port, 4, name)
        self.work.roster.run(turn)
        return turn

    def custody(self, custodian: str) -> list[str]:
        view = self.stack.ledger.view
        return [claim.turn for claim in view.held_by(CustodianId(custodian))]

    @property
    def at_rest(self) -> bool:
        return self.stack.ledger.audit().at_rest


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_finish_sends_the_claim_to_the_session(scene: Scene) -> None:
    """The session decides whether it is committed; here the turn is over."""
    session, turn = scene.session(), scene.running()
    scene.work.finish(turn, "stop", 9, 3)
    scene.stack.run()

    (message,) = session.seen
    assert isinstance(message, TurnFinished)
    assert (message.reason, message.stop_token, message.kept) == ("stop", 9, 3)
    assert scene.custody("session:a") == ["a"]
    assert turn.state is TurnState.ENDED
    assert (len(scene.work.roster), scene.door.queued_reqs) == (0, 0)


@pytest.mark.parametrize("way", ["finish", "phase"])
def test_a_claim_for_a_session_that_is_gone_is_rolled_back(scene: Scene, way: str) -> None:
    """The message comes back with the handle still ours."""
    turn = scene.running()
    if way == "finish":
        scene.work.finish(turn, "length", None, 0)
    else:
        scene.work.give_phase(turn)

    assert scene.at_rest
    assert turn.state is TurnState.ENDED
    assert not scene.work.claims


def test_a_claim_that_could_not_be_posted_is_ours_again(scene: Scene) -> None:
    """The row's guard then fails the turn, and its claim is rolled back and not lost."""
    scene.stack.spawn("session:a", mail_bound=0)
    turn = scene.running()
    with pytest.raises(RuntimeError, match="more than 0"):
        scene.work.finish(turn, "length", None, 0)
    held = scene.custody(SCHEDULER)
    scene.work.drop(turn)

    assert held == ["a"]
    assert scene.at_rest


def test_a_phase_leaves_the_turn_open(scene: Scene) -> None:
    """It goes on after the commit, with its rank."""
    session, turn = scene.session(), scene.running()
    scene.work.give_phase(turn)
    scene.stack.run()

    assert isinstance(session.seen[0], PhaseAbsorbed)
    assert turn.state is TurnState.COMMITTING
    assert scene.work.roster.get(turn.id) is turn


def test_drop_rolls_back_and_tells_nobody(scene: Scene) -> None:
    """The session has forgotten the turn already."""
    session, turn = scene.session(), scene.running()
    scene.work.drop(turn)
    scene.stack.run()

    assert scene.at_rest
    assert session.seen == []
    assert scene.door.queued_reqs == 0


def test_drop_of_a_turn_without_a_claim_forgets_it(scene: Scene) -> None:
    """A queued turn holds nothing, so there is nothing to give back."""
    turn = make_turn("queued")
    scene.work.roster.add(turn)
    scene.work.drop(turn)

    assert len(scene.work.roster) == 0
    assert scene.stack.ledger.view.counters.rollbacks == 0


def test_fail_rolls_back_before_it_tells(scene: Scene) -> None:
    """A caller who hears of it and submits again finds the room free."""
    session, turn = scene.session(), scene.running()
    fault = EngineFault(actor=SCHEDULER, why="planted")
    scene.work.fail(turn, fault)
    free = scene.stack.ledger.view.free_slots
    scene.stack.run()

    assert free == 4
    assert session.seen == [TurnFailed(turn.id, fault)]


def test_preempt_takes_the_room_and_keeps_the_turn(scene: Scene) -> None:
    """It waits again in its old place; what it has generated stays, and it starts over from 0."""
    turn = scene.running()
    turn.new += [5, 6]
    turn.position = 3
    scene.work.grows[turn.id] = turn
    scene.work.preempt(turn)

    assert scene.at_rest
    assert turn.state is TurnState.WAITING
    assert (turn.position, turn.new) == (0, [1, 5, 6])
    assert not scene.work.grows
    assert (turn.output.preemptions, scene.counters.preemptions) == (1, 1)


def test_launch_leaves_the_scheduler_without_a_handle(scene: Scene) -> None:
    """Nobody can roll back what the device writes to, because nobody has a handle to it."""
    turns = [scene.running("a"), scene.running("b", 1)]
    lease = scene.work.launch(turns, step=1)

    assert scene.work.claims == {}
    assert scene.custody(DEVICE) == ["a", "b"]
    assert all(turn.in_flight for turn in turns)
    assert scene.stack.ledger.view.leases() == (lease,)


@pytest.mark.parametrize("outcome", [Absorbed((1, 1)), StepFailed("planted")])
def test_a_landing_brings_every_claim_back_before_a_row_is_judged(
    scene: Scene, outcome: Absorbed | StepFailed
) -> None:
    """So one bad row can't leave the others' claims with the device."""
    turns = [scene.running("a"), scene.running("b", 1)]
    lease = scene.work.launch(turns, step=1)
    scene.work.take_back(Flight(lease, 1, 0.0, tuple(turns), (1, 1), (1, 1)), outcome)

    assert list(scene.work.claims) == ["a", "b"]
    assert scene.custody(SCHEDULER) == ["a", "b"]
    assert not any(turn.in_flight for turn in turns)
    for turn in turns:
        scene.work.drop(turn)
    assert scene.at_rest
