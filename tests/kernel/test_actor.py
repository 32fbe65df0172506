"""What every actor has without doing anything for it."""

from kernel.actors.actor import Address, Timer
from kernel.messages import Down
from ownership import CustodianId
from tests.kernel.toys import Note, Stack


def test_an_actor_has_no_business_with_its_own_death() -> None:
    """It would be told of a death by its own ghost."""
    stack = Stack()
    toy = stack.spawn("a")

    assert not toy.has_business_with(toy.name)
    assert toy.has_business_with(CustodianId("b"))


def test_an_address_names_the_actor_and_no_incarnation() -> None:
    """Whoever holds one reaches the successor, after having been told of the death."""
    stack = Stack()
    address = Address[Note | Down](CustodianId("a"))
    first = stack.spawn("a")
    stack.dispatcher.kill(first.name, RuntimeError("planted"))
    second = stack.spawn("a")
    stack.dispatcher.post(address, Note("hello"), CustodianId("caller"))
    stack.run()

    assert first.texts == []
    assert second.texts == ["hello"]


def test_declined_mail_is_refused_unless_an_actor_knows_better() -> None:
    """Most mail needs the same answer from an actor that ended as from one that died."""
    stack = Stack()
    toy = stack.spawn("a")
    error = RuntimeError("over")
    toy.decline(Note("hello"), error)

    assert toy.refused == [(Note("hello"), error)]


def test_cancelling_a_timer_twice_is_harmless() -> None:
    """Ends of turns cancel all of a turn's timers, those that have fired included."""
    timer = Timer(1.0, lambda: None)
    timer.cancel()
    timer.cancel()

    assert timer.is_cancelled
