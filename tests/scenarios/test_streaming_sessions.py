"""The seven streaming-session scenarios that a peer tests in public, on this API.

Numbers as in its kit: inheritance of the cache (1), many sessions at once (2), stress with one-shot
requests and preemption (3), recovery from an abort of a later turn (4), of the first one (5) and of
one that never began (6), and abort-heavy chunked prefill near the context limit (7).
"""

import random
from typing import Literal

import anyio
import pytest

from kernel import PromptTooLong, RequestAborted, SamplingParams, Session
from tests.known import known
from tests.scenarios.stage import Stage, greedy, open_stage, prompt


async def test_1_each_turn_inherits_what_the_last_one_absorbed() -> None:
    """All of the history is cached but the one token that is always pending."""
    async with open_stage(num_pages=100) as stage, stage.engine.session() as session:
        history: list[int] = []
        for number in range(3):
            result = await stage.run(session.turn(prompt(9, number), greedy(12)))
            assert result.usage.cached_tokens == max(0, len(history) - 1)
            assert result.usage.prompt_tokens == len(history) + 9
            assert result.usage.completion_tokens == 12
            history = stage.note(history, result)
        await session.close()
        stage.assert_at_rest()


Mode = Literal["greedy", "sampled", "stop strings"]


def params_of(mode: Mode, seed: int) -> SamplingParams:
    if mode == "sampled":
        return SamplingParams(temperature=0.8, seed=seed, max_tokens=5, ignore_eos=True)
    return greedy(5, stop=["qu", "ti"] if mode == "stop strings" else ())


@pytest.mark.parametrize("mode", ["greedy", "sampled", "stop strings"])
async def test_2_concurrent_sessions_leak_nothing(mode: Mode) -> None:
    """Six sessions of five turns at once, ten rounds."""
    async with open_stage(num_slots=4, num_pages=120) as stage:
        stage.device.open()

        async def live(number: int) -> None:
            async with stage.engine.session() as session:
                history: list[int] = []
                for turn_number in range(5):
                    params = params_of(mode, number)
                    turn = session.turn(prompt(4, number + turn_number), params)
                    async with turn:
                        result = await turn.wait()
                    if mode != "sampled":
                        stage.noted.append(((*history, *result.prompt_token_ids), result.token_ids))
                    history += [*result.prompt_token_ids, *result.token_ids]
                    assert session.info.num_tokens == len(history)

        for _ in range(10):
            async with anyio.create_task_group() as tasks:
                for number in range(6):
                    tasks.start_soon(live, number)
            await stage.settle()
            stage.assert_at_rest()
            # The cold runs of one round judge all of them: they are alike.
            del stage.noted[30:]
        assert stage.engine.health().live
        assert stage.engine.stats().turns_failed == 0


async def test_3_stress_with_one_shots_long_prompts_and_preemption() -> None:
    """Eight sessions and four plain clients of six turns, on pages for three of them."""
    async with open_stage(
        num_slots=6, num_pages=60, max_num_seqs=6, max_num_batched_tokens=24
    ) as stage:
        stage.device.open()

        async def live(number: int) -> None:
            rng = random.Random(number)
            async with stage.engine.session() as session:
                history: list[int] = []
                for salt in range(6):
                    tokens = prompt(rng.choice([2, 9, 20]), salt)
                    async with session.turn(tokens, greedy(rng.choice([3, 10]))) as turn:
                        history = stage.note(history, await turn.wait())

        async def ask(number: int) -> None:
            rng = random.Random(1000 + number)
            for salt in range(6):
                length = rng.choice([5, 40, 90])
                async with stage.engine.stream(prompt(length, salt), greedy(30)) as out:
                    stage.note([], await out.wait())

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(live, number)
            for number in range(4):
                tasks.start_soon(ask, number)
        await stage.settle()
        stage.assert_at_rest()
        stats = stage.engine.stats()
        assert stats.turns_finished == 8 * 6 + 4 * 6
        assert stats.preemptions > 0
        assert stats.forced_parks > 0


LONG = 1000


