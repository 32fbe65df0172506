"""Chat templates, token for token as transformers applies them."""

from typing import Any

import pytest

from kernel.chat import ChatPrompt
from tests.text.conversations import format_of, said
from tests.text.templates import TEMPLATES, Shape
from tests.text.trained import library, tokenizer

transformers = pytest.importorskip("transformers")

KIND = "byte level"
SYSTEM = said("system", 'Be brief. <tag> & "quotes" — é')
USER, MORE = said("user", "  Hello there!\n"), said("user", "And now?")
ANSWER = said("assistant", "Hi 😀, what is it? ")
THOUGHT = said("assistant", "<think>\nHm, é.\n</think>\n\nIt is the cat.")
TOOL: dict[str, object] = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"é": {}}}},
}
CALL = said("assistant", "", tool_calls=[{"function": {"name": "look", "arguments": {"é": 1}}}])
RESULT = said("tool", '{"found": [1, 2]}')
CONVERSATIONS = {
    "one message": [USER],
    "a system message": [SYSTEM, USER],
    "three turns": [SYSTEM, USER, ANSWER, MORE, ANSWER, USER],
    "thoughts": [USER, THOUGHT, MORE, THOUGHT, USER],
    "an answer at the end": [USER, ANSWER],
    "a value that is None": [said("user", "Hm", tool_calls=None, name=None)],
    "thoughts of their own": [USER, said("assistant", "Yes.", reasoning="Perhaps?"), MORE],
}


def theirs(shape: Shape, messages: list[dict[str, object]], **options: Any) -> list[int]:
    peer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library(KIND),
        bos_token=shape.bos,
        eos_token=shape.end,
        chat_template=shape.source,
    )
    ids: list[int] = peer.apply_chat_template(messages, return_dict=False, **options)
    return ids


def ours(shape: Shape, prompt: ChatPrompt, *, answers: bool) -> list[int]:
    return list(format_of(shape, tokenizer(KIND)).compose((), prompt, answers=answers).token_ids)


@pytest.mark.parametrize("answers", [True, False], ids=["answers", "appends"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_conversations_are_the_same_tokens(name: str, conversation: str, answers: bool) -> None:
    shape, messages = TEMPLATES[name], CONVERSATIONS[conversation]
    if messages[0]["role"] == "system" and not shape.has_system:
        messages = messages[1:]

    expected = theirs(shape, messages, add_generation_prompt=answers)

    assert expected
    assert ours(shape, ChatPrompt(messages), answers=answers) == expected


@pytest.mark.parametrize("name", [name for name, shape in TEMPLATES.items() if shape.has_tools])
def test_tools_are_the_same_tokens(name: str) -> None:
    """Schemas are written as JSON, which Jinja's own filter would escape for web pages."""
    shape = TEMPLATES[name]
    messages = [USER] if shape.alternates else [SYSTEM, USER, CALL, RESULT, RESULT]
    prompt = ChatPrompt(messages, tools=[TOOL, TOOL])
    expected = theirs(shape, messages, tools=[TOOL, TOOL], add_generation_prompt=True)

    assert ours(shape, prompt, answers=True) == expected
    assert ours(shape, ChatPrompt(messages), answers=True) != expected


@pytest.mark.parametrize("begun", ["Sure, here", " spaced ", "Well:\n", "x"], ids=repr)
@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_that_was_begun_is_the_same_tokens(name: str, begun: str) -> None:
    """As ``continue_final_message``: nothing closes the message that goes on."""
    messages = [USER, said("assistant", begun)]
    expected = theirs(TEMPLATES[name], messages, continue_final_message=True)
    prompt = ChatPrompt(messages, continue_final=True)

    assert ours(TEMPLATES[name], prompt, answers=True) == expected


@pytest.mark.parametrize("thinks", [True, False])
def test_variables_of_the_template_are_the_same_tokens(thinks: bool) -> None:
    shape = TEMPLATES["qwen3"]
    expected = theirs(shape, [USER], enable_thinking=thinks, add_generation_prompt=True)
    prompt = ChatPrompt([USER], variables={"enable_thinking": thinks})

    assert ours(shape, prompt, answers=True) == expected


@pytest.mark.parametrize("name", [name for name, shape in TEMPLATES.items() if shape.alternates])
def test_what_the_template_refuses_is_refused_with_its_own_words(name: str) -> None:
    from adapters.text.errors import ChatTemplateError

    with pytest.raises(ChatTemplateError, match="roles must alternate"):
        ours(TEMPLATES[name], ChatPrompt([USER, USER]), answers=True)
