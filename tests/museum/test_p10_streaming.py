"""P10, from M086 on: cancels in the middle of a stream, of a batch, of a prefill, of a failure."""

import itertools

import anyio
import pytest

from kernel import EngineFault, RequestAborted, StepError
from kernel.ids import SCHEDULER
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from tests.cancellation.killing import start, tick
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    assert_solo,
    cancel_all,
    finish_all,
    history_of,
    live_rows,
    one_shot,
    solo,
    submit_all,
)
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M125", pattern="P10", guard="protocol", bug="cancelled-row-goes-on")
def test_m125_a_cancel_that_can_not_act_yet_is_remembered() -> None:
    """NVIDIA/TensorRT-LLM#11715: a running send could not be cancelled, and the wish was forgotten.

    Three hundred turns are cancelled while their step is under way, in prefill and in decode. Each
    ends as cancelled with that step; not one of them has another row.
    """
    world = Loopless.open(num_slots=50, num_pages=300, max_num_seqs=50, max_num_batched_tokens=500)
    for number in range(6):
        first = world.start(one_shot(world, f"first-{number}"), prompt(2), greedy(1))
        pairs = submit_all(world, [prompt(4, n) for n in range(50)], greedy(9), f"s{number}")
        world.step(1 + number % 3)
        assert first.output.end is not None
        assert len(live_rows(world)) == 50
        cancel_all(world, pairs)
        world.step()
        assert not world.device.waiting
        assert {type(error_of(turn)) for _, turn in pairs} == {RequestAborted}
        world.assert_all_free()


def _bring_to(state: str, world: Loopless, session: SessionActor) -> TurnRequest:
    """A turn of the session that stands in a state when the next step fails."""
    if state == "waiting":
        for number in range(2):
            world.start(one_shot(world, f"s{number}"), prompt(9, number), greedy(9))
    turn = world.start(session, prompt(9, 1), greedy(9))
    if state in ("decode", "cancelled", "interrupted"):
        world.step(3)
    if state == "cancelled":
        world.cancel(session, turn)
    if state == "interrupted":
        world.interrupt(session, None, turn)
    return turn


def _error_in(state: str, *, of_scheduler: bool) -> type[BaseException] | None:
    if state == "cancelled":
        return RequestAborted
    if of_scheduler:
        return EngineFault
    return None if state == "waiting" else StepError


@exhibit("M138", pattern="P10", guard="protocol", bug="failed-row-fails-nobody")
def test_m138_every_state_of_a_turn_has_a_legal_way_to_fail() -> None:
    """ggml-org/llama.cpp#18391: cleaning up after a failure asserted that the slot was idle.

    The step fails, or the scheduler dies, while turns wait, prefill, decode, are being cancelled
    or interrupted. Each ends with the error of that, and its session takes the next turn.
    """
    states = ("waiting", "prefill", "decode", "cancelled", "interrupted")
    for state, of_scheduler in itertools.product(states, (False, True)):
        world = Loopless.open(num_slots=3, max_num_batched_tokens=6, max_num_seqs=2)
        session = world.session("a")
        world.finish(world.start(session, prompt(5)))
        before = history_of(session)
        turn = _bring_to(state, world, session)
        if of_scheduler:
            world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
        world.device.fail()
        world.run()
        while world.device.waiting:
            world.step()

        expected = _error_in(state, of_scheduler=of_scheduler)
        assert isinstance(error_of(turn), expected or type(None)), (state, of_scheduler)
        log = history_of(session)
        assert expected is None or log == before
        later = world.start(session, prompt(2, 2), greedy(3))
        world.finish(later)
        assert_solo(log, later)
        world.close(session)
        assert world.core.ledger.audit().at_rest
        assert world.free[0] == 3


@exhibit("M148", pattern="P10", guard="protocol", bug="cancel-not-passed-on")
def test_m148_ten_thousand_aborted_streams_leave_the_pool_as_it_was() -> None:
    """InternLM/lmdeploy#1788: after a hundred or more aborted streams the engine stood still.

    Ten thousand streams are left after a token or two, one hundred at a time. After each round all
    is free, and the device has nothing to do.
    """
    world = Loopless.open(
        num_slots=100, num_pages=200, max_num_seqs=100, max_num_batched_tokens=200
    )
    dispatcher = world.core.dispatcher
    for number in range(100):
        prompts = [[1 + n] for n in range(100)]
        clients = submit_all(world, prompts, greedy(9), f"c{number}")
        world.step(2)
        assert all(turn.output.tokens for _, turn in clients)
        cancel_all(world, clients)
        world.step()
        assert not world.device.waiting
        world.assert_all_free()
    assert dispatcher.is_quiet
    assert not world.core.sessions
    assert len(dispatcher.actors()) == 2, "scheduler and pool"


