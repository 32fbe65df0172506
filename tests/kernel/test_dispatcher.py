"""The dispatcher: a run queue, timers and jobs at the edge, all of it plain calls."""

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from kernel.actor import Address, Timer
from kernel.mailbox import MailboxOverflow
from ownership import CustodianId
from tests.kernel.toys import Note, Parcel, Stack, Toy, reserve


def toys(stack: Stack, names: str) -> list[Toy]:
    """Toys that write down in one list who was served."""
    return [stack.spawn(name) for name in names]


def log_of(actors: list[Toy]) -> list[str]:
    """Have the toys write into one log."""
    log: list[str] = []

    def writer(toy: Toy) -> Callable[[Note], None]:
        return lambda note: log.append(f"{toy.name}{note.text}")

    for toy in actors:
        toy.on = writer(toy)
    return log


def test_mailboxes_are_served_in_turn_by_default() -> None:
    """First come, first served, one message a turn: a flood to one actor starves no other."""
    stack = Stack()
    a, b = actors = toys(stack, "ab")
    log = log_of(actors)
    for text in "123":
        stack.post(a, Note(text))
    stack.post(b, Note("1"))
    stack.run()

    assert log == ["a1", "b1", "a2", "a3"]


def test_an_injected_choice_orders_the_mailboxes() -> None:
    """An explorer visits every order; the mail of one actor stays in order under each."""
    asked: list[int] = []

    def last(count: int) -> int:
        asked.append(count)
        return count - 1

    stack = Stack(choose=last)
    actors = toys(stack, "abc")
    log = log_of(actors)
    for toy in actors:
        stack.post(toy, Note("1"))
        stack.post(toy, Note("2"))
    stack.run()

    assert log == ["c1", "c2", "b1", "b2", "a1", "a2"]
    assert asked == [3, 3, 2, 2], "one ready mailbox is no choice"


def test_a_choice_leaves_the_others_in_their_order() -> None:
    """Otherwise a tape of choices would mean something else at each replay."""
    picks = iter([1, 0, 0])
    stack = Stack(choose=lambda count: next(picks))
    actors = toys(stack, "abcd")
    log = log_of(actors)
    for toy in actors:
        stack.post(toy, Note(""))
    stack.run()

    assert log == ["b", "a", "c", "d"]


def test_run_serves_at_most_its_limit() -> None:
    """So the caller's event loop gets a turn; True says that there is more."""
    stack = Stack()
    (toy,) = toys(stack, "a")
    for text in "123":
        stack.post(toy, Note(text))

    assert stack.dispatcher.run(2)
    assert toy.texts == ["1", "2"]
    assert not stack.dispatcher.run(2)
    assert stack.dispatcher.is_quiet


def test_every_message_is_one_hop() -> None:
    """What the benchmark divides by."""
    stack = Stack()
    (toy,) = toys(stack, "a")
    for text in "12345":
        stack.post(toy, Note(text))
    stack.run()

    assert stack.dispatcher.hops == 5


def test_a_post_to_nobody_returns_the_message() -> None:
    """Whoever posts a handle still owns it then."""
    stack = Stack()
    port = stack.ledger.batch_port(CustodianId("scheduler"))
    parcel = Parcel(reserve(port))

    assert stack.post("nobody", parcel, "scheduler") is parcel
    port.rollback(parcel.claim)


def test_an_actor_that_overflows_another_fails_itself() -> None:
    """The bound is the protocol's, and whoever breaks it has the bug."""
    stack = Stack()
    sender = stack.spawn("sender")
    target = stack.spawn("target", mail_bound=1)
    target.is_concerned = False
    sender.on = lambda note: [stack.post(target, Note("x"), "sender") for _ in range(2)]
    stack.post(sender, Note("go"))
    stack.run()

    assert isinstance(sender.abandoned_for[0].__cause__, MailboxOverflow)
    assert target.texts == ["x"]


# Timers


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
        stack.dispatcher.call_at(50.0, lambda number=number: fired.append(number))  # type: ignore[misc]
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
    for _ in range(5000):
        timer = stack.dispatcher.call_at(1e9, lambda: None)
        timer.cancel()
        made.append(weakref.ref(timer))
    del timer
    gc.collect()

    assert sum(ref() is not None for ref in made) <= 1100


def test_live_timers_survive_compaction_in_order() -> None:
    """Only the cancelled ones go."""
    stack = Stack()
    fired: list[int] = []
    for number in range(4000):
        timer = stack.dispatcher.call_at(200.0 + number, lambda n=number: fired.append(n))  # type: ignore[misc]
        if number % 100:
            timer.cancel()
    stack.advance(1e6)

    assert fired == list(range(0, 4000, 100))


