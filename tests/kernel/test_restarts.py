"""Restarts: a death is survived, a crash loop is not."""

from kernel.actors.supervision import Child, RestartIntensity
from ownership import CustodianId
from tests.kernel.toys import Note, Stack, Toy

A = CustodianId("a")


def reborn(stack: Stack, born: list[Toy]) -> Child:
    """Supervision of ``a`` that makes another toy of that name."""

    def restart() -> Toy:
        born.append(Toy("a", stack.dispatcher))
        return born[-1]

    return Child(restart)


def test_too_many_deaths_give_up() -> None:
    """An actor that dies at once each time would loop for ever."""
    stack = Stack(max_restarts=2)
    born: list[Toy] = []
    given_up: list[BaseException] = []
    stack.dispatcher.on_give_up = given_up.append
    stack.spawn("a", reborn(stack, born))
    for number in range(3):
        stack.dispatcher.kill(A, RuntimeError(f"death {number}"))

    assert len(born) == 2
    assert [str(error) for error in given_up] == ["death 2"]
    assert stack.dispatcher.actor(A) is None


def test_a_restart_that_fails_gives_up() -> None:
    """The dispatcher goes on, so that everybody can be told."""
    stack = Stack()
    given_up: list[BaseException] = []
    stack.dispatcher.on_give_up = given_up.append

    def restart() -> Toy:
        raise OSError("no thread")

    stack.spawn("a", Child(restart))
    other = stack.spawn("b")
    stack.dispatcher.kill(A, RuntimeError("planted"))
    stack.post(other, Note("goes on"))
    stack.run()

    assert [type(error) for error in given_up] == [OSError]
    assert other.texts == ["goes on"]


def test_restarts_are_counted_within_a_window() -> None:
    """A death a week is not a crash loop."""
    intensity = RestartIntensity(2, window_s=10.0)

    assert [intensity.allow(at) for at in (0.0, 1.0, 2.0)] == [True, True, False]
    assert intensity.allow(50.0)


def test_no_restart_at_all_can_be_configured() -> None:
    """``max_restarts=0``: the first death ends the engine."""
    assert not RestartIntensity(0, window_s=60.0).allow(0.0)
