"""Admission and growth, on a whole engine whose steps wait for the test."""

from kernel import SamplingParams
from kernel.errors import EngineFault
from kernel.turn import TurnRequest
from tests.kernel.loopless import Loopless, tokens_of


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def running(world: Loopless) -> list[str]:
    scheduler = world.core.scheduler
    assert scheduler is not None
    return [turn.id for turn in scheduler.roster.running]


def waiting(world: Loopless) -> list[str]:
    scheduler = world.core.scheduler
    assert scheduler is not None
    return [turn.id for turn in scheduler.roster.waiting]


def submit(world: Loopless, name: str, length: int, max_tokens: int = 4, **fields: int) -> str:
    """A turn of a session of its own."""
    session = world.session(name)
    return world.start(session, range(1, length + 1), greedy(max_tokens), **fields).id


def test_turns_are_admitted_in_order_of_rank() -> None:
    """Two rows: the third waits, and comes in when one ends."""
    world = Loopless.open(max_num_seqs=2, num_slots=8)
    ids = [submit(world, name, 2, length) for name, length in (("a", 3), ("b", 5), ("c", 2))]
    world.step()
    both = running(world), waiting(world)
    world.step(2)

    assert both == (ids[:2], ids[2:])
    assert (running(world), waiting(world)) == (ids[1:], [])


def test_no_junior_is_admitted_while_a_senior_waits_for_room() -> None:
    """A stream of small turns would starve a large one for ever."""
    world = Loopless.open(num_pages=8, max_num_seqs=4)
    first = submit(world, "first", 20, 8)
    large = submit(world, "large", 20, 4)
    small = submit(world, "small", 1, 1)
    world.step()

    assert running(world) == [first]
    assert waiting(world) == [large, small]


def test_the_pages_of_the_whole_prompt_are_reserved_at_admission() -> None:
    """A prompt that got in can always be absorbed; decode grows by the page."""
    world = Loopless.open(num_pages=16, max_num_batched_tokens=4)
    submit(world, "a", 11, 6)

    assert world.free[1] == 16 - 3
    world.step(3)
    assert world.free[1] == 16 - 3
    world.step(2)
    assert world.free[1] == 16 - 4


def test_a_senior_that_grows_preempts_the_most_junior() -> None:
    """What the junior has streamed stands; it is admitted again when there is room."""
    world = Loopless.open(num_pages=4, max_num_seqs=2)
    senior = world.start(world.session("senior"), range(1, 6), greedy(8))
    junior = world.start(world.session("junior"), range(1, 6), greedy(8))
    streamed: list[int] = []
    while not junior.output.preemptions:
        streamed = list(junior.output.tokens)
        world.step()
    world.finish(junior)

    assert senior.output.preemptions == 0
    assert streamed
    assert junior.output.tokens[: len(streamed)] == streamed
    assert len(tokens_of(junior)) == len(tokens_of(senior)) == 8
    assert tokens_of(junior) == tokens_of(senior), "the same prompt, whatever happened to it"


def test_a_base_that_was_given_up_is_no_reason_to_fail() -> None:
    """The turn starts from the log; the tokens are those of a turn that had its base."""
    world = Loopless.open(num_slots=1, max_num_seqs=1)
    session = world.session("a")
    first = world.start(session, [1, 2, 3])
    world.finish(first)
    other = world.start(world.session("b"), [9])
    second = world.start(session, [4])
    world.finish(other)
    world.finish(second)

    assert second.output.cached_tokens == 0
    assert second.output.recomputed_tokens > 0
    cold = world.start(world.session("cold"), [1, 2, 3, *tokens_of(first), 4])
    world.finish(cold)
    assert tokens_of(second) == tokens_of(cold)


def test_a_warm_turn_counts_what_it_did_not_compute() -> None:
    """``cached_tokens`` is the position of the base."""
    world = Loopless.open()
    session = world.session("a")
    world.finish(world.start(session, [1, 2, 3]))
    second = world.start(session, [4])
    world.finish(second)

    # Three of input and four generated are in the log; the last one was never absorbed.
    assert second.output.cached_tokens == 6
    assert world.core.counters.cached_tokens == 6
    assert second.output.recomputed_tokens == 0


def test_a_turn_that_no_longer_fits_for_quarantine_fails_with_the_reason() -> None:
    """It fits an empty engine, and would wait for ever for one that a hanging step has shrunk."""
    world = Loopless.open(num_slots=1, num_pages=8, step_timeout_s=5.0)
    world.device.hang_next()
    lost = world.start(world.session("a"), [1, 2])
    world.advance(6)
    request = world.start(world.session("b"), [3])

    assert isinstance(lost.output.end and lost.output.end.error, EngineFault)
    end = request.output.end
    assert end is not None
    assert isinstance(end.error, EngineFault)
    assert "quarantine" in str(end.error)


def test_a_priority_orders_admission() -> None:
    """Lower is more urgent, as in vLLM."""
    world = Loopless.open(max_num_seqs=1, scheduling_policy="priority")
    first = submit(world, "first", 2, 3)
    later = submit(world, "later", 2, 3, priority=1)
    urgent = submit(world, "urgent", 2, 3, priority=-1)

    assert running(world) == [first]
    assert waiting(world) == [urgent, later]


def test_a_cancelled_turn_leaves_the_queue_at_once() -> None:
    """It holds nothing, so nothing has to come back."""
    world = Loopless.open(max_num_seqs=1)
    submit(world, "a", 2)
    session = world.session("b")
    request: TurnRequest = world.start(session, [1, 2])
    free = world.free
    world.cancel(session, request)

    assert waiting(world) == []
    assert world.free == free
    assert session.phase == "idle"
