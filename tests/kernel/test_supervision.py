"""A death is told: reclaim, answer, tell, restart, in this order and synchronously."""

import pytest

from kernel.actors.supervision import Child
from kernel.errors import EngineFault
from kernel.messages import Down
from ownership import Absorbed, Consume, CustodianId, StepFailed
from tests.kernel.toys import Note, Parcel, Stack, Toy, reserve

A = CustodianId("a")


def reborn(stack: Stack, born: list[Toy]) -> Child:
    """Supervision of ``a`` that makes another toy of that name."""

    def restart() -> Toy:
        born.append(Toy("a", stack.dispatcher))
        return born[-1]

    return Child(restart)


def crash(message: object) -> None:
    raise RuntimeError("planted")


def test_an_exception_is_the_death_of_its_actor_alone() -> None:
    """The others go on, and nothing comes out of ``run``."""
    stack = Stack()
    a, b = stack.spawn("a"), stack.spawn("b")
    a.on = crash
    stack.post(a, Note(""))
    stack.post(b, Note("still here"))
    stack.run()

    assert stack.dispatcher.actor(A) is None
    assert stack.dispatcher.deaths == 1
    assert b.texts == ["still here"]
    (event,) = stack.probe.named("actor.died")
    assert event["actor"] == "a"
    assert "planted" in str(event["error"])


def test_what_the_dead_held_is_reclaimed_and_counted() -> None:
    """Its own claims and those in its mail; the count tells a leak from a death."""
    stack = Stack()
    port = stack.ledger.batch_port(A)
    a = stack.spawn("a")
    kept = [reserve(port)]
    stack.spawn("b")
    sender = stack.ledger.batch_port(CustodianId("b"))
    stack.post(a, Parcel(reserve(sender)), "b")
    stack.dispatcher.kill(A, RuntimeError("planted"))

    assert kept
    assert stack.ledger.view.counters.reclaimed == 2
    assert stack.ledger.audit().at_rest


def test_a_lease_is_never_reclaimed() -> None:
    """The device still writes; only its completion ends a lease."""
    stack = Stack()
    port = stack.ledger.batch_port(A)
    stack.spawn("a")
    claim = reserve(port)
    lease = port.launch([claim], step=1)
    stack.dispatcher.kill(A, RuntimeError("planted"))

    assert stack.ledger.view.counters.reclaimed == 0
    assert stack.ledger.view.leases() == (lease,)
    port.rollback(port.land(lease, StepFailed("nobody waits"))[0])


def test_mail_in_hand_and_mail_undelivered_are_answered() -> None:
    """Whoever asked a dead actor something would wait for ever."""
    stack = Stack()
    a = stack.spawn("a")
    a.on = crash
    for text in ("in hand", "next", "last"):
        stack.post(a, Note(text))
    stack.run()

    assert [message.text for message, _ in a.refused] == ["in hand", "next", "last"]
    assert {type(error) for _, error in a.refused} == {EngineFault}
    assert [type(error.__cause__) for error in a.abandoned_for] == [RuntimeError]


def test_the_answer_comes_after_the_handles_have_been_reclaimed() -> None:
    """A refusal may wake a caller who submits again at once, and finds the room free."""
    stack = Stack()
    stack.spawn("b")
    sender = stack.ledger.batch_port(CustodianId("b"))
    free_at_answer: list[int] = []

    class Witness(Toy):
        def refuse(self, message: object, error: BaseException, /) -> None:
            free_at_answer.append(stack.ledger.view.free_slots)

    witness = Witness("a", stack.dispatcher)
    stack.dispatcher.spawn(witness)
    stack.post(witness, Parcel(reserve(sender)), "b")
    stack.dispatcher.kill(A, RuntimeError("planted"))

    assert free_at_answer == [4]


def test_a_peer_hears_of_the_death_before_it_can_see_the_successor() -> None:
    """What it posts in that handler reaches the new life, and what it had open has failed."""
    stack = Stack()
    born: list[Toy] = []
    first = stack.spawn("a", reborn(stack, born))
    peer = stack.spawn("b")

    def answer_a_death(message: object) -> None:
        if isinstance(message, Down):
            stack.post("a", Note("to the new one"), "b")

    peer.on = answer_a_death
    first.on = crash
    stack.post(first, Note(""))
    stack.run()

    assert peer.seen == [Down(A, 1, "RuntimeError('planted')")]
    assert (first.incarnation, born[0].incarnation) == (1, 2)
    assert born[0].texts == ["to the new one"]
    assert stack.dispatcher.incarnation_of(A) == 2


