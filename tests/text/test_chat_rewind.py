"""Undone turns of messages: the conversation is cut with the log, and talk goes on from there."""

from typing import Any

import pytest

from kernel import Session, ValidationError
from kernel.chat import Message
from tests.text.conversations import said
from tests.text.test_chat_sessions import GREEDY, TOKENIZER, engine_for, say, text_of, written


async def talk(session: Session, device: Any, turns: int) -> list[list[Message]]:
    """So many turns; the messages after each number of them."""
    messages: list[list[Message]] = [[]]
    for number in range(turns):
        text, answer = f"Line {number}", f"the cat {number}"
        assert await say(session, device, text, answer) == answer
        messages.append([*messages[-1], said("user", text), said("assistant", answer)])
    return messages


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
async def test_what_is_said_after_an_undo_follows_what_is_left(kept: int) -> None:
    """The log is what the template writes for the messages that are left, and the new one."""
    device, opening = engine_for()
    async with opening as engine, engine.session() as session:
        messages = await talk(session, device, 3)
        await session.rewind(kept)
        assert await say(session, device, "Instead", "no") == "no"
        asked = written([*messages[kept], said("user", "Instead")])
        assert text_of(engine, session) == f"{asked}no<|im_end|>"
        await session.rewind(-1)
        await say(session, device, "Or else", "yes")

        assert text_of(engine, session).startswith(
            written([*messages[kept], said("user", "Or else")])
        )


async def test_a_checkpoint_brings_the_conversation_back() -> None:
    """Any number of times, each time followed by something else."""
    device, opening = engine_for()
    async with opening as engine, engine.session() as session:
        messages = await talk(session, device, 2)
        mark = await session.checkpoint()
        for text in ("One way", "Another", "A third"):
            await session.restore(mark)
            await say(session, device, text, "yes")
            assert text_of(engine, session).startswith(written([*messages[2], said("user", text)]))


async def test_an_answer_that_went_on_is_cut_where_it_went_on() -> None:
    """A turn without input goes on with the answer before it; undone, that one stands again."""
    device, opening = engine_for()
    async with opening as engine, engine.session() as session:
        device.script.extend(TOKENIZER.encode("the cat and the hat<|im_end|>"))
        short = type(GREEDY)(temperature=0, max_tokens=3)
        async with session.turn([said("user", "Hello")], short) as turn:
            first = (await turn.wait()).text
        async with session.turn([], GREEDY) as turn:
            await turn.wait()
        await say(session, device, "And now?", "yes")
        assert await session.rewind(1) == 1
        device.script.clear()
        await say(session, device, "Instead", "no")
        whole = [said("user", "Hello"), said("assistant", first), said("user", "Instead")]

        assert text_of(engine, session).startswith(written(whole))


async def test_other_text_that_was_undone_no_longer_stands_in_the_way() -> None:
    """Messages can't follow text that no template wrote; without it they can again."""
    device, opening = engine_for()
    async with opening as engine, engine.session() as session:
        messages = await talk(session, device, 1)
        device.script.extend(TOKENIZER.encode("yes<|im_end|>"))
        async with session.turn("Some text", GREEDY) as turn:
            await turn.wait()
        with pytest.raises(ValidationError, match="use one kind in a session"):
            async with session.turn([said("user", "Hello")], GREEDY):
                pytest.fail("it was accepted")
        await session.rewind(-1)
        await say(session, device, "Instead", "no")

        assert text_of(engine, session).startswith(written([*messages[1], said("user", "Instead")]))


async def test_a_session_that_began_with_other_text_begins_anew() -> None:
    """Back at nothing it takes messages, like any session."""
    device, opening = engine_for()
    async with opening as engine, engine.session() as session:
        device.script.extend(TOKENIZER.encode("yes<|im_end|>"))
        async with session.turn("Some text", GREEDY) as turn:
            await turn.wait()
        await session.rewind(0)
        await say(session, device, "Hello", "no")

        assert text_of(engine, session).startswith(written([said("user", "Hello")]))


async def test_several_answers_to_one_conversation() -> None:
    """The messages are written once, with what stands before an answer."""
    device, opening = engine_for()
    async with opening as engine:
        params = type(GREEDY)(n=2, seed=3, max_tokens=4, ignore_eos=True)
        result = await engine.complete([said("user", "Hello")], params)

        asked = TOKENIZER.encode(written([said("user", "Hello")]))
        assert list(result.prompt_token_ids) == asked
        assert device is not None
        assert [len(output.token_ids) for output in result.outputs] == [4, 4]
