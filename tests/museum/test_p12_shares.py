"""P12, from M086 on: each tick has a share for who is ready, and a blocked head hides nobody."""

from tests.kernel.loopless import Loopless
from tests.museum.exhibit import exhibit
from tests.museum.support import assert_solo, finish_all, live_rows, one_shot
from tests.scenarios.inputs import greedy, prompt


@exhibit("M094", pattern="P12", guard="protocol", bug="chunks-of-whole-pages")
def test_m094_a_budget_below_one_page_still_moves_a_turn() -> None:
    """vllm-project/vllm#45414: chunks were rounded down to blocks, so a small budget gave none.

    A step holds five tokens and a page sixteen. Alone or beside decoding turns, a prompt has a row
    in every step until it is absorbed.
    """
    for beside in (0, 3):
        world = Loopless.open(page_size=16, num_pages=30, max_num_batched_tokens=5, max_num_seqs=5)
        others = [world.start(one_shot(world, f"s{n}"), [1 + n], greedy(30)) for n in range(beside)]
        world.step(beside)
        turn = world.start(one_shot(world, "turn"), prompt(33, 9), greedy(2))
        if beside:
            world.step()
        position = 0
        while not turn.output.tokens:
            # The others' rows have one token each; the chunk's are what is left of the budget.
            sizes = [len(row.tokens) for row in live_rows(world)]
            assert len(sizes) == beside + 1
            position += sizes[-1]
            world.step()
        assert position == 33
        finish_all(world, turn, *others)
        for each in (turn, *others):
            assert_solo([], each, page_size=16)
        world.assert_all_free()


@exhibit("M095", pattern="P12", guard="protocol", bug="blocked-head-stops-the-step")
def test_m095_a_blocked_head_of_the_queue_hides_no_completion() -> None:
    """vllm-project/vllm#45388: completions were read behind a head that could not be scheduled.

    Two turns run, a third waits at the head and does not fit. Every step's end is handled, the two
    go on step after step, and when they have ended the head has its room.
    """
    world = Loopless.open(num_slots=3, num_pages=12)
    running = [world.start(one_shot(world, f"s{n}"), prompt(7, n), greedy(5)) for n in range(2)]
    head = world.start(one_shot(world, "head"), prompt(37, 5), greedy(3))
    done = 0
    while any(turn.output.end is None for turn in running):
        assert head.output.admitted_at is None
        world.step()
        tokens = sum(len(turn.output.tokens) for turn in running)
        assert tokens > done, "each step moves those that run"
        done = tokens
    assert head.output.admitted_at is not None
    finish_all(world, head)
    for turn in (*running, head):
        assert_solo([], turn)
        assert turn.output.preemptions == 0
    world.assert_all_free()


@exhibit("M098", pattern="P12", guard="protocol", bug="decode-rows-wait-behind-chunks")
def test_m098_a_prefill_that_takes_all_leaves_a_row_to_who_is_ready() -> None:
    """vllm-project/vllm#53130: waiting turns were not looked at while one prefill took every tick.

    A senior prompt of ten steps takes what it can. The junior that decodes has its token in every
    one of them, and a turn that arrives meanwhile is admitted at the next step and starts with the
    prompt's end at the latest.
    """
    world = Loopless.open(
        num_slots=4, num_pages=80, max_num_batched_tokens=8, scheduling_policy="priority"
    )
    ready = world.start(one_shot(world, "ready"), prompt(3, 1), greedy(20))
    world.step(2)
    hog = world.start(one_shot(world, "hog"), prompt(70), greedy(2), priority=-9)
    second = world.start(one_shot(world, "second"), prompt(70, 3), greedy(2))
    world.step()
    arrival = world.start(one_shot(world, "arrival"), prompt(4, 2), greedy(2))
    steps = 0
    while not hog.output.tokens:
        had = len(ready.output.tokens)
        world.step()
        steps += 1
        assert len(ready.output.tokens) == had + 1 or ready.output.end is not None
        assert arrival.output.admitted_at is not None
        assert steps <= 11
    finish_all(world, second, arrival, hog, ready)
    for turn in (ready, hog, arrival):
        assert_solo([], turn)
    world.assert_all_free()