def test_a_peer_without_business_is_not_told() -> None:
    """Ten thousand idle sessions need no message each when a scheduler dies."""
    stack = Stack()
    stack.spawn("a")
    idle, busy = stack.spawn("idle"), stack.spawn("busy")
    idle.is_concerned = False
    stack.dispatcher.kill(A, RuntimeError("planted"))
    stack.run()

    assert idle.seen == []
    assert len(busy.seen) == 1


def test_the_order_is_funeral_answer_news_restart() -> None:
    """Leases go into quarantine before anybody acts on the death."""
    stack = Stack()
    log: list[str] = []

    class Witness(Toy):
        def abandon(self, error: BaseException, /) -> None:
            log.append("abandon")

        def refuse(self, message: object, error: BaseException, /) -> None:
            log.append("refuse")

    def restart() -> Toy:
        log.append(f"restart, news posted: {bool(len(peer.mailbox))}")
        return Toy("a", stack.dispatcher)

    peer = stack.spawn("b")
    witness = Witness("a", stack.dispatcher)
    stack.dispatcher.spawn(witness, Child(restart, lambda actor: log.append("funeral")))
    stack.post(witness, Note(""))
    stack.dispatcher.kill(A, RuntimeError("planted"))

    assert log == ["funeral", "abandon", "refuse", "restart, news posted: True"]


def test_an_actor_without_a_restart_stays_dead() -> None:
    """A session's state died with it; a fresh one under its name would be a lie."""
    stack = Stack()
    stack.spawn("a", Child())
    stack.dispatcher.kill(A, RuntimeError("planted"))

    assert stack.dispatcher.actor(A) is None
    assert not stack.dispatcher.kill(A, RuntimeError("again"))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_the_program_is_a_death_and_goes_on_up(
    kind: type[BaseException],
) -> None:
    """The actor was struck between two moves and can't be trusted; the program still ends."""
    stack = Stack()
    a = stack.spawn("a")

    def strike(message: object) -> None:
        raise kind

    a.on = strike
    stack.post(a, Note(""))

    with pytest.raises(kind):
        stack.run()
    assert stack.dispatcher.actor(A) is None


def test_a_peaceful_end_delivers_the_rest_of_the_mail_to_be_declined() -> None:
    """Its handles are in the actor's custody then, and it gives them back; nothing is reclaimed."""
    stack = Stack()
    stack.spawn("b")
    sender = stack.ledger.batch_port(CustodianId("b"))

    class Giver(Toy):
        def decline(self, message: Consume[Parcel], error: BaseException, /) -> None:
            stack.ledger.batch_port(A).rollback(message.claim)

    giver = Giver("a", stack.dispatcher)
    stack.dispatcher.spawn(giver)
    stack.post(giver, Parcel(reserve(sender)), "b")
    stack.dispatcher.retire(giver)
    late = Note("late")

    assert stack.ledger.audit().at_rest
    assert stack.ledger.view.counters.reclaimed == 0
    assert stack.post("a", late) is late
    assert stack.dispatcher.deaths == 0


def test_retiring_a_predecessor_leaves_the_successor_alone() -> None:
    """Names are used again; only the actor itself can end itself."""
    stack = Stack()
    first = stack.spawn("a")
    stack.dispatcher.retire(first)
    second = stack.spawn("a")
    stack.dispatcher.retire(first)

    assert stack.dispatcher.actor(A) is second


def test_mail_of_a_former_life_is_not_served_to_the_next() -> None:
    """It was answered when its addressee died."""
    stack = Stack()
    born: list[Toy] = []
    first = stack.spawn("a", reborn(stack, born))
    stack.post(first, Note("old"))
    stack.dispatcher.kill(A, RuntimeError("planted"))
    stack.post("a", Note("new"))
    stack.run()

    assert first.seen == []
    assert born[0].texts == ["new"]


def test_a_death_in_a_handler_leaves_a_landed_claim_to_nobody() -> None:
    """A handler that dies between landing and judging holds the claims: they are reclaimed."""
    stack = Stack()
    port = stack.ledger.batch_port(A)
    a = stack.spawn("a")
    launched = port.launch([reserve(port)], step=1)
    assert stack.ledger.view.leases() == (launched,)

    def land_and_die(message: object) -> None:
        (lease,) = stack.ledger.view.leases()
        a.kept.extend(port.land(lease, Absorbed((1,))))
        raise RuntimeError("planted")

    a.on = land_and_die
    stack.post(a, Note(""))
    stack.run()

    assert stack.ledger.view.counters.reclaimed == 1
    assert stack.ledger.audit().at_rest
