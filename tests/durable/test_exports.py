"""What is exported is one session at one moment: its log, and a state of that very log."""

from typing import Any

import attrs

from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.ids import STORE, SessionId
from kernel.messages import Exported, ExportSession, GiveUp, Rewind
from kernel.session_store import SessionRecord
from kernel.sessions.session import SessionActor
from kernel.sessions.store_actor import StoreActor
from kernel.state_image import StateImage
from kernel.testing.explorer.forms import field
from tests.durable.worlds import Durable, settled
from tests.kernel.loopless import Loopless, tokens_of
from tests.kernel.toys import CALLER
from tests.pressure.worlds import greedy, name_of, words


def leave_to_disk(world: Durable, session: SessionActor) -> None:
    world.core.dispatcher.post(Address[Any](session.name), GiveUp(name_of(session)), CALLER)
    world.run()
    while world.device.waiting_transfers:
        world.copy()
    world.work()


def hold_up_reads(world: Durable) -> SessionActor:
    """One session has the only image that may be in memory, as long as its turn runs."""
    other = world.session("other")
    world.start(other, words(4, 1), greedy(3))
    world.rest()
    leave_to_disk(world, other)
    store = world.core.dispatcher.actor(STORE)
    assert isinstance(store, StoreActor)
    rules = attrs.evolve(field(store, "_rules"), max_image_bytes=1)
    vars(store)["_rules"] = rules
    world.start(other, words(4, 2), greedy(60))
    world.work()
    return other


def goes_on(record: SessionRecord, image: StateImage | None) -> list[int]:
    world = Loopless.open(num_slots=6, num_pages=64)
    session = world.core.bring_back(record, image=image, session_id=SessionId("there"))
    turn = world.start(session, words(4, 9), greedy(5))
    world.finish(turn)
    return tokens_of(turn)


def test_a_state_that_is_read_after_the_log_went_elsewhere_is_not_exported() -> None:
    """The read had to wait, and found the snapshot of what came in place of the old log."""
    world = Durable.on(num_slots=6, num_pages=64)
    session = world.session("a")
    for number in range(2):
        world.start(session, words(4, number), greedy(3))
        world.rest()
        leave_to_disk(world, session)
    other = hold_up_reads(world)
    reply: Reply[Exported] = Reply()
    world.post(session, ExportSession(reply))
    world.work()
    assert not reply.is_settled

    world.post(session, Rewind(1, Reply()))
    world.work()
    again = world.start(session, words(4, 7), greedy(3))
    while again.output.end is None:
        world.step()
        world.work()
    leave_to_disk(world, session)
    world.close(other)
    world.rest()

    found = settled(reply)
    assert isinstance(found, Exported)
    assert found.record.log_len == 14
    assert goes_on(found.record, found.image) == goes_on(found.record, None)
