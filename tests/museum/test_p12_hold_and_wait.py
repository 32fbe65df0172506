"""P12: everybody holds and waits; no headroom, or a need that nothing can meet."""

import pytest

from tests.kernel.loopless import Loopless
from tests.museum.acts import finish, greedy, held, judge, one_shot, prompt, talk, working
from tests.museum.exhibit import exhibit


@exhibit("M021", pattern="P12", guard="admission rule", bug="idle-sessions-are-not-asked")
@pytest.mark.parametrize("short_of", ["slots", "pages"])
def test_m021_sessions_that_fill_the_pool_all_take_their_next_turns(short_of: str) -> None:
    """sgl-project/sglang#27024: a few idle sessions pinned nearly all of the pool; nobody ran.

    A session at rest is asked for its state and goes on from its log; the most senior turn always
    gets what it needs.
    """
    pools = {"slots": (4, 60), "pages": (9, 12)}
    num_slots, num_pages = pools[short_of]
    world = Loopless.open(num_slots=num_slots, num_pages=num_pages)
    sessions = [world.session(f"s{number}") for number in range(4)]
    logs: list[list[int]] = [[] for _ in sessions]
    for number, session in enumerate(sessions):
        talk(world, session, logs[number], prompt(9, number), 4)
    assert min(world.free) == 0

    turns = [world.start(session, prompt(6, 9), greedy(5)) for session in sessions]
    finish(world, *turns)
    for turn, log in zip(turns, logs, strict=True):
        judge(log, prompt(6, 9), turn)
    assert world.core.counters.forced_parks
    for session in sessions:
        world.close(session)
    world.assert_all_free()


@exhibit("M039", pattern="P12", guard="ledger", bug="refusal-keeps-a-slot")
def test_m039_all_that_a_turn_needs_is_taken_at_once_or_not_at_all() -> None:
    """sgl-project/sglang#34676: admission counted one resource, allocation needed several.

    There are slots enough and pages too few: no part is taken, the turn waits in its place, and
    nothing escapes.
    """
    world = Loopless.open(num_slots=4, num_pages=8)
    senior = one_shot(world, "senior", prompt(18, 1), 8)
    world.step()
    turn = one_shot(world, "turn", prompt(13, 2), 3)
    while senior.output.end is None:
        assert world.free[0] == 3
        assert working(world, turn) is None
        assert turn.output.end is None
        world.step()
    assert working(world, turn) is not None
    finish(world, turn)
    judge([], prompt(18, 1), senior)
    judge([], prompt(13, 2), turn)
    assert world.core.dispatcher.deaths == 0
    world.assert_all_free()


@exhibit("M058", pattern="P12", guard="admission rule", bug="growth-forgets-the-frozen-pages")
def test_m058_what_a_turn_takes_is_bounded_by_its_length() -> None:
    """sgl-project/sglang#36855: a prompt that was not to be cached allocated anew with each chunk.

    The prompt's pages are taken once, then one as the answer reaches it, whether or not anything is
    kept: a pool that is just large enough is enough.
    """
    world = Loopless.open(num_slots=1, num_pages=7, max_num_batched_tokens=4)
    turn = one_shot(world, "turn", prompt(12), 16)
    taken: list[int] = []
    while turn.output.end is None:
        claim = working(world, turn)
        assert claim is not None
        known = 12 + len(turn.output.tokens)
        assert len(claim.pages) == -(-known // 4)
        taken.append(7 - world.free[1])
        world.step()
    assert taken[:3] == [3, 3, 3]
    assert taken == sorted(taken)
    assert taken[-1] == 7
    judge([], prompt(12), turn)
    world.assert_all_free()

    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(12), 4)
    assert [len(claim.pages) for claim in held(world, session)] == [4]
    world.close(session)