@exhibit("M164", pattern="P10", guard="protocol", bug="prefill-outlives-its-client")
async def test_m164_a_long_prefill_ends_with_its_client(anyio_backend: str) -> None:
    """ai-dynamo/dynamo#13691: a prefill went on after its client left, and the next one waited.

    A prompt of ten chunks is left during the second, by cancellation of its task and by the id
    that the caller chose, long before any output. Not one more chunk is computed.
    """
    async with open_stage(num_slots=1, max_num_batched_tokens=8) as stage:
        for by_id in (False, True):
            async with anyio.create_task_group() as outside:

                async def ask() -> None:
                    await stage.engine.complete(prompt(80), greedy(3), request_id="mine")

                client = start(anyio_backend, outside, ask)
                while not stage.device.waiting:
                    await tick()
                await stage.step()
                if by_id:
                    assert stage.engine.abort("mine")
                else:
                    client.kill()
                await client.wait()
                begun = len(stage.device.steps)
                async with stage.engine.stream(prompt(4, 1), greedy(2)) as short:
                    await stage.settle()
                    await stage.step()
                    assert len(stage.device.steps) == begun + 1
                    (row,) = stage.device.steps[-1].rows
                    assert list(row.tokens) == prompt(4, 1)
                    stage.note([], await stage.finish(short))
                await stage.settle()
        stage.assert_at_rest()


@exhibit("M170", pattern="P10", guard="protocol", bug="batch-frozen-by-a-cancel")
def test_m170_one_cancelled_member_does_not_stop_the_batch() -> None:
    """ray-project/ray#50046: one call of a batch was cancelled, and every later call hung.

    Eight turns share each step; one is cancelled with the step under way. The other seven have a
    token more when it lands, and all of their answers are those of solo runs.
    """
    world = Loopless.open(num_slots=8, num_pages=60, max_num_seqs=8)
    sessions = [one_shot(world, f"s{n}") for n in range(8)]
    turns = [world.start(session, prompt(3, n), greedy(6)) for n, session in enumerate(sessions)]
    world.step(2)
    had = [len(turn.output.tokens) for turn in turns]
    assert len(live_rows(world)) == 8
    world.cancel(sessions[3], turns[3])
    world.step()
    rest = [turn for turn in turns if turn is not turns[3]]
    assert [len(turn.output.tokens) for turn in rest] == [
        count + 1 for n, count in enumerate(had) if n != 3
    ]
    finish_all(world, *rest)
    for turn in rest:
        assert_solo([], turn)
    later = world.start(one_shot(world, "later"), prompt(5, 9))
    world.finish(later)
    assert tokens_of(later) == solo(prompt(5, 9), 4)
    world.assert_all_free()


@exhibit("M191", pattern="P10", guard="protocol", bug="cancel-reset-by-the-landing")
async def test_m191_a_cancel_in_mid_stream_latches_until_it_is_seen() -> None:
    """google-ai-edge/LiteRT-LM#2422: the cancel flag was reset, and the only session was wedged.

    One session, one slot. Its stream is cancelled with a step under way, twice, and destroyed;
    the next session opens at once, and runs as soon as that one step has landed.
    """
    async with open_stage(num_slots=1, max_sessions=1) as stage:
        for salt in range(3):
            async with stage.engine.session() as session:
                async with session.turn(prompt(5, salt), greedy(50)) as turn:
                    await stage.settle()
                    await stage.step(2)
                    assert len(await stage.read(turn)) == 2
                    turn.cancel()
                    turn.cancel()
                    with pytest.raises(RequestAborted):
                        await turn.wait()
            begun = len(stage.device.steps)
            async with stage.engine.session() as session:
                next_turn = session.turn(prompt(4, salt), greedy(2))
                async with next_turn:
                    await stage.settle()
                    await stage.step()
                    assert len(stage.device.steps) == begun + 1
                    assert list(stage.device.steps[-1].rows[0].tokens) == prompt(4, salt)
                    stage.note([], await stage.finish(next_turn))
        await stage.settle()
        stage.assert_at_rest()
