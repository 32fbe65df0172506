"""P1, from M086 on: what a refused or dropped turn took for itself, and nothing else, goes back."""

from tests.kernel.loopless import Loopless
from tests.museum.exhibit import exhibit
from tests.museum.support import assert_solo, history_of, name_held_by, one_shot
from tests.ownership.support import CACHE, open_desk
from tests.scenarios.inputs import greedy, prompt


@exhibit("M172", pattern="P1", guard="ledger", bug="rollback-keeps-the-pin")
def test_m172_a_base_that_was_looked_up_and_never_read_is_not_pinned_for_ever() -> None:
    """LMCache/LMCache#1034: a pin that only the read ends stays when nothing is read.

    The pin is part of the working claim: it ends with it, read or not. A turn that was admitted
    and dropped before its first row leaves its base as evictable as it was.
    """
    world = Loopless.open(num_slots=3, max_num_batched_tokens=8)
    session = world.session("a")
    world.finish(world.start(session, prompt(5)))
    hog = world.start(one_shot(world), prompt(40, 1), greedy(2))
    turn = world.start(session, prompt(3, 2))
    world.step()
    (state,) = world.core.ledger.view.held_by(session.name)
    assert state.pinned == 1, "admitted behind the hog, its base is not read yet"
    world.cancel(session, turn)

    (state,) = world.core.ledger.view.held_by(session.name)
    assert state.pinned == 0
    again = world.start(session, prompt(3, 2))
    before = history_of(session)
    world.finish(hog)
    world.finish(again)
    assert_solo(before, again)
    world.close(session)
    world.assert_all_free()

    desk = open_desk()
    cached = desk.cache.admit(desk.hand(desk.working(8), CACHE))
    desk.batch.rollback(desk.reserve(9, name_held_by(desk, CACHE)))
    desk.cache.evict(cached)
    assert desk.is_empty()
