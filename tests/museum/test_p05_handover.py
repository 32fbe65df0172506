"""P5, from M086 on: hand-overs. Whoever lets go, somebody has it, and nobody has an old copy."""

import anyio
import pytest

from kernel import EngineClosed, RequestAborted, SessionNotFound
from kernel.errors import SessionClosed
from kernel.ids import SessionId
from kernel.messages import CancelTurn, CloseSession
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.toys import CALLER
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    Order,
    assert_solo,
    finish_all,
    history_of,
    live_rows,
    one_shot,
    open_ordered,
)
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M151", pattern="P5", guard="protocol", bug="closing-door-stays-open")
async def test_m151_the_gate_closes_then_turns_drain_then_memory_goes() -> None:
    """InternLM/lmdeploy#4541: a sleeping engine freed its cache under turns, old and new.

    This engine's way to put everything down is its close. It refuses new turns first, lets the
    open ones end with their exact tokens, and only then gives back what the sessions hold.
    """
    async with open_stage(num_slots=4) as stage:
        session = await stage.engine.session().__aenter__()
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        async with (
            session.turn(prompt(4, 1), greedy(5)) as turn,
            anyio.create_task_group() as group,
        ):
            await stage.step()
            group.start_soon(lambda: stage.engine.aclose(drain_timeout_s=60))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(EngineClosed):
                await stage.run(stage.engine.stream(prompt(3), greedy(1)))
            assert stage.held_by(session), "nothing is freed under a turn"
            while not turn.has_result:
                stage.device.release()
                await anyio.wait_all_tasks_blocked()
            stage.note(history, await turn.wait())
        stage.assert_at_rest()


@exhibit("M165", pattern="P5", guard="protocol", bug="late-claim-leaked")
def test_m165_a_cancel_is_safe_in_each_phase_and_strands_nothing() -> None:
    """ai-dynamo/dynamo#14507: a cancel after the hand-over stranded blocks until a timeout.

    The turn is cancelled before each delivery of its life, the one included in which its claim is
    already under way to the session. Whatever comes later is rolled back at once, and the session
    takes the next turn from where it was.
    """
    handed_over = 0
    for delivery in range(40):
        world = open_ordered(Order(), num_slots=3)
        session = world.session("a")
        world.finish(world.start(session, prompt(5)))
        before = history_of(session)
        turn = world.start(session, prompt(4, 1), greedy(3))
        for number in range(delivery):
            if not world.core.dispatcher.run(1) and world.device.waiting and number < delivery - 1:
                world.device.complete()
        on_the_way = [
            claim
            for claim in world.core.ledger.view.held_by(session.mailbox.custodian)
            if claim.turn == turn.id
        ]
        is_over = turn.output.end is not None
        session.handle(CancelTurn(turn.id, "abort"))
        handed_over += bool(on_the_way) and not is_over
        world.run()
        while world.device.waiting:
            world.step()
        if not is_over:
            assert isinstance(error_of(turn), RequestAborted)
            assert history_of(session) == before
        history = history_of(session)
        later = world.start(session, prompt(2, 2), greedy(3))
        world.finish(later)
        assert_solo(history, later)
        world.close(session)
        world.assert_all_free()
    assert handed_over


@exhibit("M181", pattern="P5", guard="protocol", bug="closed-session-declines-nothing")
def test_m181_what_comes_after_the_close_brings_no_session_back() -> None:
    """LMCache/LMCache#5062: a store that came after the end made the closed session anew.

    The close stands in the session's mailbox, and behind it the finished turn with its claim. The
    claim goes back, the id is unknown, and who opens it again finds no history.
    """
    order = Order()
    world = open_ordered(order, num_slots=2)
    session = world.session("a")
    turn = world.start(session, prompt(5), greedy(1))
    order.newest_first = True
    session.mailbox.post(CloseSession(), CALLER)
    world.device.complete()
    world.run()

    assert isinstance(error_of(turn), SessionClosed)
    with pytest.raises(SessionNotFound):
        world.core.session(SessionId("a"))
    world.assert_all_free()
    again = world.session("a")
    assert (history_of(again), world.held_by(again)) == ([], 0)
    fresh = world.start(again, prompt(3, 1))
    world.finish(fresh)
    assert_solo([], fresh)
    world.close(again)
    world.assert_all_free()


@exhibit("M186", pattern="P5", guard="ledger", bug="page-table-is-the-exclusive-list")
def test_m186_what_a_step_was_told_does_not_change_with_the_free_lists() -> None:
    """NVIDIA/Megatron-LM#6584: a slot id was a view into the free stack, and changed with it.

    While a step waits, others are closed, cancelled and reserved beside it. Its rows still name
    what they named, what was freed is told by value, and the tokens are those of a solo run.
    """
    world = Loopless.open(num_slots=6, num_pages=60)
    others = [world.session(f"s{n}") for n in range(3)]
    for salt, other in enumerate(others):
        world.finish(world.start(other, prompt(6, salt)))
    session = world.session("a")
    turn = world.start(session, prompt(6, 7), greedy(9))
    while turn.output.end is None:
        step = world.device.waiting[0]
        told = [(row.slot, tuple(row.pages), row.position) for row in step.rows]
        freed = (tuple(step.freed_slots), tuple(step.freed_pages))
        if others:
            world.close(others.pop())
            extra = world.session("x")
            world.start(extra, prompt(3))
            world.close(extra)
        assert [(row.slot, tuple(row.pages), row.position) for row in step.rows] == told
        assert (tuple(step.freed_slots), tuple(step.freed_pages)) == freed
        world.step()
    assert_solo([], turn)
    assert not world.device.poison_reads
    world.close(session)
    world.assert_all_free()


@exhibit("M190", pattern="P5", guard="protocol", bug="landing-by-the-roster")
def test_m190_each_step_carries_its_own_map_of_rows() -> None:
    """wtdcode/vllm-backport#63: a late stage read the batch order of a later step.

    A senior's chunks and its juniors' decode rows share steps, in another order than the roster's;
    while steps are under way turns are cancelled and arrive. Each token reaches its own turn.
    """
    world = Loopless.open(num_slots=6, num_pages=80, max_num_batched_tokens=6, max_num_seqs=4)
    hog = world.start(one_shot(world, "hog"), prompt(30), greedy(5))
    juniors = [world.start(one_shot(world, f"s{n}"), prompt(1 + n, n), greedy(8)) for n in range(2)]
    leaver = world.session("leaver")
    left = world.start(leaver, prompt(2, 5), greedy(9))
    world.step(5)
    mixed = world.start(one_shot(world, "late"), prompt(20, 6), greedy(6))
    world.step()
    world.cancel(leaver, left)
    assert len(live_rows(world)) > 1
    finish_all(world, hog, *juniors, mixed)
    for turn in (hog, *juniors, mixed):
        assert_solo([], turn)
    world.close(leaver)
    world.assert_all_free()
