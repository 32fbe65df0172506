"""A turn leaves states where they are wanted, once the step that wrote them has landed."""

from typing import Any

import pytest

from kernel import RequestAborted
from kernel.engine.inspection import session_info, stats
from kernel.ids import SCHEDULER
from kernel.outputs import EngineStats
from kernel.prefixes.cache import PrefixCache
from ownership import DEVICE
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.museum.acts import cold, finish, judge, one_shot, talk, working
from tests.scenarios.inputs import greedy, prompt


def open_cached(**options: Any) -> Loopless:
    """Pages of four tokens, blocks of eight, steps of sixteen."""
    given: dict[str, Any] = {
        "num_slots": 12,
        "num_pages": 120,
        "enable_prefix_caching": True,
        "prefix_cache_block": 8,
        "max_num_batched_tokens": 16,
        **options,
    }
    return Loopless.open(**given)


def cache_of(world: Loopless) -> PrefixCache:
    scheduler = world.core.scheduler
    assert scheduler is not None
    assert scheduler.cache is not None
    return scheduler.cache


def positions(world: Loopless) -> list[int]:
    cache = cache_of(world)
    return sorted(cache.books[number].position for number in cache.states)


def counted(world: Loopless) -> EngineStats:
    return stats(world.core)


def stop_world(world: Loopless) -> None:
    """The end: the audit is at rest, and nothing was read that nobody wrote."""
    assert not world.device.poison_reads
    audit = world.core.stop(join_timeout_s=0)
    assert audit.at_rest, audit
    world.assert_all_free()


def test_a_prompt_leaves_states_at_its_blocks_at_its_end_and_after_its_answer() -> None:
    world = open_cached()
    request = one_shot(world, "first", prompt(30), 5)
    finish(world, request)

    assert positions(world) == [8, 16, 24, 29, 34]
    assert (request.output.cached_tokens, request.output.cache_miss) == (0, "cold")
    assert request.output.end is not None
    assert (request.output.end.reason, request.output.end.kept) == ("length", 5)
    again = one_shot(world, "again", prompt(30), 5)
    finish(world, again)
    assert (again.output.cached_tokens, again.output.cache_miss) == (29, None)
    assert tokens_of(again) == tokens_of(request) == cold(prompt(30), 5)
    assert positions(world) == [8, 16, 24, 29, 34], "nothing new"
    found = counted(world)
    assert (found.cache_hits, found.cache_misses, found.cache_states) == (1, 1, 5)
    assert found.cached_tokens == 29
    stop_world(world)


def test_a_request_that_sends_the_history_again_goes_on_where_the_answer_ended() -> None:
    """The last state of a one-shot is kept as it is, without a copy."""
    world = open_cached()
    first = one_shot(world, "first", prompt(13), 6)
    finish(world, first)
    history = [*prompt(13), *tokens_of(first)]
    second = one_shot(world, "second", [*history, *prompt(5, 3)], 4)
    finish(world, second)

    assert second.output.cached_tokens == len(history) - 1
    assert tokens_of(second) == cold([*history, *prompt(5, 3)], 4)
    stop_world(world)


def test_a_one_shot_whose_state_is_kept_ends_as_it_ended() -> None:
    """By a stop token or a stop string, with what is kept of its answer."""
    world = open_cached()
    answer = cold(prompt(13), 6)
    for params, reason, stop in (
        (greedy(6, stop_token_ids=[answer[3]]), "stop", answer[3]),
        (greedy(6, stop=[world.device.tokenizer.decode([answer[3]])]), "stop", None),
    ):
        request = world.start(world.session("r", is_one_shot=True), prompt(13), params)
        finish(world, request)
        end = request.output.end
        assert end is not None
        assert (end.error, end.reason) == (None, reason)
        assert stop is None or end.stop_reason == stop
        assert tokens_of(request) == answer[: end.kept]
    assert positions(world)
    stop_world(world)


