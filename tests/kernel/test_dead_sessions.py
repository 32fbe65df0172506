"""A session that dies still has callers: each is told, and looking at it is no error."""

import pytest

from kernel.engine.inspection import session_info
from kernel.errors import SessionLost
from kernel.messages import CloseSession, SchedulerMessage
from kernel.sessions.turn_ends import TurnEnds
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.toys import CALLER


def test_what_is_left_of_a_dead_session_can_be_looked_at() -> None:
    """What it held was taken back from it; asking the ledger for that would be a stale handle."""
    world = Loopless.open()
    session = world.session()
    world.finish(world.start(session, [1, 2, 3]))
    world.core.dispatcher.kill(session.name, RuntimeError("planted"))
    info = session_info(world.core, session)

    assert (info.state, info.place, info.position, info.bytes) == ("closed", "log", 0, 0)
    assert info.pending_tokens == info.num_tokens == len(session.state.log)


def test_a_session_that_dies_while_it_closes_tells_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The turn is forgotten only after its caller was told: an await would never end otherwise."""
    world = Loopless.open()
    session = world.session()
    request = world.start(session, [1, 2, 3])

    def crash(_ends: TurnEnds, _message: SchedulerMessage) -> bool:
        raise RuntimeError("planted")

    monkeypatch.setattr(TurnEnds, "_tell_scheduler", crash)
    session.mailbox.post(CloseSession(), CALLER)
    world.run()

    assert isinstance(error_of(request), SessionLost)
