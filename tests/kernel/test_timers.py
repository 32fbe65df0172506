"""Timers of the dispatcher: the only source of time, on an injected clock."""

import gc
import weakref
from functools import partial

from kernel.actors.actor import Timer
from tests.kernel.toys import Stack


def test_a_timer_fires_when_the_clock_says_so_and_once() -> None:
    """The injected clock is the only source of time."""
    stack = Stack()
    fired: list[str] = []
    stack.dispatcher.call_at(stack.clock.at + 5, lambda: fired.append("later"))
    stack.dispatcher.call_at(stack.clock.at + 2, lambda: fired.append("soon"))
    stack.advance(1.9)
    early = list(fired)
    stack.advance(0.1)
    on_time = list(fired)
    stack.advance(100)
    stack.advance(100)

    assert (early, on_time, fired) == ([], ["soon"], ["soon", "later"])


def test_timers_of_one_moment_fire_in_order_of_arming() -> None:
    """A heap alone would not say, and a replay has to."""
    stack = Stack()
    fired: list[int] = []
    for number in range(20):
        stack.dispatcher.call_at(50.0, partial(fired.append, number))
    stack.run()

    assert fired == list(range(20))


def test_a_cancelled_timer_neither_fires_nor_wakes() -> None:
    """A shell that slept until it would wake for nothing."""
    stack = Stack()
    fired: list[int] = []
    timer = stack.dispatcher.call_at(200.0, lambda: fired.append(1))
    stack.dispatcher.call_at(300.0, lambda: fired.append(2))
    timer.cancel()

    assert stack.dispatcher.next_timer_at() == 300.0
    stack.advance(1000)
    assert fired == [2]
    assert stack.dispatcher.next_timer_at() is None


def test_only_an_earlier_timer_wakes_the_shell() -> None:
    """It sleeps until the earliest one; a later one changes nothing."""
    stack = Stack()
    wakes: list[int] = []
    stack.dispatcher.wake = lambda: wakes.append(1)
    for at in (200.0, 300.0, 150.0):
        stack.dispatcher.call_at(at, lambda: None)

    assert len(wakes) == 2


def test_cancelled_timers_are_compacted() -> None:
    """Each turn arms and cancels some for far away; kept until due, they would be a leak."""
    stack = Stack()
    made: list[weakref.ref[Timer]] = []

    def arm_and_cancel() -> None:
        timer = stack.dispatcher.call_at(1e9, lambda: None)
        timer.cancel()
        made.append(weakref.ref(timer))

    for _ in range(3000):
        arm_and_cancel()
    gc.collect()

    assert sum(ref() is not None for ref in made) <= 1100


def test_live_timers_survive_compaction_in_order() -> None:
    """Only the cancelled ones go."""
    stack = Stack()
    fired: list[int] = []
    for number in range(4000):
        timer = stack.dispatcher.call_at(200.0 + number, partial(fired.append, number))
        if number % 100:
            timer.cancel()
    stack.advance(1e6)

    assert fired == list(range(0, 4000, 100))
