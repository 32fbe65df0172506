"""DF-13: a stop string ends inside what the device has computed already.

It is found at the edge, one step late or more, and may span tokens; a recurrent state can't be cut.
So the log is cut to the token, what the text promised is what the log holds, and the next turn
starts from a state that is never ahead of the log.
"""

from collections.abc import Sequence

import attrs
import pytest

from kernel import Engine, RequestOutput
from kernel.step import OpenedDevice
from tests.known import known
from tests.scenarios.stage import Stage, greedy, open_fake, open_stage, prompt

LENGTH = 12
CONTEXT = prompt(6)


async def undisturbed(stage: Stage) -> RequestOutput:
    """The same answer without a stop string."""
    return await stage.run(stage.engine.stream(CONTEXT, greedy(LENGTH)))


def texts(engine: Engine, result: RequestOutput) -> list[str]:
    """The text of each token."""
    return [engine.tokenizer.decode([token]) for token in result.token_ids]


@attrs.frozen
class Words:
    """Each token is a word, so a character never spans two of them."""

    vocab_size: int = 1000

    def encode(self, text: str, /) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, token_ids: Sequence[int], /) -> str:
        return "".join(f" w{token:03}" for token in token_ids)


def open_wordy() -> OpenedDevice:
    return OpenedDevice(device=open_fake().device, tokenizer=Words())


@pytest.mark.parametrize("at", [1, 4, 9])
@pytest.mark.parametrize("span", ["within a token", "over two tokens", "over three tokens"])
async def test_text_and_log_end_before_the_stop_string(at: int, span: str) -> None:
    """The text excludes it, the tokens end before the one in which it begins."""
    async with open_stage(open_wordy) as stage, stage.engine.session() as session:
        whole = await undisturbed(stage)
        pieces = texts(stage.engine, whole)
        stop = {
            "within a token": pieces[at],
            "over two tokens": pieces[at][2:] + pieces[at + 1][:2],
            "over three tokens": pieces[at][2:] + pieces[at + 1] + pieces[at + 2][:1],
        }[span]
        begins = whole.text.index(stop)
        result = await stage.run(session.turn(CONTEXT, greedy(LENGTH, stop=[stop])))

        assert result.finish_reason == "stop"
        assert result.stop_reason == stop
        assert result.text == whole.text[:begins]
        kept = len(result.token_ids)
        assert result.token_ids == whole.token_ids[:kept]
        # The text of "within" ends before its token; else part of the first token was sent.
        assert kept == (at if span == "within a token" else at + 1)
        history = stage.note([], result)
        assert_never_ahead(stage, history)
        stage.note(history, await stage.run(session.turn(prompt(3, 1), greedy(4))))


def assert_never_ahead(stage: Stage, history: list[int]) -> None:
    """The state lags behind the log, by at least the one token that is always pending."""
    info = stage.engine.list_sessions()[0]
    assert info.num_tokens == len(history)
    assert known(info.position) <= known(info.num_tokens) - 1
    assert known(info.pending_tokens) == known(info.num_tokens) - known(info.position) >= 1


@pytest.mark.parametrize("late_by", [1, 2, 3])
async def test_steps_that_overshoot_are_rolled_back(late_by: int) -> None:
    """Tokens beyond the stop were drawn and absorbed; not one of them is in log or state."""
    async with open_stage(open_wordy) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(CONTEXT[:-2], greedy(1))))
        alone = await stage.run(session.turn(prompt(2, 3), greedy(LENGTH)))
        assert await session.interrupt(0) == 0
        pieces = texts(stage.engine, alone)
        # Complete only with its last token, so the cut lies as many tokens back.
        stop = "".join(pieces[3 : 3 + late_by])[1:] + pieces[3 + late_by][:3]
        result = await stage.run(session.turn([], greedy(LENGTH, stop=[stop])))
        assert result.token_ids == alone.token_ids[:4]
        assert result.text == alone.text[: alone.text.index(stop)]
        history = [*history, *prompt(2, 3), *result.token_ids]
        assert_never_ahead(stage, history)
        stage.note(history, await stage.run(session.turn(prompt(3, 1), greedy(4))))


async def test_the_stop_string_can_be_part_of_the_answer() -> None:
    """``include_stop_str_in_output``: the log ends after the token that completes it."""
    async with open_stage(open_wordy) as stage, stage.engine.session() as session:
        whole = await undisturbed(stage)
        pieces = texts(stage.engine, whole)
        stop = pieces[4][2:] + pieces[5][:2]
        params = greedy(LENGTH, stop=[stop], include_stop_str_in_output=True)
        result = await stage.run(session.turn(CONTEXT, params))
        assert result.text.endswith(stop)
        assert len(result.token_ids) == 6
        history = stage.note([], result)
        assert_never_ahead(stage, history)
        stage.note(history, await stage.run(session.turn(prompt(3, 1), greedy(4))))


async def test_deltas_never_show_what_may_be_the_beginning_of_a_stop_string() -> None:
    """What was sent can't be taken back, so it is held back until it is safe."""
    async with open_stage(open_wordy) as stage, stage.engine.session() as session:
        whole = await undisturbed(stage)
        pieces = texts(stage.engine, whole)
        stop = pieces[5][2:] + pieces[6][:2]
        shown, tokens = "", 0
        stage.device.open()
        async with session.turn(CONTEXT, greedy(LENGTH, stop=[stop])) as turn:
            async for delta in turn:
                shown += delta.text
                tokens += len(delta.token_ids)
                assert whole.text.startswith(shown)
                assert len(shown) <= whole.text.index(stop)
        assert shown == turn.result.text
        assert tokens == len(turn.result.token_ids)


async def test_a_stop_token_is_in_the_log_and_not_in_the_text() -> None:
    """Unlike a stop string: the token that ended the turn was the model's own word."""
    async with open_stage(open_wordy) as stage, stage.engine.session() as session:
        whole = await undisturbed(stage)
        stop = whole.token_ids[4]
        result = await stage.run(session.turn(CONTEXT, greedy(LENGTH, stop_token_ids=[stop])))
        assert result.token_ids == whole.token_ids[:5]
        assert result.stop_reason == stop
        assert result.text == "".join(texts(stage.engine, whole)[:4])
        history = stage.note([], result)
        assert session.info.num_tokens == len(history)
        stage.note(history, await stage.run(session.turn(prompt(3, 1), greedy(4))))


async def test_a_second_stop_in_a_row_absorbs_the_difference_and_not_the_history() -> None:
    """Cuts in a row leave more and more pending; it is absorbed and committed on the way."""
    async with open_stage(open_wordy, num_pages=100) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(30), greedy(2))))
        for number in range(4):
            probe = await stage.run(session.turn(prompt(7, number), greedy(LENGTH)))
            stop = stage.engine.tokenizer.decode(probe.token_ids[6:7])
            assert stop
            await session.interrupt(0)
            result = await stage.run(session.turn([], greedy(LENGTH, stop=[stop])))
            assert result.finish_reason == "stop"
            assert len(result.token_ids) == 6
            assert result.usage.cached_tokens >= 30
            history = [*history, *prompt(7, number), *result.token_ids]
            assert_never_ahead(stage, history)
        stage.note(history, await stage.run(session.turn(prompt(3, 9), greedy(4))))
