"""Every turn ends within a number of steps that is known beforehand; ``bound`` says why."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from kernel import EngineConfig, RunningTurn
from kernel.policies import Policy, make_policy
from tests.scenarios.bound import RecordingPolicy, Served, steps_at_most
from tests.scenarios.stage import PAGE_SIZE, Stage, greedy, open_stage, prompt

SESSIONS = 12
ROUNDS = 3
ONE_SHOTS = 4
SEEDS = 6


def draw_config(rng: random.Random) -> dict[str, Any]:
    """One to three slots for a dozen sessions, and pages for little more than one of them."""
    rows = rng.choice([1, 2, 4])
    return {
        "num_slots": rng.choice([1, 2, 3]),
        "num_pages": rng.choice([8, 9, 12]),
        "max_num_seqs": rows,
        "max_num_batched_tokens": rows + rng.choice([0, 3, 12]),
        "priority_weight_s": 30.0,
    }


@attrs.define(eq=False)
class Crowd:
    """Sessions that all wake at once, round after round, and one-shot requests beside them."""

    stage: Stage
    policy: RecordingPolicy
    rng: random.Random
    served: dict[str, Served] = attrs.field(factory=dict[str, Served])
    preemptions: int = 0

    async def live_and_let_step(self) -> None:
        """The device computes a step each time that the event loop comes round."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._let_step)
            await self.live()
            tasks.cancel_scope.cancel()

    async def _let_step(self) -> None:
        while True:
            if self.stage.device.waiting:
                self.stage.device.release()
            await anyio.lowlevel.checkpoint()

    async def live(self) -> None:
        engine, rng = self.stage.engine, self.rng
        sessions = [engine.session(detached=True) for _ in range(SESSIONS)]
        for session in sessions:
            async with session:
                pass
        histories: list[list[int]] = [[] for _ in sessions]
        for number in range(ROUNDS):
            async with anyio.create_task_group() as tasks:
                for index, session in enumerate(sessions):
                    tokens, length = prompt(rng.choice([1, 3, 5]), index), rng.choice([1, 3, 5])
                    name = f"session {index}, turn {number}"
                    submit = self._submission(session.turn, tokens, length, name)
                    tasks.start_soon(self._serve, name, submit, length, histories[index])
                for index in range(ONE_SHOTS):
                    tokens, length = prompt(rng.choice([2, 20]), index), rng.choice([2, 10])
                    name = f"one-shot {index} of round {number}"
                    submit = self._submission(engine.stream, tokens, length, name)
                    tasks.start_soon(self._serve, name, submit, length, list[int]())
        for session in sessions:
            await session.close()

    def _submission(
        self, submit: Callable[..., RunningTurn], tokens: list[int], length: int, name: str
    ) -> Callable[[], RunningTurn]:
        priority = self.rng.choice([0, 1, 3])
        return partial(submit, tokens, greedy(length), priority=priority, tenant=name)

    async def _serve(
        self,
        name: str,
        submit: Callable[[], RunningTurn],
        length: int,
        history: list[int],
    ) -> None:
        for _ in range(self.rng.choice([0, 0, 0, 10, 30, 60])):
            await anyio.lowlevel.checkpoint()
        # The clock counts steps, and so does every time in the result.
        begun = len(self.stage.device.steps)
        async with submit() as turn:
            result = await turn.wait()
        context = len(history) + len(result.prompt_token_ids)
        history[:] = self.stage.note(history, result)
        self.preemptions += result.timings.preemptions
        self.served[name] = Served(
            rank=self.policy.ranks[name],
            arrived=self.policy.facts[name].arrival_s,
            ended=begun + result.timings.total_s,
            context=context,
            max_tokens=length,
        )

    def worst(self, *, chunk: int) -> float:
        """How near any turn came to its bound; above 1 it took longer."""
        return max(
            (turn.ended - turn.arrived)
            / steps_at_most(turn, self.served, chunk=chunk, page_size=PAGE_SIZE)
            for turn in self.served.values()
        )


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> list[RecordingPolicy]:
    """The policies of the engines that are opened."""
    made: list[RecordingPolicy] = []

    def make(config: EngineConfig) -> Policy:
        made.append(RecordingPolicy(make_policy(config)))
        return made[-1]

    monkeypatch.setattr("kernel.engine.core.make_policy", make)
    return made


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
async def test_every_turn_ends_within_the_bound(
    policy: str, recorder: list[RecordingPolicy]
) -> None:
    """No turn waits for ever, and a formula says for how long at most.

    The steps of T are at most the sum, over T and its seniors i that were open meanwhile, of
    ``M_i + ceil(M_i / P) + (1 + A_i) * (ceil((K_i + M_i) / C) + 8)``
    with K known tokens, M ``max_tokens``, P ``page_size``, A more senior turns that came later,
    and C = ``max_num_batched_tokens - max_num_seqs + 1``.
    """
    preemptions = 0
    for seed in range(SEEDS):
        rng = random.Random(f"bound {seed}")
        config = draw_config(rng)
        async with open_stage(counts_steps=True, scheduling_policy=policy, **config) as stage:
            crowd = Crowd(stage, recorder[-1], rng)
            await crowd.live_and_let_step()
            stats = stage.engine.stats()
        assert len(crowd.served) == ROUNDS * (SESSIONS + ONE_SHOTS)
        chunk = config["max_num_batched_tokens"] - config["max_num_seqs"] + 1
        assert crowd.worst(chunk=chunk) <= 1, f"seed {seed}"
        assert stats.forced_parks > 0
        preemptions += crowd.preemptions
    assert preemptions > 0


