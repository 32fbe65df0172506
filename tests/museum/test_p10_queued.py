"""P10, from M086 on: a cancel reaches what waits, names its turn, and is counted back."""

from functools import partial

import anyio
import pytest

from kernel import RequestAborted, RunningTurn
from tests.cancellation.killing import deliver, start
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.museum.exhibit import exhibit
from tests.museum.support import assert_solo, history_of, live_rows, one_shot, solo
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import Stage, open_stage


@exhibit("M143", pattern="P10", guard="protocol", bug="queued-turn-only-marked")
async def test_m143_a_queued_request_of_a_client_that_has_gone_is_never_run(
    anyio_backend: str,
) -> None:
    """ggml-org/llama.cpp#13262: the connection was only looked at when there was data to send.

    One client has the only row, five queue behind it and leave, by the plain cancellation of their
    tasks. No step ever has a row of theirs, and nothing counts them.
    """
    async with open_stage(num_slots=4, max_num_seqs=1) as stage:
        async with (
            anyio.create_task_group() as outside,
            stage.engine.stream(prompt(4), greedy(5)) as turn,
        ):
            await stage.settle()

            clients = [
                start(anyio_backend, outside, partial(_ask, stage, salt)) for salt in range(1, 6)
            ]
            await deliver(stage.engine)
            assert stage.engine.stats().num_requests_waiting == 5
            for client in clients:
                client.kill()
            for client in clients:
                await client.wait()
            await stage.settle()
            assert stage.engine.stats().num_requests_waiting == 0
            stage.note([], await stage.finish(turn))
        assert len(stage.device.steps) == 5
        assert {len(step.rows) for step in stage.device.steps} == {1}
        stage.assert_at_rest()


@exhibit("M145", pattern="P10", guard="protocol", bug="cancel-without-an-address")
async def test_m145_a_cancel_of_a_queued_turn_does_not_stop_the_one_that_runs() -> None:
    """ikawrakow/ik_llama.cpp#1929: stop was one flag, and hit whoever was running.

    In one session and beside it: one turn runs, another waits behind it and is cancelled. The
    first has its whole answer.
    """
    async with open_stage(num_slots=4, max_num_seqs=1) as stage, stage.engine.session() as session:
        async with session.turn(prompt(5), greedy(6)) as turn:
            await stage.settle()
            await stage.step(2)
            for waiting in (
                session.turn(prompt(3, 1), greedy(4), wait=True),
                stage.engine.stream(prompt(3, 2), greedy(4)),
            ):
                async with waiting:
                    await stage.settle()
                    assert stage.engine.abort(waiting.request_id)
                    with pytest.raises(RequestAborted), anyio.fail_after(10):
                        await waiting.wait()
                await stage.settle()
                await stage.step()
            history = stage.note([], await stage.finish(turn))
        stage.note(history, await stage.run(session.turn(prompt(2, 3), greedy(3))))


@exhibit("M149", pattern="P10", guard="protocol", bug="closed-session-keeps-its-place")
async def test_m149_two_killed_load_tests_leave_every_place_free(anyio_backend: str) -> None:
    """InternLM/lmdeploy#1619: after a load test was killed twice, all waited for a free instance.

    Twice, 2048 clients ask for a place each, most of them in vain, and are killed where they
    stand. All places and all memory are there for the next one.
    """
    async with open_stage(num_slots=4, max_sessions=16, max_num_queued_reqs=16) as stage:
        for _ in range(2):
            async with anyio.create_task_group() as outside:
                clients = [
                    start(anyio_backend, outside, partial(_client, stage, salt))
                    for salt in range(2048)
                ]
                await deliver(stage.engine)
                assert stage.engine.stats().num_sessions == 16
                for client in clients:
                    client.kill()
                for client in clients:
                    await client.wait()
            await stage.settle()
            await stage.land()
            assert not stage.engine.list_sessions()
            stage.assert_at_rest()
        sessions = [await stage.engine.session().__aenter__() for _ in range(16)]
        stage.note([], await stage.run(sessions[-1].turn(prompt(4), greedy(3))))
        for session in sessions:
            await session.close()


