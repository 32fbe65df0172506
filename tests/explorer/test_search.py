"""The search: it merges, it ends, it finds shortest traces, and it says what it has not seen."""

from typing import Any

import attrs
import pytest

from kernel.actors.actor import Address
from kernel.actors.door import Door
from kernel.engine.core import Core
from kernel.ids import SCHEDULER
from kernel.messages import Rested, SchedulerMessage
from kernel.requests.output_buffer import TurnOutput
from kernel.scheduling.scheduler import Scheduler
from kernel.testing.explorer import explore, narrate, replay
from tests.explorer.small_worlds import ONE_TURN, TWO_TURNS, two_sessions


def silent(_self: object, _end: object) -> None:
    """In place of the end that a caller is told."""


def raising(_self: object, **_given: object) -> None:
    """In place of something that works."""
    raise ZeroDivisionError


def test_a_world_of_one_turn_is_all_but_a_line_of_states() -> None:
    """Nothing happens beside it but the tick after its end, which may come first or last."""
    found = explore(ONE_TURN)

    assert found.failed == 0
    assert found.is_complete
    assert found.transitions <= found.states + 1
    assert found.depth <= found.states <= found.depth + 2


def test_states_that_differ_in_names_alone_are_one() -> None:
    """Two sessions that do the same are told apart by nothing that matters."""
    alike = explore(two_sessions())
    apart = explore(two_sessions(same=()))

    assert alike.states < apart.states < 2 * alike.states
    assert alike.failed == apart.failed == 0


def test_what_a_world_expects_and_was_not_seen_is_a_failure() -> None:
    """A world that visits nothing must not pass."""
    found = explore(attrs.evolve(ONE_TURN, expects=("cancel in flight",)))

    assert found.unmet == ("cancel in flight",)
    assert found.failed == 1


def test_an_exploration_that_is_cut_off_says_so() -> None:
    """Nobody may take a part for the whole."""
    found = explore(TWO_TURNS, max_states=5)

    assert found.states == 5
    assert not found.is_complete


def test_the_progress_of_an_exploration_is_told() -> None:
    """A run of minutes must not look like one that hangs."""
    told: list[tuple[str, int]] = []

    explore(ONE_TURN, progress=lambda world, states, _, __: told.append((world.name, states)))

    assert told == [("one", 2)]


def test_a_bug_is_found_by_a_trace_that_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported can be looked at, step by step, as often as one likes."""
    monkeypatch.setattr(TurnOutput, "finish", silent)

    found = explore(ONE_TURN)

    (failure,) = found.failures
    assert failure.property == "a log is what was told"
    stage = replay(ONE_TURN, failure.trace)
    assert [what for caller in stage.callers for what in caller.unanswered()] == ["a1 has no end"]
    assert narrate(ONE_TURN, failure.trace) == failure.told
    assert failure.told[0] == "the caller: start a"
    assert str(failure).count("\n") == len(failure.trace)


def test_the_first_trace_to_a_failure_is_a_shortest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breadth first: a bug that shows after the start of one turn is shown with that alone."""
    monkeypatch.setattr(Door, "check_working", raising)

    found = explore(two_sessions(), stop_early=True)

    (failure, *_) = found.failures
    assert failure.property == "nobody dies"
    assert [event.kind for event in failure.trace] == ["start", "deliver"]


def test_what_goes_round_in_a_circle_is_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that makes its own successor would keep the engine busy for ever."""
    real = Scheduler.handle

    def handle(self: Scheduler, message: Any) -> None:
        real(self, message)
        if isinstance(message, Rested):
            self.system.post(Address[SchedulerMessage](SCHEDULER), Rested(), SCHEDULER)

    monkeypatch.setattr(Scheduler, "handle", handle)

    found = explore(ONE_TURN)

    assert [failure.property for failure in found.failures] == ["everything comes to rest"]


def test_an_error_out_of_the_kernel_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The edge calls the core, and nothing may come back at it."""
    monkeypatch.setattr(Core, "stop", raising)

    found = explore(attrs.evolve(ONE_TURN, stops=True), stop_early=True)

    assert [failure.property for failure in found.failures] == ["the kernel raises nothing"]
    assert "ZeroDivisionError" in found.failures[0].told[-1]