@pytest.mark.parametrize("landed", [0, 3])
async def test_4_recovery_from_an_abort_of_a_later_turn(landed: int) -> None:
    """A huge turn is aborted amid its chunks; the next prompt is what the *first* one left."""
    async with open_stage(num_pages=400) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(9), greedy(8))))
        async with session.turn(prompt(LONG, 1), greedy(4)) as turn:
            await stage.step(landed)
            assert stage.engine.abort(turn.request_id)
            with pytest.raises(RequestAborted):
                await turn.wait()
        result = await stage.run(session.turn(prompt(5, 2), greedy(4)))
        assert result.usage.prompt_tokens == len(history) + 5
        assert result.usage.cached_tokens == len(history) - 1
        stage.note(history, result)


@pytest.mark.parametrize("landed", [0, 3])
async def test_5_recovery_from_an_abort_of_the_first_turn(landed: int) -> None:
    """The session is as good as new."""
    async with open_stage(num_pages=400) as stage, stage.engine.session() as session:
        async with session.turn(prompt(LONG, 1), greedy(4)) as turn:
            await stage.step(landed)
            turn.cancel()
        result = await stage.run(session.turn(prompt(5, 2), greedy(4)))
        assert result.usage.prompt_tokens == 5
        assert result.usage.cached_tokens == 0
        stage.note([], result)


async def test_6_recovery_from_a_turn_that_never_began() -> None:
    """Aborted before it was matched with anything: refused, or abandoned in the same breath."""
    async with open_stage(num_pages=40) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(9), greedy(8))))
        with pytest.raises(PromptTooLong):
            await stage.run(session.turn(prompt(LONG, 1), greedy(4)))
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with session.turn(prompt(6, 1), greedy(4)) as turn:
                await turn.wait()
        await stage.drain()
        result = await stage.run(session.turn(prompt(5, 2), greedy(4)))
        assert result.usage.prompt_tokens == len(history) + 5
        stage.note(history, result)


async def test_7_abort_heavy_chunked_prefill_leaks_nothing() -> None:
    """Four sessions, eight rounds: a good turn beside two plain ones, one too long, a recovery."""
    async with open_stage(
        num_slots=6, num_pages=160, max_model_len=512, max_num_batched_tokens=48
    ) as stage:
        stage.device.open()

        async def ask(salt: int) -> None:
            async with stage.engine.stream(prompt(60, salt), greedy(4)) as out:
                stage.note([], await out.wait())

        async def turn_of(session: Session, tokens: list[int], history: list[int]) -> list[int]:
            async with session.turn(tokens, greedy(3)) as turn:
                result = await turn.wait()
            if history:
                assert result.usage.cached_tokens + result.usage.recomputed_tokens > 0
            return stage.note(history, result)

        async def live(number: int) -> None:
            async with stage.engine.session() as session:
                history: list[int] = []
                for round_number in range(8):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(ask, 100 * number + round_number)
                        tasks.start_soon(ask, 100 * number + round_number + 50)
                        history = await turn_of(session, prompt(30, round_number), history)
                    with pytest.raises(PromptTooLong, match="512"):
                        async with session.turn(prompt(500), greedy(30)):
                            pass
                    history = await turn_of(session, prompt(2, round_number), history)

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(live, number)
        await stage.settle()
        stage.assert_at_rest()
        assert stage.engine.health().live


async def test_a_late_interrupt_goes_back_and_forth() -> None:
    """The kit's backtracking: five times back to an earlier point of the last turn, and on."""
    async with open_stage(num_pages=60) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(9), greedy(8))))
        for number in range(5):
            whole = await stage.run(session.turn(prompt(5, number), greedy(8)))
            stage.note(history, whole)
            for keep in (6, 3, number % 3):
                assert await session.interrupt(keep) == keep
                assert session.info.num_tokens == len(history) + 5 + keep
            history += [*whole.prompt_token_ids, *whole.token_ids[: number % 3]]
            assert_cut(stage, session, history)
        stage.note(history, await stage.run(session.turn(prompt(2, 9), greedy(4))))


def assert_cut(stage: Stage, session: Session, history: list[int]) -> None:
    """The state that is left lies within the log; the history was not given up."""
    stage.check()
    info = session.info
    assert info.num_tokens == len(history)
    assert 0 < known(info.position) < known(info.num_tokens)