def test_where_prompts_part_the_second_leaves_a_state_and_the_third_finds_it() -> None:
    world = open_cached(prefix_cache_block=1000)
    for number, found in enumerate([0, 0, 21]):
        asked = [*prompt(21), *prompt(9, number + 1)]
        request = one_shot(world, f"r{number}", asked, 3)
        finish(world, request)
        assert request.output.cached_tokens == found
        assert request.output.cache_miss == ("cold", "parted", None)[number]
        assert tokens_of(request) == cold(asked, 3)
        assert (21 in positions(world)) == (number > 0)
    stop_world(world)


def test_positions_that_the_caller_names_are_kept() -> None:
    world = open_cached(prefix_cache_block=1000)
    finish(world, one_shot(world, "first", prompt(30), 2, cache_at=(3, 17, 18)))

    assert positions(world) == [3, 17, 18, 29]
    other = one_shot(world, "other", [*prompt(17), *prompt(6, 4)], 2)
    finish(world, other)
    assert other.output.cached_tokens == 17
    stop_world(world)


def test_a_first_turn_of_a_session_starts_from_what_a_one_shot_left_and_leaves_states_too() -> None:
    world = open_cached()
    finish(world, one_shot(world, "first", prompt(30), 2))
    session, log = world.session("s"), list[int]()
    turn = world.start(session, prompt(30), greedy(4))
    finish(world, turn)
    judge(log, prompt(30), turn)
    assert turn.output.cached_tokens == 29
    talk(world, session, log, prompt(40, 2), 3)
    assert positions(world)[-1] <= 31, "a session's own history is its own"

    other = world.session("t")
    talk(world, other, [], prompt(40, 9), 3)
    again = one_shot(world, "again", prompt(40, 9), 3)
    finish(world, again)
    assert again.output.cached_tokens == 39
    assert session_info(world.core, session).cache_miss is None
    assert session_info(world.core, other).cache_miss == "cold"
    world.close(session)
    world.close(other)
    stop_world(world)


def test_a_named_position_of_a_later_turn_is_kept_and_the_turn_commits() -> None:
    """The claim that goes on after it counts as one that started from the session's state."""
    world = open_cached()
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(9), 3)
    turn = world.start(session, prompt(20, 1), greedy(3), cache_at=(18,))
    finish(world, turn)
    judge(log, prompt(20, 1), turn)

    assert 18 in positions(world)
    assert session.state.position == len(log) - 1
    assert world.held_by(session) == 2, "its state, and the checkpoint before it"
    talk(world, session, log, prompt(3, 2), 3)
    world.close(session)
    stop_world(world)


@pytest.mark.parametrize("named", [12, 18, 19, 20, 24])
def test_a_named_position_is_kept_in_either_phase_of_a_turn_and_between_them(named: int) -> None:
    """What an interrupt has left pending is absorbed and committed first, up to position 19."""
    world = open_cached(prefix_cache_block=1000)
    session, log = world.session("s"), list[int]()
    first = world.start(session, prompt(20), greedy(10))
    world.step(4)
    world.interrupt(session, 0, first)
    world.step()
    judge(log, prompt(20), first)
    cache_of(world).clear()
    assert (len(log), session.state.position) == (20, 0)

    turn = world.start(session, prompt(9, 3), greedy(2), cache_at=(named,))
    finish(world, turn)
    judge(log, prompt(9, 3), turn)
    assert named in positions(world)
    world.close(session)
    stop_world(world)


def test_the_state_is_there_from_the_landing_on_and_not_before() -> None:
    world = open_cached()
    request = one_shot(world, "first", prompt(30), 2)
    claim = working(world, request)
    assert claim is not None
    assert (claim.custodian, positions(world)) == (DEVICE, [])

    world.step()
    assert positions(world) == [8]
    view = world.core.ledger.view
    (kept,) = view.held_by(SCHEDULER)
    (going_on,) = view.held_by(DEVICE)
    assert (kept.claim, kept.pinned, len(kept.pages)) == (claim.claim, 1, 2)
    assert going_on.pages[:2] == kept.pages, "shared, not copied"
    assert going_on.slot != kept.slot
    finish(world, request)
    assert tokens_of(request) == cold(prompt(30), 2)
    stop_world(world)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_step_that_fails_leaves_no_state_and_spoils_none(steps: int) -> None:
    world = open_cached()
    request = one_shot(world, "first", prompt(30), 2)
    world.step(steps)
    before = positions(world)
    assert len(before) == steps
    world.device.fail()
    world.run()
    assert error_of(request) is not None
    assert positions(world) == before

    again = one_shot(world, "again", prompt(30), 2)
    finish(world, again)
    assert again.output.cached_tokens == 8 * steps
    assert tokens_of(again) == cold(prompt(30), 2)
    stop_world(world)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5])
