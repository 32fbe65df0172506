"""P2: what is borrowed and what is owned are the same bare index."""

from tests.kernel.loopless import Loopless
from tests.museum.acts import greedy, held, judge, prompt, talk, working
from tests.museum.exhibit import exhibit


@exhibit("M007", pattern="P2", guard="ledger", bug="turn-borrows-its-sessions-slot")
def test_m007_a_session_and_its_running_turn_are_counted_once_each() -> None:
    """sgl-project/sglang#22213: one slot stood under the session and under its running turn.

    The turn works in a copy: at any chunk the two have a slot each, and the sums say so.
    """
    world = Loopless.open(num_slots=4, num_pages=40, max_num_batched_tokens=4)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(6), 4)
    tokens = prompt(15, 1)
    turn = world.start(session, tokens, greedy(3))

    chunks = 0
    while turn.output.end is None:
        audit = world.core.ledger.audit()
        mine, (owned,) = working(world, turn), held(world, session)
        assert mine is not None
        assert mine.slot != owned.slot
        assert owned.position == 9
        assert (audit.session, audit.batch, audit.free_slots) == (1, 1, 2)
        pages = audit.exclusive_pages + audit.shared_pages
        assert pages == len({*mine.pages, *owned.pages}) == 40 - audit.free_pages
        world.step()
        chunks += 1
    assert chunks >= 6
    judge(log, tokens, turn)
    world.close(session)
    world.assert_all_free()
