"""Every transition that makes a move legal wakes the scheduler, and every ask is answered.

The scheduler looks again at any message, so a forgotten wake-up is often covered by the next one.
It is a deadlock where no next one comes. So it is the message that is looked for here, and not what
becomes of it.
"""

from typing import Any

import pytest

from kernel import SamplingParams
from kernel.actors.actor import Address
from kernel.ids import SCHEDULER, session_custodian
from kernel.messages import CancelTurn, CloseSession, Down, GiveUp, TurnFinished
from ownership import ZEROS, BaseName, CustodianId, Need, Refused
from tests.kernel.loopless import Loopless

Heard = list[str]
ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1)


@pytest.fixture
def world() -> Loopless:
    return Loopless.open()


@pytest.fixture
def heard(world: Loopless, monkeypatch: pytest.MonkeyPatch) -> Heard:
    """Names of all messages that are posted to the scheduler by others, in order."""
    names: Heard = []
    post = world.core.dispatcher.post

    def listen(target: Address[Any], message: Any, sender: CustodianId, /) -> Any:
        if target.name == SCHEDULER and sender != SCHEDULER:
            names.append(type(message).__name__)
        return post(target, message, sender)

    monkeypatch.setattr(world.core.dispatcher, "post", listen)
    return names


def test_a_session_that_comes_to_rest_wakes_the_scheduler(world: Loopless, heard: Heard) -> None:
    """What it committed can be asked for from now on."""
    world.finish(world.start(world.session(), [1], ONE_TOKEN))

    assert heard == ["Submit", "StepLanded", "Rested"]


def test_a_session_that_closes_wakes_the_scheduler(world: Loopless, heard: Heard) -> None:
    """What it had is free."""
    world.close(world.session())

    assert heard == ["Rested"]


def test_a_claim_that_comes_too_late_is_rolled_back_and_wakes_the_scheduler(
    world: Loopless, heard: Heard
) -> None:
    """Its room is free only now, after the session had come to rest."""
    session = world.session()
    request = world.start(session, [1], ONE_TOKEN)
    world.device.complete()
    while not any(isinstance(mail, TurnFinished) for mail in session.mailbox):
        world.core.dispatcher.run(1)
    heard.clear()
    session.handle(CancelTurn(request.id, "abort"))
    world.run()

    assert heard == ["Cancel", "Rested", "Rested"]


def test_a_session_that_has_handled_a_death_wakes_the_successor(
    world: Loopless, heard: Heard
) -> None:
    """Also when its turn was gone by then: the new scheduler may have looked before that."""
    session = world.session()
    world.start(session, [1])
    scheduler = world.core.scheduler
    assert scheduler is not None
    heard.clear()
    session.handle(Down(SCHEDULER, scheduler.incarnation, "planted"))
    session.handle(Down(SCHEDULER, scheduler.incarnation, "planted"))

    assert heard == ["Rested", "Rested", "Rested"]


def test_a_lease_that_supervision_lands_wakes_the_scheduler(world: Loopless, heard: Heard) -> None:
    """Its rows are free, and no scheduler has seen it land."""
    port = world.core.ledger.batch_port(CustodianId("the dead"))
    claim = port.reserve(Need(1), ZEROS, turn="turn")
    assert not isinstance(claim, Refused)
    world.core.recovery.land_as_failed(port.launch([claim], step=1))

    assert heard == ["Rested"]
    world.run()
    assert world.core.ledger.audit().at_rest


def test_an_ask_that_a_closed_session_never_read_is_answered(world: Loopless, heard: Heard) -> None:
    """The scheduler waits for the answer, and would ask nobody else."""
    session = world.session()
    world.finish(world.start(session, [1], ONE_TOKEN))
    heard.clear()
    session.mailbox.post(CloseSession(), session.name)
    name = session_custodian(session.session_id)
    session.mailbox.post(GiveUp(BaseName(name, 1)), session.name)
    world.run()

    assert sorted(heard) == ["GaveUp", "Rested"]
