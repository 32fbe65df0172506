"""The cache takes what nobody needs and gives it up first, so nobody ever waits for it."""

from typing import Any

import pytest

from kernel.engine.inspection import session_info
from kernel.errors import EngineFault
from kernel.ids import SCHEDULER
from kernel.outputs import SessionInfo
from kernel.sessions.kept_states import NO_STATE
from ownership import DEVICE
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.museum.acts import cold, finish, held, judge, one_shot, talk
from tests.prefix_cache.test_publishing import cache_of, counted, open_cached, positions, stop_world
from tests.scenarios.inputs import greedy, prompt


@pytest.mark.parametrize(("slots", "pages"), [(1, 12), (2, 12), (3, 13), (1, 100), (30, 12)])
@pytest.mark.parametrize("block", [1, 3, 8])
def test_the_smallest_pools_serve_everybody_with_a_cache_that_wants_all_of_it(
    slots: int, pages: int, block: int
) -> None:
    """One-shots and sessions, as long as the pool is, all at once; and the answers are right."""
    world = open_cached(
        num_slots=slots, num_pages=pages, prefix_cache_block=block, prefix_cache_bytes="1MiB"
    )
    sessions = [world.session(f"s{number}") for number in range(3)]
    turns = [world.start(one, prompt(20, n), greedy(9)) for n, one in enumerate(sessions)]
    asked = [prompt(4 * pages - 9), prompt(20, 1), [*prompt(9), *prompt(11, 2)], prompt(30)]
    asked = [tokens[: 4 * pages - 9] for tokens in asked]
    shots = [one_shot(world, f"r{number}", tokens, 9) for number, tokens in enumerate(asked)]
    finish(world, *turns, *shots)

    for number, turn in enumerate(turns):
        assert tokens_of(turn) == cold(prompt(20, number), 9)
    for tokens, shot in zip(asked, shots, strict=True):
        assert tokens_of(shot) == cold(tokens, 9)
    for one in sessions:
        world.close(one)
    stop_world(world)


def test_the_cache_goes_before_any_session_is_asked() -> None:
    world = open_cached(num_slots=5, prefix_cache_block=1000)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(9), 3)
    finish(world, one_shot(world, "first", prompt(20, 1), 2))
    assert world.core.ledger.view.free_slots == 5 - 1 - len(positions(world))

    fillers = [one_shot(world, f"r{number}", prompt(20, 2 + number), 2) for number in range(4)]
    world.step()
    assert held(world, session), "it still has its state"
    finish(world, *fillers)
    assert held(world, session)
    assert counted(world).forced_parks == 0
    assert counted(world).cache_evictions > 0
    talk(world, session, log, prompt(3, 1), 2)
    world.close(session)
    stop_world(world)


def test_a_turn_keeps_the_state_that_it_starts_from_and_others_go_for_it() -> None:
    """Although that state was used longest ago; and it goes too where nothing else is left."""
    world = open_cached(num_slots=3, num_pages=30, prefix_cache_block=1000)
    finish(world, one_shot(world, "first", prompt(21), 1))
    for name in list(cache_of(world).evictable()):
        if cache_of(world).books[name.version].position != 20:
            cache_of(world).evict(name)
    finish(world, one_shot(world, "other", prompt(21, 5), 6))
    assert world.core.ledger.view.free_slots == 0

    hit = one_shot(world, "hit", prompt(21), 2)
    finish(world, hit)
    assert hit.output.cached_tokens == 20
    long = one_shot(world, "long", [*prompt(21), *prompt(90, 3)], 8)
    finish(world, long)
    assert tokens_of(long) == cold([*prompt(21), *prompt(90, 3)], 8)
    stop_world(world)


