"""P5, from M086 on: what a launched step may touch has no other owner until the step is over."""

import pytest

from kernel import EngineFault, RequestAborted, StepError
from kernel.actors.actor import Address
from kernel.ids import GPU_POOL
from kernel.messages import PoolMessage, StepCompleted
from kernel.step import StepDone
from ownership import DEVICE, LedgerError
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.kernel.toys import CALLER
from tests.museum.exhibit import exhibit
from tests.museum.support import assert_solo, history_of, live_rows, one_shot, solo
from tests.ownership.support import open_desk
from tests.scenarios.inputs import greedy, prompt


@exhibit("M106", pattern="P5", guard="protocol", bug="cancel-lands-the-step-at-once")
def test_m106_a_cancelled_turns_memory_is_nobodys_until_its_step_is_over() -> None:
    """vllm-project/vllm#32255: blocks of a cancelled load were given away while its data came.

    The turn is over for its caller at once; its slot and pages stay with the device until the
    step has landed, and only then the next client gets them.
    """
    world = Loopless.open(num_slots=1, num_pages=8)
    session = world.session("a")
    turn = world.start(session, prompt(9), greedy(4))
    world.cancel(session, turn)
    assert isinstance(error_of(turn), RequestAborted)
    waiting = world.start(one_shot(world), prompt(5, 1), greedy(3))
    view = world.core.ledger.view
    (held,) = view.held_by(DEVICE)
    assert (held.turn, len(held.pages)) == (turn.id, 3)
    assert world.free == (0, 5)
    assert len(world.device.waiting) == 1, "nobody else's step was started"

    world.step()
    (row,) = live_rows(world)
    assert (row.slot, row.initial, row.position) == (held.slot, "zeros", 0)
    world.finish(waiting)
    assert tokens_of(waiting) == solo(prompt(5, 1), 3)
    assert not world.device.poison_reads
    world.close(session)
    world.assert_all_free()


@exhibit("M108", pattern="P5", guard="protocol", bug="two-steps-at-once")
def test_m108_a_slot_changes_hands_only_when_no_launched_step_can_write_it() -> None:
    """vllm-project/vllm#45357: step N+1 was under way when result N gave its blocks to another.

    Four turns share two slots and end at different lengths. At no moment does a second step wait
    that could write what the first one gives back, and each owner begins from zeros.
    """
    world = Loopless.open(num_slots=2, num_pages=12, max_num_seqs=2)
    turns = [
        world.start(one_shot(world, f"s{n}"), prompt(2 + 3 * n, n), greedy(2 + n)) for n in range(4)
    ]
    seen: set[str] = set()
    while world.device.waiting:
        assert len(world.device.waiting) == 1
        for row, claim in zip(
            live_rows(world), world.core.ledger.view.held_by(DEVICE), strict=True
        ):
            if claim.turn not in seen:
                assert row.initial == "zeros"
            seen.add(claim.turn)
        world.step()
    assert len(seen) == 4
    for number, turn in enumerate(turns):
        assert tokens_of(turn) == solo(prompt(2 + 3 * number, number), 2 + number)
    assert not world.device.poison_reads
    world.assert_all_free()


@exhibit("M111", pattern="P5", guard="protocol", bug="any-landing-is-the-flights")
def test_m111_a_late_output_belongs_to_no_later_turn() -> None:
    """vllm-project/vllm#48245: output in flight came after a preemption, and counted below zero.

    A step outlives its turn. When it comes back at last, another step of the same session is under
    way: nothing of it is landed, counted or pushed by the late one.
    """
    world = Loopless.open(num_slots=3, step_timeout_s=5.0)
    session = world.session("a")
    world.device.hang_next()
    lost = world.start(session, prompt(5), greedy(4))
    world.advance(6)
    assert isinstance(error_of(lost), EngineFault)
    turn = world.start(session, prompt(5), greedy(4))
    _, flying = world.core.ledger.view.leases()
    generated = world.core.counters.generated_tokens
    world.device.unhang()
    world.step()

    assert flying in world.core.ledger.view.leases(), "ours is still under way"
    assert turn.output.tokens == []
    assert world.core.counters.generated_tokens == generated
    assert world.core.ledger.view.quarantined_slots == 0
    assert world.core.door.queued_tokens == 0
    world.finish(turn)
    assert_solo([], turn)
    world.close(session)
    assert world.free[0] == 3


@exhibit("M126", pattern="P5", guard="deadline", bug="dead-pool-lands-its-leases")
def test_m126_what_cannot_be_proven_quiet_is_quarantined() -> None:
    """NVIDIA/TensorRT-LLM#13713: memory went back before its transfer was quiet; later: wedged.

    A burst of long prompts, half of them cancelled, on a step that does not come back. What it may
    still write is nobody's; the engine serves on with the rest, and gets it back when it is quiet.
    """
    world = Loopless.open(num_slots=6, num_pages=60, step_timeout_s=5.0)
    world.start(one_shot(world), prompt(2), greedy(1))
    sessions = [world.session(f"s{n}") for n in range(4)]
    burst = [world.start(session, prompt(12, n)) for n, session in enumerate(sessions)]
    world.device.hang_next()
    world.step()
    view = world.core.ledger.view
    stuck = {claim.slot for claim in view.held_by(DEVICE)}
    for session, turn in list(zip(sessions, burst, strict=True))[::2]:
        world.cancel(session, turn)
    world.advance(6)
    for number, turn in enumerate(burst):
        assert isinstance(error_of(turn), EngineFault if number % 2 else RequestAborted)
    assert view.quarantined_slots == len(stuck) == 4
    for salt in range(3):
        later = world.start(sessions[0], prompt(5, salt), greedy(2))
        assert stuck.isdisjoint(row.slot for row in world.device.waiting[-1].rows)
        world.finish(later)

    world.device.unhang()
    world.step()
    assert view.quarantined_slots == 0
    for session in sessions:
        world.close(session)
    assert world.free == (6, 60)


@exhibit("M127", pattern="P5", guard="ledger", bug="failed-step-counts-as-valid")
def test_m127_a_failure_is_final_whatever_is_reported_after_it() -> None:
    """NVIDIA/TensorRT-LLM#14633: a transfer's error was overwritten by "complete".

    The device reports a fault, and then success for the same step. The turn has failed, its claim
    is undefined and can only be rolled back, and the session goes on from before it.
    """
    world = Loopless.open(num_slots=3)
    session = world.session("a")
    world.finish(world.start(session, prompt(5)))
    before = history_of(session)
    (state,) = world.core.ledger.view.held_by(session.name)
    turn = world.start(session, prompt(3, 1))
    number = world.device.waiting[0].step
    world.device.fail(why="the link went down")
    world.core.dispatcher.post(
        Address[PoolMessage](GPU_POOL), StepCompleted(number, StepDone((7,))), CALLER
    )
    world.run()
    error = error_of(turn)
    assert isinstance(error, StepError)
    assert error.why == "the link went down"
    assert turn.output.tokens == []
    assert world.core.ledger.view.held_by(session.name) == (state,)
    again = world.start(session, prompt(3, 1))
    world.finish(again)
    assert_solo(before, again)
    world.close(session)
    world.assert_all_free()

    desk = open_desk()
    claim = desk.reserve(4)
    desk.fail(claim)
    with pytest.raises(LedgerError, match="undefined"):
        desk.batch.launch([claim], step=2)
    with pytest.raises(LedgerError, match="undefined"):
        desk.session.commit(desk.hand(claim), replaces=None)
    desk.session.rollback(claim)
    assert desk.is_empty()
