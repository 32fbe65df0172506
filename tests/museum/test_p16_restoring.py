"""P16, from M086 on: what a state needs to go on is with it, and going on is the same each time."""

import pytest

from kernel import ValidationError
from tests.museum.exhibit import exhibit
from tests.museum.support import are_equal, bits_of, on_the_tiny_model, open_tiny, words
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M131", pattern="P16", guard="position check", bug="append-absorbs-the-last-token")
async def test_m131_a_state_keeps_a_token_to_go_on_from() -> None:
    """ggml-org/llama.cpp#24003: a restored state was past its last token, and had no input left.

    A prompt is absorbed and nothing more; the state stands one token back. Going on without input
    generates from exactly that prompt, as often as asked; on an empty session it is a typed error.
    """
    for length in (1, 2, 4, 5, 8):
        async with open_stage(num_slots=3) as stage, stage.engine.session() as session:
            with pytest.raises(ValidationError, match="give at least one token"):
                await stage.run(session.turn([], greedy(3)))
            stage.device.holds = False
            await session.append(prompt(length))
            info = session.info
            assert (info.num_tokens, info.position) == (length, length - 1)
            tokens: set[tuple[int, ...]] = set()
            for _ in range(3):
                async with session.turn([], greedy(4)) as turn:
                    result = await turn.wait()
                assert result.usage.cached_tokens == length - 1
                stage.note(prompt(length), result)
                tokens.add(result.token_ids)
                assert await session.interrupt(0) == 0
                assert session.info.num_tokens == length
            assert len(tokens) == 1


@exhibit("M134", pattern="P16", guard="ledger", bug="device-skips-the-tail")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@on_the_tiny_model
async def test_m134_going_on_from_a_state_is_the_same_each_time() -> None:
    """ggml-org/llama.cpp#18552: restore and replay gave other results, with a run between.

    On the real scan. From one state, in the middle of a page, the same turn is run again and
    again, with other turns begun and rolled back in between. The tokens and the new states are
    equal bit for bit each time, and the state itself is never touched.
    """
    async with open_stage(open_tiny, num_slots=5, num_pages=60) as stage:
        async with stage.engine.session() as saved:
            history = stage.note([], await stage.run(saved.turn(words(9), greedy(5))))
            before = bits_of(stage, saved)
            tokens: tuple[int, ...] = ()
            bits = before
            for salt in range(3):
                async with saved.turn(words(3 + salt, salt), greedy(6)):
                    await stage.settle()
                    await stage.step(2)
                await stage.settle()
                await stage.drain()
                async with saved.fork() as replay:
                    result = await stage.run(replay.turn(words(4, 7), greedy(6)))
                    stage.note(history, result)
                    new = bits_of(stage, replay)
                    if salt:
                        assert result.token_ids == tokens
                        assert are_equal(new, bits)
                    tokens, bits = result.token_ids, new
                await stage.settle()
            assert are_equal(before, bits_of(stage, saved))
        await stage.settle()
        stage.assert_at_rest()