def test_what_a_cancelled_prefill_has_left_serves_its_retry(steps: int) -> None:
    world = open_cached()
    session = world.session("s")
    turn = world.start(session, prompt(30), greedy(4))
    world.step(steps)
    world.cancel(session, turn)
    assert isinstance(error_of(turn), RequestAborted)
    retry = world.start(session, prompt(30), greedy(4))
    world.finish(retry)

    log = list[int]()
    judge(log, prompt(30), retry)
    assert retry.output.cached_tokens == min(8 * steps, 24 if steps < 4 else 29)
    world.close(session)
    stop_world(world)


def test_a_prompt_whose_log_probabilities_are_asked_for_is_computed() -> None:
    """And still leaves its states to others."""
    world = open_cached()
    params = greedy(3, prompt_logprobs=1)
    for number in range(2):
        session = world.session(f"r{number}", is_one_shot=True)
        request = world.start(session, prompt(30), params)
        finish(world, request)
        assert (request.output.cached_tokens, len(request.output.prompt_logprobs)) == (0, 30)
        assert request.output.cache_miss == "prompt_logprobs"
    again = one_shot(world, "again", prompt(30), 3)
    finish(world, again)
    assert again.output.cached_tokens == 29
    stop_world(world)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_what_is_shorter_than_a_page_is_not_kept(length: int) -> None:
    world = open_cached()
    request = one_shot(world, "first", prompt(length), 1)
    finish(world, request)

    assert positions(world) == ([4] if length == 4 else [])
    assert request.output.cache_miss == "short"
    stop_world(world)


def test_off_is_off() -> None:
    """No state is kept, no row is cut, and the turn says so."""
    world = Loopless.open(num_slots=4, num_pages=40, max_num_batched_tokens=16)
    request = one_shot(world, "first", prompt(30), 2)
    (step,) = world.device.waiting
    assert [len(row.tokens) for row in step.rows] == [16]
    finish(world, request)

    assert (request.output.cached_tokens, request.output.cache_miss) == (0, "off")
    found = counted(world)
    assert (found.cache_hits, found.cache_misses, found.cache_states) == (0, 0, 0)
    world.assert_all_free()


def test_a_session_keeps_to_its_salt() -> None:
    """Until it is given another; its forks keep to it too."""
    world = open_cached()
    session = world.session("s")
    finish(world, world.start(session, prompt(30), greedy(2), cache_salt="alice"))
    for salt, found in ((None, 0), ("bob", 0), ("alice", 29)):
        other = one_shot(world, f"from {salt}", prompt(30), 2, cache_salt=salt)
        finish(world, other)
        assert other.output.cached_tokens == found
    fork = world.session("f", parent=session)
    assert session.state.cache_salt == fork.state.cache_salt == "alice"
    world.close(session)
    world.close(fork)
    stop_world(world)


def test_two_at_once_leave_one_state_each_place() -> None:
    world = open_cached(num_slots=20)
    both = [one_shot(world, f"r{number}", prompt(30), 3) for number in range(2)]
    finish(world, *both)

    assert positions(world) == [8, 16, 24, 29, 32] or positions(world) == [8, 16, 24, 29]
    assert [tokens_of(request) for request in both] == [cold(prompt(30), 3)] * 2
    stop_world(world)


def test_clearing_evicts_all_and_what_runs_goes_on() -> None:
    world = open_cached()
    finish(world, one_shot(world, "first", prompt(30), 2))
    request = one_shot(world, "second", prompt(30), 2)
    world.core.clear_cache()
    world.run()
    assert positions(world) == []
    assert world.core.ledger.audit().draining == 1, "the one that is being copied"

    finish(world, request)
    assert tokens_of(request) == cold(prompt(30), 2)
    assert world.core.ledger.audit().draining == 0
    stop_world(world)
