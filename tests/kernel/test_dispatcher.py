"""The dispatcher: a run queue, timers and jobs at the edge, all of it plain calls."""

from collections.abc import Callable

from kernel.actors.mailbox import MailboxOverflow
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


def test_no_message_begins_after_the_budget_of_time() -> None:
    """Steps that complete inside ``submit`` make handlers slow; a count alone bounds no time."""
    stack = Stack()
    (toy,) = toys(stack, "a")
    for text in "123":
        stack.post(toy, Note(text))

    def take_a_second(note: Note) -> None:
        stack.clock.at += 1

    toy.on = take_a_second

    assert stack.dispatcher.run(10, budget_s=1.5)
    assert toy.texts == ["1", "2"]


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
