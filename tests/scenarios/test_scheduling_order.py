"""Who is served first, seen from outside: one row, a queue, and the order in which it empties."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from kernel import RunningTurn
from tests.scenarios.stage import Stage, greedy, open_stage, prompt

ONE_ROW: dict[str, Any] = {"max_num_seqs": 1, "num_slots": 2, "num_pages": 40}


async def order_of_service(stage: Stage, turns: dict[str, RunningTurn]) -> list[str]:
    """Names in the order in which the turns end; all are in the queue, or one runs."""
    order: list[str] = []
    while len(order) < len(turns):
        order += [name for name, turn in turns.items() if turn.has_result and name not in order]
        if stage.device.waiting:
            await stage.step()
    for turn in turns.values():
        stage.note([], await turn.wait())
    return order


async def submit(
    stage: Stage, stack: AsyncExitStack, number: int, length: int = 2, **options: Any
) -> RunningTurn:
    """Put one request into the queue."""
    turn = stage.engine.stream(prompt(3, number), greedy(length), **options)
    await stack.enter_async_context(turn)
    await stage.settle()
    return turn


async def test_first_come_first_served() -> None:
    """Whatever it costs, and whatever priority is asked for."""
    async with open_stage(**ONE_ROW) as stage, AsyncExitStack() as stack:
        turns = {
            str(number): await submit(stage, stack, number, length, priority=-number)
            for number, length in enumerate([4, 9, 1, 3])
        }
        assert await order_of_service(stage, turns) == list("0123")


async def test_no_junior_overtakes_a_turn_that_waits_for_room() -> None:
    """It would fit beside the one that runs, and would take what the waiting one waits for."""
    async with (
        open_stage(num_slots=4, num_pages=12, max_num_seqs=4) as stage,
        AsyncExitStack() as stack,
    ):
        running = stage.engine.stream(prompt(20), greedy(6))
        large = stage.engine.stream(prompt(30, 1), greedy(2))
        small = stage.engine.stream(prompt(3, 2), greedy(1))
        for turn in (running, large, small):
            await stack.enter_async_context(turn)
        while not running.has_result:
            assert not small.has_result
            assert stage.running() == {running.request_id}
            await stage.step()
        for turn in (running, large, small):
            stage.note([], await stage.finish(turn))


async def test_a_state_that_only_victims_pin_is_no_obstacle() -> None:
    """A junior that was admitted and had no place in a step yet pins the state that it starts from.

    It is preempted, and then the state can be asked for, in one go: its senior does not wait until
    the other juniors' chunks leave it a place.
    """
    async with (
        open_stage(
            num_slots=4,
            num_pages=12,
            max_num_seqs=3,
            max_num_batched_tokens=3,
            scheduling_policy="priority",
        ) as stage,
        stage.engine.session() as session,
    ):
        history = stage.note([], await stage.run(session.turn(prompt(9), greedy(3))))
        async with (
            stage.engine.stream(prompt(16, 1), greedy(4)) as chunked,
            session.turn(prompt(3, 2), greedy(4)) as starved,
        ):
            await stage.step(2)
            assert stage.running() == {chunked.request_id, starved.request_id}
            assert [claim.pinned for claim in stage.held_by(session)] == [1]
            async with stage.engine.stream(prompt(40, 3), greedy(2), priority=-9) as urgent:
                await stage.step()
                assert stage.running() == {urgent.request_id}
                stage.note([], await stage.finish(urgent))
            stage.note([], await stage.finish(chunked))
            stage.note(history, await stage.finish(starved))


async def test_priority_orders_the_queue() -> None:
    """A lower number is more urgent; equals are served in order of arrival."""
    async with (
        open_stage(scheduling_policy="priority", **ONE_ROW) as stage,
        AsyncExitStack() as stack,
    ):
        turns = {"running": await submit(stage, stack, 0, priority=-9)}
        for number, (name, priority) in enumerate(
            {"late": 5, "first": 0, "second": 0, "urgent": -3}.items()
        ):
            turns[name] = await submit(stage, stack, number, priority=priority)
        expected = ["running", "urgent", "first", "second", "late"]
        assert await order_of_service(stage, turns) == expected


@pytest.mark.parametrize(("waited_s", "first"), [(9, "urgent"), (11, "patient")])
async def test_waiting_is_worth_priority(waited_s: float, first: str) -> None:
    """``priority_weight_s`` seconds make up for one level, so no priority starves."""
    async with (
        open_stage(scheduling_policy="priority", priority_weight_s=10.0, **ONE_ROW) as stage,
        AsyncExitStack() as stack,
    ):
        turns = {"running": await submit(stage, stack, 0, priority=-9)}
        turns["patient"] = await submit(stage, stack, 1, priority=1)
        await stage.advance(waited_s)
        turns["urgent"] = await submit(stage, stack, 2, priority=0)
        assert (await order_of_service(stage, turns))[1] == first


async def test_a_low_priority_is_served_under_a_steady_stream_of_urgent_requests() -> None:
    """Each urgent one is more senior for a while only; then the patient one is."""
    async with (
        open_stage(scheduling_policy="priority", priority_weight_s=5.0, **ONE_ROW) as stage,
        AsyncExitStack() as stack,
    ):
        queue = [await submit(stage, stack, 0)]
        patient = await submit(stage, stack, 1, priority=3)
        served = 0
        while not patient.has_result:
            # There is always another one in the queue.
            queue.append(await submit(stage, stack, 2 + served))
            urgent = queue.pop(0)
            while not (urgent.has_result or patient.has_result):
                await stage.step()
            await stage.advance(1)
            served += 1
        # Three levels of five seconds each, and a second for each urgent request.
        assert 14 <= served <= 18
        await stage.drain()
        stage.note([], patient.result)


async def test_the_earliest_deadline_goes_first() -> None:
    """``timeout_s`` is the deadline; who has none comes last."""
    async with (
        open_stage(scheduling_policy="deadline", **ONE_ROW) as stage,
        AsyncExitStack() as stack,
    ):
        turns = {"running": await submit(stage, stack, 0, timeout_s=1)}
        for number, (name, timeout_s) in enumerate(
            {"none": None, "30": 30, "10": 10, "20": 20}.items()
        ):
            turns[name] = await submit(stage, stack, number, timeout_s=timeout_s)
        assert await order_of_service(stage, turns) == ["running", "10", "20", "30", "none"]


async def served_tokens(
    weights: dict[str, float], lengths: dict[str, int], requests: int, budget: int
) -> dict[str, int]:
    """Tokens that each tenant was served until ``budget`` were, with all requests queued."""
    async with (
        open_stage(scheduling_policy="fair", tenant_weights=weights, **ONE_ROW) as stage,
        AsyncExitStack() as stack,
    ):
        turns: dict[str, RunningTurn] = {}
        for number in range(requests):
            for tenant, length in lengths.items():
                name = f"{tenant} {number}"
                turns[name] = await submit(stage, stack, number, length, tenant=tenant)
        order = await order_of_service(stage, turns)
    served = dict.fromkeys(lengths, 0)
    for name in order:
        tenant = name.split()[0]
        # What a turn absorbs counts like what it generates.
        served[tenant] += 3 + lengths[tenant]
        if sum(served.values()) >= budget:
            break
    return served


@pytest.mark.parametrize("weight", [1.0, 2.0, 4.0])
async def test_tenants_share_tokens_by_weight(weight: float) -> None:
    """As long as both have work queued, the shares are the weights within a tenth."""
    served = await served_tokens({"a": weight}, {"a": 2, "b": 2}, requests=20, budget=100)
    assert served["a"] / sum(served.values()) == pytest.approx(weight / (weight + 1), abs=0.1)


async def test_tenants_share_tokens_and_not_requests() -> None:
    """Long requests don't get a larger share than short ones."""
    served = await served_tokens({}, {"a": 2, "b": 12}, requests=24, budget=150)
    assert served["a"] / sum(served.values()) == pytest.approx(0.5, abs=0.1)


async def test_a_tenant_that_was_away_has_no_credit() -> None:
    """Its share begins when it comes; the other one's past is not held against that one."""
    async with (
        open_stage(scheduling_policy="fair", **ONE_ROW) as stage,
        AsyncExitStack() as stack,
    ):
        alone = {str(n): await submit(stage, stack, n, tenant="a") for n in range(10)}
        await order_of_service(stage, alone)
        turns: dict[str, RunningTurn] = {}
        for number in range(6):
            for tenant in ("a", "b"):
                name = f"{tenant} {number}"
                turns[name] = await submit(stage, stack, number, tenant=tenant)
        order = await order_of_service(stage, turns)
        assert 2 <= sum(name.startswith("a") for name in order[:6]) <= 4
