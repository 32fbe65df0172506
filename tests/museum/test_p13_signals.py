"""P13, from M086 on: nothing waits for a signal alone, and no clean-up waits for traffic."""

import pytest

from adapters.fake_device import FakeDevice
from kernel import EngineFault, RequestAborted
from kernel.step import DeviceWorker, WorkerContext
from tests.kernel.loopless import Loopless, error_of
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    MuteWorker,
    assert_solo,
    cancel_all,
    finish_all,
    is_open,
    live_rows,
    one_shot,
    submit_all,
)
from tests.scenarios.inputs import greedy, prompt


@exhibit("M107", pattern="P13", guard="deadline", bug="step-deadline-never-armed")
def test_m107_a_completion_that_never_comes_has_a_deadline() -> None:
    """vllm-project/vllm#46283: a release waited for a signal of a peer that had died.

    A turn is cancelled, and its step does not come back. Past the deadline the engine serves on
    with the slots that are left; the same again; and what comes late changes nothing but that the
    memory is free.
    """
    world = Loopless.open(num_slots=4, num_pages=40, step_timeout_s=5.0)
    view = world.core.ledger.view
    for lost in (1, 2):
        session = world.session(f"s{lost}")
        world.device.hang_next()
        turn = world.start(session, prompt(5, lost))
        world.cancel(session, turn)
        assert isinstance(error_of(turn), RequestAborted)
        world.advance(6)
        assert view.quarantined_slots == lost
        later = world.start(one_shot(world, f"later{lost}"), prompt(4, lost), greedy(3))
        world.finish(later)
        assert_solo([], later)
        world.close(session)
    assert world.free[0] == 2
    world.device.unhang()
    world.step(2)
    assert world.free == (4, 40)
    last = world.start(one_shot(world, "last"), prompt(6), greedy(2))
    world.finish(last)
    assert_solo([], last)


@exhibit("M113", pattern="P13", guard="protocol", bug="last-release-rides-on-the-next-batch")
def test_m113_a_release_does_not_ride_on_a_future_batch() -> None:
    """vllm-project/vllm#13129: ended ids were taken from their list, and the next batch was empty.

    All turns are cancelled in one tick, so no batch follows. Their slots are free when the step
    has landed, without another one; again and again, more often than there are slots.
    """
    world = Loopless.open(num_slots=3, num_pages=30)
    for number in range(8):
        pairs = submit_all(world, [prompt(4, n) for n in range(3)], greedy(9), f"s{number}")
        world.step()
        cancel_all(world, pairs)
        world.step()
        assert not world.device.waiting
        world.assert_all_free()
    last = world.start(one_shot(world), prompt(6), greedy(2))
    world.finish(last)
    assert not world.device.poison_reads
    assert_solo([], last)


@exhibit("M124", pattern="P13", guard="deadline", bug="ended-workers-not-looked-for")
def test_m124_what_is_over_is_given_back_without_new_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NVIDIA/TensorRT-LLM#12313: timed-out transfers were reaped when something was sent.

    A step holds every slot and never reports; its thread ends at last. With nothing submitted and
    nothing sent, the slots come back by the clock alone, and the next turn runs.
    """
    mute = MuteWorker()
    device = FakeDevice(mode="manual", eos_token_ids=())
    real = device.start_worker
    workers: list[DeviceWorker] = [mute]

    def start_worker(context: WorkerContext, /) -> DeviceWorker:
        return workers.pop() if workers else real(context)

    monkeypatch.setattr(device, "start_worker", start_worker)
    world = Loopless.open(device=device, num_slots=1, num_pages=20, step_timeout_s=5.0)
    sessions = [one_shot(world, "a"), one_shot(world, "b")]
    first = world.start(sessions[0], prompt(4))
    world.advance(6)
    assert isinstance(error_of(first), EngineFault)
    view = world.core.ledger.view
    assert view.quarantined_slots == 1
    mute.has_ended = True
    steps = world.core.counters.steps
    world.advance(1)
    assert view.quarantined_slots == 0
    assert world.core.counters.steps == steps
    assert world.free == (1, 20)
    turn = world.start(sessions[1], prompt(5, 1), greedy(3))
    world.finish(turn)
    assert_solo([], turn)


@exhibit("M146", pattern="P13", guard="deadline", bug="prefill-counts-as-silence")
def test_m146_a_long_prefill_is_not_silence() -> None:
    """ggml-org/llama.cpp#22997: no output for a minute was read as a client that had gone.

    A prefill of 90 seconds, in chunks, with an idle rule and a stall rule of 60: it computes, so
    it is neither idle nor is its reader behind. Unread output is another thing, and has its end.
    """
    world = Loopless.open(num_slots=2, num_pages=40, max_num_batched_tokens=8)
    session = world.session("a", idle_timeout_s=60.0)
    turn = world.start(session, prompt(72), greedy(3), stall_timeout_s=60.0)
    for _ in range(9):
        assert len(live_rows(world)) == 1
        world.advance(10)
        world.step()
    assert turn.output.end is None
    assert len(turn.output.tokens) == 1
    turn.output.delivered = 1
    turn.output.unread_since = None
    finish_all(world, turn)
    assert_solo([], turn)
    world.advance(59)
    assert is_open(world, session)
    world.advance(2)
    assert not is_open(world, session)
    world.assert_all_free()