async def _ask(stage: Stage, salt: int) -> None:
    await stage.engine.complete(prompt(6, salt), greedy(3))


async def _client(stage: Stage, salt: int) -> None:
    async with (
        stage.engine.session() as session,
        session.turn(prompt(3, salt), greedy(4)) as turn,
    ):
        await turn.wait()


@exhibit("M169", pattern="P10", guard="protocol", bug="door-not-left")
def test_m169_a_turn_that_is_cancelled_while_it_waits_is_no_longer_counted() -> None:
    """ray-project/ray#60118: the counter went down after the wait, which a cancel never reached.

    The door counts what waits. Turns are cancelled at the scheduler, in their session's queue and
    with a step under way, many more than the bound: the last one is let in as the first.
    """
    world = Loopless.open(num_slots=4, max_num_seqs=1, max_num_queued_reqs=3)
    running = world.session("running")
    turn = world.start(running, prompt(4), greedy(40))
    for salt in range(12):
        session = world.session(f"s{salt}")
        queued = world.start(session, prompt(3, salt))
        behind = world.start(session, prompt(3, salt), wait=True)
        assert world.core.door.queued_reqs == 2
        world.cancel(session, behind)
        world.cancel(session, queued)
        assert isinstance(error_of(queued), RequestAborted)
        assert (world.core.door.queued_reqs, world.core.door.queued_tokens) == (0, 0)
        world.close(session)
        world.step()
    world.finish(turn)
    assert tokens_of(turn) == solo(prompt(4), 40)
    world.close(running)
    world.assert_all_free()


@exhibit("M171", pattern="P10", guard="protocol", bug="cancel-of-a-waiting-turn-forgotten")
async def test_m171_cancelling_a_parent_cancels_the_children_that_it_has_queued() -> None:
    """ray-project/ray#47935: a child waited in a queue that the cancel did not look at.

    A task runs a turn and has two more queued behind it in the session. Its scope is cancelled:
    none of the three runs on or begins, and the session is where it was.
    """
    async with open_stage(num_slots=4) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        begun = len(stage.device.steps) + 2
        children: list[RunningTurn] = []

        async def child(salt: int) -> None:
            turn = session.turn(prompt(4, salt), greedy(3), wait=True)
            children.append(turn)
            async with turn:
                await turn.wait()

        async with anyio.create_task_group() as parent:
            for salt in range(1, 4):
                parent.start_soon(child, salt)
                await deliver(stage.engine)
            await stage.step()
            parent.cancel_scope.cancel()
        await stage.settle()
        await stage.land()
        assert len(stage.device.steps) == begun, "no child has begun"
        assert not any(turn.has_result for turn in children)
        assert session.info.num_tokens == len(history)
        stage.note(history, await stage.run(session.turn(prompt(2, 7), greedy(3))))


@exhibit("M166", pattern="P10", guard="protocol", bug="ended-turn-stays-in-the-roster")
def test_m166_after_a_cancel_in_prefill_the_next_turn_runs() -> None:
    """ai-dynamo/dynamo#4178: one cancel in a prefill, and the next request hung.

    There is one slot and one row. The prefill is cancelled at each of its chunks; the next turn
    has its first row in the very next step, with another session and with the same.
    """
    for chunks in range(4):
        for is_same in (False, True):
            world = Loopless.open(num_slots=1, max_num_seqs=1, max_num_batched_tokens=4)
            session = world.session("a")
            prefill = world.start(session, prompt(16), greedy(3))
            if chunks:
                world.step(chunks)
            world.cancel(session, prefill)
            target = session if is_same else one_shot(world)
            turn = world.start(target, prompt(3, 1), greedy(3))
            world.step()
            (row,) = live_rows(world)
            assert (list(row.tokens), row.position) == (prompt(3, 1), 0)
            world.finish(turn)
            assert_solo([], turn)
            if is_same:
                assert history_of(session)[:3] == prompt(3, 1)
            world.close(session)
            world.assert_all_free()