async def test_the_bound_is_not_far_from_what_happens(recorder: list[RecordingPolicy]) -> None:
    """One row and nothing cached: first come, first served comes near the sum."""
    async with open_stage(
        counts_steps=True, num_slots=1, num_pages=20, max_num_seqs=1, max_num_batched_tokens=1
    ) as stage:
        crowd = Crowd(stage, recorder[0], random.Random(0))
        await crowd.live_and_let_step()
    assert 0.35 < crowd.worst(chunk=1) <= 1


async def test_a_one_shot_beside_idle_sessions_needs_no_more_than_its_own_share(
    recorder: list[RecordingPolicy],
) -> None:
    """Whatever rests, the sum has one term: idle sessions have no rank."""
    async with open_stage(counts_steps=True, num_slots=2, num_pages=8) as stage:
        stage.device.open()
        sessions = [stage.engine.session(detached=True) for _ in range(SESSIONS)]
        for index, session in enumerate(sessions):
            turn = session.turn(prompt(5, index), greedy(3), tenant=f"session {index}")
            async with session, turn:
                stage.note([], await turn.wait())
        begun = len(stage.device.steps)
        result = await stage.engine.complete(prompt(20, 9), greedy(10), tenant="one-shot")
        stage.note([], result)
        alone = Served(
            rank=recorder[0].ranks["one-shot"],
            arrived=begun,
            ended=begun + result.timings.total_s,
            context=20,
            max_tokens=10,
        )
        most = steps_at_most(alone, {"one-shot": alone}, chunk=57, page_size=PAGE_SIZE)
        assert alone.ended - alone.arrived <= most
        for session in sessions:
            await session.close()


@pytest.mark.parametrize(("slots", "pages"), [(1, 16), (4, 8), (4, 9)])
async def test_a_long_pending_part_is_absorbed_once_by_the_first_turn(
    slots: int, pages: int
) -> None:
    """A turn that was interrupted while it waited leaves its input; no pool has room for two."""
    async with open_stage(
        num_slots=slots, num_pages=pages, max_num_seqs=1, max_num_batched_tokens=1
    ) as stage:
        async with stage.engine.session() as session:
            async with stage.engine.stream(prompt(2), greedy(2)) as other:
                await stage.settle()
                async with session.turn(prompt(30), greedy(1)) as turn:
                    await stage.settle()
                    assert await turn.interrupt(0) == 0
                await stage.finish(other)
            begun = len(stage.device.steps)
            result = await stage.run(session.turn([1], greedy(1)))
            stage.note(prompt(30), result)
            assert len(stage.device.steps) - begun == 31
            assert result.usage.recomputed_tokens == 0
