"""Deadlines of one session: its turns' timers, and its idle clock."""

from typing import Any

import pytest

from kernel.actors.actor import Address
from kernel.errors import QueueTimeout, SessionClosed, StallTimeout, TurnTimeout
from kernel.messages import ForgetIdle, TurnAlarm
from kernel.sessions.deadlines import Deadlines
from kernel.turn import TurnRequest
from tests.kernel.loopless import Loopless, tokens_of
from tests.kernel.toys import Stack, Toy
from tests.kernel.turns import make_output, make_request


class Scene:
    """Deadlines of a toy session."""

    def __init__(self, idle_timeout_s: float | None = None) -> None:
        self.stack = Stack()
        self.toy: Toy = self.stack.spawn("session:a")
        self.deadlines = Deadlines(
            self.stack.dispatcher, Address(self.toy.name), self.toy.name, idle_timeout_s
        )

    def request(self, **timeouts: Any) -> TurnRequest:
        output = make_output(clock=self.stack.clock, watch_reader=True)
        return make_request("t", [1], output=output, **timeouts)


def test_each_deadline_is_one_alarm_that_names_its_turn() -> None:
    """A late one can't hit the next turn."""
    scene = Scene()
    request = scene.request(queue_timeout_s=1, timeout_s=3, stall_timeout_s=2)
    scene.deadlines.begin(request)
    scene.stack.advance(10)

    assert scene.toy.seen == [
        TurnAlarm(request.id, kind) for kind in ("queue_timeout", "stall_timeout", "timeout")
    ]


def test_waiting_before_the_start_counts() -> None:
    """A deadline runs from the submit, wherever the turn has waited since."""
    scene = Scene()
    request = scene.request(timeout_s=5)
    scene.stack.advance(4)
    scene.deadlines.begin(request)
    scene.stack.advance(1)

    assert len(scene.toy.seen) == 1


def test_an_ended_turn_has_no_alarms() -> None:
    """Ending is idempotent, and a turn without deadlines has nothing to end."""
    scene = Scene()
    request = scene.request(timeout_s=5, queue_timeout_s=5)
    scene.deadlines.begin(request)
    scene.deadlines.end(request)
    scene.deadlines.end(request)
    scene.stack.advance(10)

    assert scene.toy.seen == []


def test_a_queue_alarm_is_void_once_the_turn_was_admitted() -> None:
    """It says how long a turn may wait, not how long it may run."""
    scene = Scene()
    request = scene.request(queue_timeout_s=1)
    before = scene.deadlines.has_passed(request, "queue_timeout")
    request.output.admitted_at = scene.stack.clock()

    assert before
    assert not scene.deadlines.has_passed(request, "queue_timeout")


def test_a_stall_alarm_that_comes_too_early_is_armed_again() -> None:
    """The clock runs while output lies unread, from when it began to."""
    scene = Scene()
    request = scene.request(stall_timeout_s=2)
    scene.deadlines.begin(request)
    scene.stack.clock.at += 1
    request.output.push(7, hidden=False)
    scene.stack.advance(1)
    early = scene.deadlines.has_passed(request, "stall_timeout")
    scene.stack.advance(1)

    assert not early
    assert scene.deadlines.has_passed(request, "stall_timeout")
    assert len(scene.toy.seen) == 2


def test_nothing_to_read_is_no_stall() -> None:
    """A slow model is not a slow reader."""
    scene = Scene()
    request = scene.request(stall_timeout_s=2)
    scene.deadlines.begin(request)
    scene.stack.advance(100)

    assert not scene.deadlines.has_passed(request, "stall_timeout")


def test_the_idle_alarm_names_the_rest_it_was_armed_for() -> None:
    """One that is in the mail while a turn comes and goes must not close the session."""
    scene = Scene(idle_timeout_s=5)
    scene.deadlines.rest()
    scene.stack.advance(5)
    (alarm,) = scene.toy.seen
    assert isinstance(alarm, ForgetIdle)
    valid = scene.deadlines.is_this_rest(alarm.rest)
    scene.deadlines.wake()
    scene.deadlines.rest()

    assert valid
    assert not scene.deadlines.is_this_rest(alarm.rest)


def test_a_turn_stops_the_idle_clock() -> None:
    """It starts anew when the turn has ended."""
    scene = Scene(idle_timeout_s=5)
    scene.deadlines.rest()
    scene.stack.advance(4)
    scene.deadlines.wake()
    scene.stack.advance(10)
    scene.deadlines.rest()
    scene.stack.advance(4)

    assert scene.toy.seen == []


def test_without_an_idle_timeout_nothing_is_armed() -> None:
    """A hundred thousand idle sessions cost no timer each."""
    scene = Scene()
    scene.deadlines.rest()

    assert scene.stack.dispatcher.next_timer_at() is None


# In a whole engine


def test_a_turn_that_waits_too_long_is_cancelled_with_the_number() -> None:
    """It never held anything."""
    world = Loopless.open(max_num_seqs=1)
    world.start(world.session("a"), [1])
    request = world.start(world.session("b"), [2], queue_timeout_s=2)
    world.advance(2)

    end = request.output.end
    assert end is not None
    assert isinstance(end.error, QueueTimeout)
    assert end.error.limit_s == 2


@pytest.mark.parametrize("waits_in", ["session", "device"])
def test_a_turn_that_takes_too_long_is_cancelled_wherever_it_is(waits_in: str) -> None:
    """Behind its own session's turn as well as in flight; the session is where it was."""
    world = Loopless.open()
    session = world.session("a")
    first = None
    if waits_in == "session":
        first = world.start(session, [1])
    request = world.start(session, [2], timeout_s=3, wait=True)
    world.advance(3)

    end = request.output.end
    assert end is not None
    assert isinstance(end.error, TurnTimeout)
    if first is not None:
        world.finish(first)
    else:
        world.step()
    assert len(session.state.log) == (5 if first else 0)


def test_unread_output_cancels_the_turn_at_its_deadline() -> None:
    """A client that is gone without closing its socket must not hold a row for ever."""
    world = Loopless.open()
    request = world.start(world.session("a"), [1], stall_timeout_s=2)
    world.step()
    world.advance(2)

    end = request.output.end
    assert end is not None
    assert isinstance(end.error, StallTimeout)


def test_an_idle_session_is_closed_and_a_busy_one_is_not() -> None:
    """Its state goes back to the pool."""
    world = Loopless.open()
    session = world.session("a", idle_timeout_s=5.0)
    request = world.start(session, [1])
    world.advance(50)
    while_busy = session.is_closed
    world.finish(request)
    world.advance(4.9)
    early = session.is_closed
    world.advance(0.1)

    assert (while_busy, early) == (False, False)
    assert session.is_closed
    assert len(tokens_of(request)) == 4
    world.assert_all_free()


def test_the_idle_clock_of_a_dead_session_does_not_close_its_namesake() -> None:
    """A timer posts to a name; the name may have a new owner by then."""
    world = Loopless.open()
    first = world.session("a", idle_timeout_s=5.0)
    world.advance(4)
    world.core.dispatcher.kill(first.name, SessionClosed(session_id="a"))
    second = world.session("a", idle_timeout_s=5.0)
    world.advance(2)
    early = second.is_closed
    world.advance(3)

    assert not early
    assert second.is_closed
