"""P12, from M086 on: who holds and waits can be moved, and what can never fit is told at once."""

import anyio
import pytest

from kernel import PromptTooLong, QueueFull
from kernel.ids import SCHEDULER
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    Order,
    assert_solo,
    finish_all,
    history_of,
    one_shot,
    open_ordered,
    solo,
)
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M096", pattern="P12", guard="admission rule", bug="juniors-keep-their-pages")
def test_m096_of_two_that_each_lack_one_page_the_junior_gives_way() -> None:
    """vllm-project/vllm#57104: two turns held all blocks, each needed one more, none gave way.

    Seven pages: one turn has four and needs a fifth, the other has three and needs a fourth. The
    junior gives its pages up, the senior ends, and both answers are unbroken.
    """
    world = Loopless.open(num_slots=3, num_pages=7)
    senior = world.start(one_shot(world, "senior"), prompt(14), greedy(6))
    junior = world.start(one_shot(world, "junior"), prompt(10, 1), greedy(6))
    world.step(2)
    assert world.core.ledger.view.free_pages == 0
    finish_all(world, senior, junior)
    assert (senior.output.preemptions, junior.output.preemptions) == (0, 1)
    assert_solo([], senior)
    assert_solo([], junior)
    world.assert_all_free()


@exhibit("M097", pattern="P12", guard="admission rule", bug="limit-forgets-the-pool")
async def test_m097_what_an_empty_pool_can_not_hold_is_refused_at_submit() -> None:
    """vllm-project/vllm#39734: a turn within the model's limit, above the pool, blocked the queue.

    It is refused with the numbers, before it is queued, also as a later turn and for its limit of
    output; the short turns behind it run.
    """
    async with open_stage(num_slots=3, num_pages=10, max_model_len=400) as stage:
        async with stage.engine.session() as session:
            history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
            for turn in (
                stage.engine.stream(prompt(41), greedy(1)),
                stage.engine.stream(prompt(20), greedy(21)),
                session.turn(prompt(30), greedy(4)),
            ):
                with (
                    pytest.raises(PromptTooLong, match="num_pages") as refused,
                    anyio.fail_after(5),
                ):
                    async with turn:
                        await stage.settle()
                assert refused.value.limit == 40
                assert stage.engine.stats().num_requests_waiting == 0
            stage.note(history, await stage.run(session.turn(prompt(3, 1), greedy(3))))
            stage.note([], await stage.run(stage.engine.stream(prompt(37, 2), greedy(3))))


@exhibit("M099", pattern="P12", guard="admission rule", bug="resting-states-keep-their-room")
def test_m099_sessions_that_hold_all_and_wait_make_room_for_each_other() -> None:
    """vllm-project/vllm#49439: resumed sessions all waited, each with blocks, and no one ran.

    Each of two sessions rests in 11 of 25 pages, and both get a turn that needs more than is free.
    The elder's is let in over the other's state, and that one is computed again later.
    """
    world = Loopless.open(num_slots=2, num_pages=25)
    sessions = [world.session("s1"), world.session("s2")]
    for salt, session in enumerate(sessions):
        world.finish(world.start(session, prompt(42, salt), greedy(2)))
    assert world.core.ledger.view.free_slots == 0
    befores = [history_of(session) for session in sessions]
    turns = [world.start(session, prompt(18, 5), greedy(3)) for session in sessions]
    finish_all(world, *turns)
    for before, turn in zip(befores, turns, strict=True):
        assert_solo(before, turn)
    assert world.core.counters.forced_parks > 0
    for session in sessions:
        world.close(session)
    world.assert_all_free()


@exhibit("M117", pattern="P12", guard="admission rule", bug="prompt-reserved-by-the-page")
def test_m117_a_turn_is_admitted_when_its_whole_prompt_fits_and_not_before() -> None:
    """vllm-project/vllm#25538: a resumed turn took one chunk, found no room and lost it, each step.

    Ten pages are free and the prompt needs sixteen, in chunks of four. It waits without a page,
    takes all of them at once when the senior has ended, and is never preempted.
    """
    world = Loopless.open(num_slots=2, num_pages=20, max_num_batched_tokens=16)
    senior = world.start(one_shot(world, "senior"), prompt(37), greedy(4))
    world.step()
    turn = world.start(one_shot(world, "turn"), prompt(63, 1), greedy(2))
    while senior.output.end is None:
        held = {claim.turn for claim in world.core.ledger.view.held_by(SCHEDULER)}
        assert turn.id not in held
        assert turn.output.admitted_at is None
        world.step()
    assert turn.output.admitted_at is not None
    assert world.core.ledger.view.free_pages == 4
    world.finish(turn)
    assert turn.output.preemptions == 0
    assert_solo([], turn)
    assert_solo([], senior)
    world.assert_all_free()