# The edge


def test_a_job_at_the_edge_runs_after_its_handler_and_before_the_next_message() -> None:
    """Foreign code never runs inside an actor, and what it finds is seen at once."""
    stack = Stack()
    a, b = toys(stack, "ab")
    log: list[str] = []

    def handle(note: Note) -> None:
        stack.dispatcher.at_the_edge(lambda: log.append("job"))
        log.append("handled")

    a.on = handle
    b.on = lambda note: log.append("next")
    stack.post(a, Note(""))
    stack.post(b, Note(""))
    stack.run()

    assert log == ["handled", "job", "next"]


def test_a_job_may_put_another_job_at_the_edge() -> None:
    """All of them run before the next message."""
    stack = Stack()
    a, b = toys(stack, "ab")
    log: list[str] = []

    def job() -> None:
        stack.dispatcher.at_the_edge(lambda: log.append("second"))

    a.on = lambda note: stack.dispatcher.at_the_edge(job)
    b.on = lambda note: log.append("next")
    stack.post(a, Note(""))
    stack.post(b, Note(""))
    stack.run()

    assert log == ["second", "next"]


def test_a_job_of_a_handler_that_crashed_still_runs() -> None:
    """It was put there before the crash, and whoever it serves waits for it."""
    stack = Stack()
    (a,) = toys(stack, "a")
    log: list[str] = []

    def handle(note: Note) -> None:
        stack.dispatcher.at_the_edge(lambda: log.append("job"))
        raise RuntimeError("planted")

    a.on = handle
    stack.post(a, Note(""))
    stack.run()

    assert log == ["job"]


# Other threads, and finalizers


def test_a_post_from_another_thread_waits_in_the_inbox_and_wakes() -> None:
    """The device's thread touches no mailbox: two threads in one deque of handles is no custody."""
    stack = Stack()
    (toy,) = toys(stack, "a")
    address = Address[Note](toy.name)
    wakes: list[int] = []
    stack.dispatcher.wake_from_thread = lambda: wakes.append(threading.get_ident())
    thread = threading.Thread(
        target=lambda: stack.dispatcher.post_from_thread(address, Note("done"))
    )
    thread.start()
    thread.join()

    assert len(wakes) == 1
    assert wakes[0] != threading.get_ident()
    assert len(toy.mailbox) == 0
    assert not stack.dispatcher.is_quiet
    stack.run()
    assert toy.texts == ["done"]


def test_a_post_from_the_dispatchers_own_thread_is_delivered_at_once() -> None:
    """A device that completes inside ``submit`` needs no wake."""
    stack = Stack()
    (toy,) = toys(stack, "a")
    stack.dispatcher.post_from_thread(Address[Note](toy.name), Note("done"))

    assert len(toy.mailbox) == 1


def test_an_injected_delivery_decides_when_a_completion_comes() -> None:
    """An explorer holds completions back, and lets them in at every point."""
    held: list[Callable[[], object]] = []
    stack = Stack(deliver=held.append)
    (toy,) = toys(stack, "a")
    stack.dispatcher.post_from_thread(Address[Note](toy.name), Note("done"))
    stack.run()
    before = list(toy.texts)
    held[0]()
    stack.run()

    assert before == []
    assert toy.texts == ["done"]


class Abandoned:
    """Posts when it is collected, as an abandoned iterator does."""

    def __init__(self, stack: Stack, toy: Toy) -> None:
        self.stack = stack
        self.toy = toy

    def __del__(self) -> None:
        self.stack.dispatcher.post_later(Address[Note](self.toy.name), Note("collected"))


def test_a_finalizer_inside_a_handler_posts_and_changes_nothing_at_once() -> None:
    """Garbage is collected anywhere, also between two moves of a handler."""
    stack = Stack()
    (toy,) = toys(stack, "a")
    seen_inside: list[int] = []

    def handle(note: Note) -> None:
        if note.text == "go":
            abandoned = Abandoned(stack, toy)
            del abandoned
            gc.collect()
            seen_inside.append(len(toy.mailbox))

    toy.on = handle
    stack.post(toy, Note("go"))
    stack.run()

    assert seen_inside == [0]
    assert toy.texts == ["go", "collected"]


@pytest.mark.parametrize("way", ["post_later", "post_from_thread"])
def test_mail_for_nobody_from_outside_is_dropped(way: str) -> None:
    """A completion for a pool that has ended, a cancel for a session that has closed."""
    stack = Stack()
    getattr(stack.dispatcher, way)(Address[Note](CustodianId("nobody")), Note(""))
    stack.run()

    assert stack.dispatcher.is_quiet
    assert stack.dispatcher.hops == 0
