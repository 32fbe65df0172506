"""Posts from other threads and from finalizers: never at once, never in the middle of a move."""

import gc
import threading
from collections.abc import Callable

import pytest

from kernel.actors.actor import Address
from ownership import CustodianId
from tests.kernel.toys import Note, Stack, Toy


def test_a_post_from_another_thread_waits_in_the_inbox_and_wakes() -> None:
    """The device's thread touches no mailbox: two threads in one deque of handles is no custody."""
    stack = Stack()
    toy = stack.spawn("a")
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
    toy = stack.spawn("a")
    stack.dispatcher.post_from_thread(Address[Note](toy.name), Note("done"))

    assert len(toy.mailbox) == 1


def test_an_injected_delivery_decides_when_a_completion_comes() -> None:
    """An explorer holds completions back, and lets them in at every point."""
    held: list[Callable[[], object]] = []
    stack = Stack(deliver=held.append)
    toy = stack.spawn("a")
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
    toy = stack.spawn("a")
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