@exhibit("M156", pattern="P12", guard="admission rule", bug="door-never-full")
async def test_m156_a_queue_that_nobody_serves_is_bounded_and_says_so() -> None:
    """huggingface/text-generation-inference#2192: the engine stood still, and the queue only grew.

    The device takes a step and does not come back. Of ten thousand submits the first fill the
    queue, every other is refused at once with the numbers; health says that the step is late.
    """
    async with open_stage(num_slots=2, max_num_queued_reqs=20, step_timeout_s=60) as stage:
        refused = 0
        numbers: set[tuple[str, int, int]] = set()
        async with anyio.create_task_group() as clients:

            async def ask(salt: int) -> None:
                nonlocal refused
                try:
                    await stage.engine.complete(prompt(3, salt), greedy(2))
                except QueueFull as error:
                    numbers.add((error.what, error.queued, error.limit))
                    refused += 1

            clients.start_soon(ask, 0)
            await anyio.wait_all_tasks_blocked()
            assert stage.device.waiting == 1
            for salt in range(20):
                clients.start_soon(ask, salt)
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(15):
                for salt in range(10_000):
                    await ask(salt)
                    assert stage.engine.core.door.queued_reqs == 20
            assert refused == 10_000
            assert numbers == {("requests", 20, 20)}
            stage.clock.at += 31
            assert stage.engine.health().stalled
            clients.cancel_scope.cancel()
        await stage.settle()
        await stage.drain()
        stage.note([], await stage.run(stage.engine.stream(prompt(4), greedy(2))))


@exhibit("M175", pattern="P12", guard="admission rule", bug="prompt-reserved-by-the-page")
def test_m175_nobody_holds_half_of_what_it_needs_while_it_waits_for_the_rest() -> None:
    """LMCache/LMCache#1215: two prompts took a buffer chunk by chunk, and waited for each other.

    Ten pages, two prompts of eight pages in chunks of four. One has all its pages from its first
    chunk on, the other has none until then; both end.
    """
    world = Loopless.open(num_slots=3, num_pages=10, max_num_batched_tokens=16)
    turns = [world.start(one_shot(world, f"s{n}"), prompt(31, n), greedy(1)) for n in range(2)]
    seen: list[set[int]] = []
    while world.device.waiting:
        rows = [row for step in world.device.waiting for row in step.rows]
        seen.append({len(row.pages) for row in rows})
        assert 10 - world.core.ledger.view.free_pages == 8
        world.step()
    assert seen == [{8}] * 4
    for turn in turns:
        assert turn.output.preemptions == 0
        assert error_of(turn) is None
        assert_solo([], turn)
    world.assert_all_free()


@exhibit("M109", pattern="P12", guard="admission rule", bug="returning-room-not-counted")
def test_m109_room_that_is_coming_back_is_waited_for() -> None:
    """vllm-project/vllm-ascend#16315: a preemption freed nothing yet, so all were preempted.

    A senior needs the one slot that a session at rest was asked for. Until that answer has come
    nothing else is asked or preempted, however many steps of the junior land meanwhile.
    """
    order = Order()
    world = open_ordered(
        order, num_slots=3, num_pages=60, page_size=16, scheduling_policy="priority"
    )
    resting = [world.session("r1"), world.session("r2")]
    for salt, session in enumerate(resting):
        world.finish(world.start(session, prompt(4, salt), greedy(2)))
    junior = world.start(one_shot(world, "junior"), prompt(5, 3), greedy(9))
    senior = world.start(one_shot(world, "senior"), prompt(5, 4), greedy(3), priority=-9)
    order.newest_first = True
    world.device.complete()
    dispatcher = world.core.dispatcher
    while not any(len(session.mailbox) for session in resting):
        assert dispatcher.run(1)
    for _ in range(4):
        while not world.device.waiting:
            assert dispatcher.run(1)
        world.device.complete()
        assert sum(len(session.mailbox) for session in resting) == 1, (
            "one state is on its way back, and that is enough"
        )
        assert junior.output.preemptions == 0
    order.newest_first = False
    world.run()
    finish_all(world, senior, junior)
    assert world.core.counters.forced_parks == 1
    assert (junior.output.preemptions, senior.output.preemptions) == (0, 0)
    assert tokens_of(senior) == solo(prompt(5, 4), 3, page_size=16)
    for session in resting:
        world.close(session)
    world.assert_all_free()
