"""A snapshot that is further than the state of a session, and what becomes of that state."""

import pytest

from kernel.actors.reply import Reply
from kernel.errors import StoreError
from kernel.messages import (
    DropMark,
    Exported,
    ExportSession,
    GiveUp,
    Hibernate,
    Rewind,
    SetMark,
)
from kernel.session_store import ReadSession, SessionRecord
from kernel.sessions.session import SessionActor
from kernel.testing.explorer.forms import field
from kernel.turn import TurnRequest
from tests.durable.worlds import Durable, settled
from tests.kernel.loopless import error_of, outcome, read
from tests.pressure.worlds import greedy, name_of, words


def take(world: Durable, session: SessionActor, salt: int, kind: str = "generate") -> TurnRequest:
    request = world.start(session, words(4, salt), greedy(3), kind=kind)
    world.rest()
    assert error_of(request) is None
    return request


def with_a_mark_below_its_snapshot(world: Durable) -> SessionActor:
    """A mark's state is on the device; the newer one is only on the disk."""
    session = world.session("a")
    take(world, session, 0)
    world.post(session, SetMark("m", Reply()))
    world.rest()
    take(world, session, 1)
    world.post(session, GiveUp(name_of(session)))
    world.rest()
    return session


@pytest.mark.parametrize("kind", ["append", "generate"])
def test_a_turn_from_a_snapshot_takes_the_place_of_an_older_state(kind: str) -> None:
    """It did not start from that state, which a mark had kept and nothing names any more."""
    world = Durable.on(num_slots=6, num_pages=64)
    session = with_a_mark_below_its_snapshot(world)
    for salt in (2, 3):
        take(world, session, salt)
    reply: Reply[int] = Reply()
    world.post(session, Rewind(2, reply))
    world.rest()
    assert settled(reply) == 2
    assert session.archive is not None
    kept = session.archive.snapshots.position
    assert kept is not None
    assert 0 < session.state.position < kept
    world.post(session, DropMark("m", Reply()))
    world.rest()

    request = take(world, session, 4, kind)
    assert request.output.recomputed_tokens == 0
    assert world.held_by(session) == (1 if kind == "append" else 2)
    take(world, session, 5)
    world.close(session)
    world.rest()
    world.assert_all_free()


def test_a_snapshot_that_a_repair_has_dropped_is_kept_again() -> None:
    """The store's log was cut and written anew; the snapshot beyond the cut went with it."""
    world = Durable.on(num_slots=6, num_pages=64)
    session = world.session("a")
    take(world, session, 0)
    last = take(world, session, 1)
    field(session, "_tiers").to_disk(lambda: None)
    world.rest()
    read(last)
    world.disk.lose_next.append("failed")
    reply = world.interrupt(session, 0)
    world.rest()
    assert isinstance(outcome(reply), StoreError)
    position = session.state.position

    world.post(session, Hibernate())
    world.rest()
    found = world.disk.do(ReadSession("a"))
    assert isinstance(found, SessionRecord)
    assert (session.is_closed, found.state_position) == (True, position)


@pytest.mark.parametrize("ends", ["read", "closed"])
def test_an_export_brings_the_nearer_state_where_the_further_one_is_lost(ends: str) -> None:
    """A mark's, on the device; and who closes the session meanwhile leaves nobody waiting."""
    world = Durable.on(num_slots=6, num_pages=64)
    session = with_a_mark_below_its_snapshot(world)
    nearer = session.state.base_position
    world.disk.lose_snapshot("a")
    reply: Reply[Exported] = Reply()
    world.post(session, ExportSession(reply))
    if ends == "closed":
        world.close(session)
    world.rest()

    found = settled(reply)
    assert isinstance(found, Exported)
    assert nearer > 0
    if ends == "closed":
        assert found.image is None
    else:
        assert found.image is not None
        assert found.image.position == nearer