def test_a_preempted_turn_starts_again_from_what_it_has_left_itself() -> None:
    world = open_cached(
        num_slots=4, num_pages=16, max_num_batched_tokens=8, scheduling_policy="priority"
    )
    junior = one_shot(world, "junior", prompt(40), 4, priority=5)
    world.step(3)
    assert positions(world) == [8, 16, 24]
    senior = one_shot(world, "senior", prompt(30, 7), 4, priority=-5)
    finish(world, senior, junior)

    assert junior.output.preemptions > 0
    assert tokens_of(senior) == cold(prompt(30, 7), 4)
    assert tokens_of(junior) == cold(prompt(40), 4)
    assert junior.output.cached_tokens == 0, "as it was first admitted"
    stop_world(world)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_nothing_is_evicted_for_a_copy_while_a_turn_waits_for_memory(is_waiting: bool) -> None:
    """A copy has no rank; without anybody waiting the state used longest ago gives way to it."""
    world = open_cached(num_slots=2, num_pages=20, max_num_batched_tokens=8)
    finish(world, one_shot(world, "before", prompt(5, 3), 1))
    assert positions(world) == [4]
    first = one_shot(world, "first", prompt(30), 2)
    waiting = one_shot(world, "waiting", prompt(70, 4), 2) if is_waiting else None
    world.step()
    assert positions(world) == ([4] if is_waiting else [8])

    finish(world, first, *([waiting] if waiting else []))
    assert tokens_of(first) == cold(prompt(30), 2)
    assert waiting is None or tokens_of(waiting) == cold(prompt(70, 4), 2)
    stop_world(world)


def test_nothing_is_evicted_for_the_budget_either_while_a_turn_waits_for_memory() -> None:
    """The slot that this frees is the one that waits."""
    world = open_cached(num_slots=2, num_pages=20, max_num_batched_tokens=8, prefix_cache_bytes=80)
    finish(world, one_shot(world, "before", prompt(5, 3), 1))
    first = one_shot(world, "first", prompt(30), 2)
    waiting = one_shot(world, "waiting", prompt(70, 4), 2)
    world.step()
    assert (positions(world), counted(world).cache_evictions) == ([4], 0)

    finish(world, first, waiting)
    assert tokens_of(first) == cold(prompt(30), 2)
    stop_world(world)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_nothing_is_evicted_for_an_end_while_a_turn_waits_for_memory(is_waiting: bool) -> None:
    """A one-shot's last state is kept as it is; the budget alone would have others go for it."""
    world = open_cached(num_slots=2, num_pages=20, prefix_cache_block=1000, prefix_cache_bytes=200)
    finish(world, one_shot(world, "before", prompt(9, 3), 1))
    assert positions(world) == [8]
    first = one_shot(world, "first", prompt(4), 10)
    waiting = one_shot(world, "waiting", prompt(76, 4), 2) if is_waiting else None
    while first.output.end is None:
        assert positions(world) == [8]
        world.step()
    # Who waited has the room by now; what counts is whether the end of the other took it first.
    assert counted(world).cache_published == (1 if is_waiting else 2)

    finish(world, *([waiting] if waiting else []))
    assert tokens_of(first) == cold(prompt(4), 10)
    stop_world(world)


def test_a_turn_that_lost_what_it_had_found_before_it_used_it_says_so() -> None:
    """Admitted from a cached state, it had no row yet when a senior took its room and the state."""
    world = open_cached(
        num_slots=4,
        num_pages=45,
        prefix_cache_block=1000,
        max_num_batched_tokens=8,
        scheduling_policy="priority",
    )
    finish(world, one_shot(world, "first", prompt(21), 1))
    senior = one_shot(world, "senior", prompt(60, 7), 20, priority=-5)
    hit = one_shot(world, "hit", [*prompt(21), *prompt(9, 2)], 3, priority=5)
    world.step()
    assert (hit.output.cached_tokens, counted(world).cached_tokens) == (20, 20)
    boss = one_shot(world, "boss", prompt(100, 3), 30, priority=-9)
    finish(world, senior, hit, boss)

    assert hit.output.preemptions == 1
    assert tokens_of(hit) == cold([*prompt(21), *prompt(9, 2)], 3)
    assert (hit.output.cached_tokens, hit.output.cache_miss) == (0, "evicted")
    assert counted(world).cached_tokens == 0
    stop_world(world)


def test_a_session_is_asked_before_the_state_that_a_turn_starts_from_goes() -> None:
    world = open_cached(num_slots=2, num_pages=60, prefix_cache_block=1000)
    finish(world, one_shot(world, "before", prompt(21), 1))
    session, log = world.session("s"), list[int]()
    first = world.start(session, prompt(2, 3), greedy(1))
    finish(world, first)
    judge(log, prompt(2, 3), first)
    assert (positions(world), world.held_by(session)) == ([20], 1)

    hit = one_shot(world, "hit", prompt(21), 2)
    finish(world, hit)
    assert (hit.output.cached_tokens, world.held_by(session)) == (20, 0)
    talk(world, session, log, prompt(3, 1), 2)
    world.close(session)
    stop_world(world)


@pytest.mark.parametrize("steps", range(1, 7))
def test_an_interrupt_between_a_state_and_the_next_step_keeps_the_session_exact(
    steps: int,
) -> None:
    """The claim that goes on has no state of its own yet: the next turn absorbs the difference."""
    world = open_cached(max_num_batched_tokens=8)
    session, log = world.session("s"), list[int]()
    turn = world.start(session, prompt(27), greedy(6))
    world.step(steps)
    world.interrupt(session, None, turn)
    if turn.output.end is None:
        world.step()
    judge(log, prompt(27), turn)
    talk(world, session, log, prompt(3, 1), 3)
    world.close(session)
    stop_world(world)


def test_an_interrupt_of_a_turn_whose_state_was_left_and_whose_step_must_wait() -> None:
    """The step is full of its seniors' rows: it has left its state and has no other one yet."""
    world = open_cached(max_num_batched_tokens=8, scheduling_policy="priority")
    session, log = world.session("s"), list[int]()
    turn = world.start(session, prompt(27), greedy(6), priority=5)
    senior = one_shot(world, "senior", prompt(30, 4), 2, priority=-5)
    world.step()
    assert positions(world) == [8]
    assert world.interrupt(session, None, turn).is_settled
    judge(log, prompt(27), turn)
    finish(world, senior)
    assert tokens_of(senior) == cold(prompt(30, 4), 2)
    talk(world, session, log, prompt(3, 1), 3)
    world.close(session)
    stop_world(world)


def test_a_dead_scheduler_loses_its_cache_and_its_successor_begins_a_new_one() -> None:
    world = open_cached()
    finish(world, one_shot(world, "first", prompt(30), 2))
    running = one_shot(world, "running", prompt(30), 2)
    assert world.core.ledger.view.held_by(DEVICE)
    world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
    world.run()
    assert isinstance(error_of(running), EngineFault)
    assert positions(world) == []
    assert world.core.ledger.audit().cache == 0

    world.step()
    again = one_shot(world, "again", prompt(30), 2)
    finish(world, again)
    assert (again.output.cached_tokens, tokens_of(again)) == (0, cold(prompt(30), 2))
    third = one_shot(world, "third", prompt(30), 2)
    finish(world, third)
    assert third.output.cached_tokens == 29
    assert world.core.stop(join_timeout_s=0).at_rest
    assert world.core.ledger.view.counters.violations == 0


def test_a_given_up_session_goes_on_from_a_cached_part_of_its_log() -> None:
    world = open_cached(num_slots=3, num_pages=60)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(30), 2)
    state = session.state
    assert state.states.current is not NO_STATE
    base = state.base
    assert state.give_up(base)  # type: ignore[arg-type]
    turn = world.start(session, prompt(5, 1), greedy(2))
    finish(world, turn)
    judge(log, prompt(5, 1), turn)
    assert turn.output.cached_tokens == 29
    assert turn.output.recomputed_tokens == 2
    world.close(session)
    stop_world(world)


def open_sliding(**options: Any) -> Loopless:
    return open_cached(num_slots=12, num_pages=60, max_model_len=40, **options)


def test_a_sliding_session_shares_what_lies_before_its_first_slide_and_nothing_behind_it() -> None:
    """Later states depend on what was dropped, and would serve nobody that keeps all."""
    world = open_sliding()
    session = world.session("s", slides=True)
    finish(world, world.start(session, prompt(70), greedy(4)))
    assert positions(world)
    assert max(positions(world)) < 40
    shot = one_shot(world, "shot", prompt(36), 3)
    finish(world, shot)
    assert shot.output.cached_tokens == 32
    assert tokens_of(shot) == cold(prompt(36), 3)

    def answer(name: str) -> tuple[list[int], SessionInfo]:
        other = world.session(name, slides=True)
        turn = world.start(other, prompt(70), greedy(4))
        finish(world, turn)
        info = session_info(world.core, other)
        assert turn.output.cached_tokens == (32 if name == "warm" else 0)
        world.close(other)
        return tokens_of(turn), info

    warm, _ = answer("warm")
    world.core.clear_cache()
    world.run()
    without, _ = answer("cold")
    assert warm == without
    world.close(session)
    stop_world(world)
