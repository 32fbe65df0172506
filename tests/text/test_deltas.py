"""What a turn's messages add to a log: the log is the whole rendering, however turns ended."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.text import chat_format
from adapters.text.errors import ChatTemplateError
from kernel.chat import ChatPrompt
from tests.text.conversations import Talk, format_of, said
from tests.text.templates import SPECIAL, TEMPLATES, Shape
from tests.text.trained import tokenizer

CLOSING = [name for name, shape in TEMPLATES.items() if shape.closes]
FAITHFUL = [name for name in CLOSING if TEMPLATES[name].keeps_text]
OTHERS = [name for name in CLOSING if name not in FAITHFUL]
FALLBACK = "byte fallback, first"
PAIRS = [
    *((name, "byte level") for name in FAITHFUL),
    *((name, "byte level with a beginning") for name in ("chatml", "zephyr")),
    *((name, FALLBACK) for name in ("chatml", "zephyr")),
]
FEW = settings(max_examples=15)
"""Of each template; together they see a few hundred conversations."""


def words() -> st.SearchStrategy[str]:
    """What somebody says: any text that begins and ends with a character, and no special token."""
    text = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=12)
    said_ = st.lists(st.one_of(text, st.sampled_from(["the cat", "😀", "\n", "</think", "家"])))
    joined = said_.map(" ".join).map(str.strip)
    return joined.filter(lambda text: text and not any(name in text for name in SPECIAL))


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[str, str, int | None, bool]]:
    """Per turn: what is asked, what is answered, after how many tokens it is cut, and if not."""
    one = st.tuples(words(), words(), st.one_of(st.none(), st.integers(0, 6)), st.booleans())
    return draw(st.lists(one, min_size=1, max_size=4))


def start(name: str, kind: str) -> Talk:
    return Talk(format_of(TEMPLATES[name], tokenizer(kind)))


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@FEW
@given(turns=turns())
def test_the_log_is_the_whole_rendering_after_each_turn(
    name: str, kind: str, turns: list[tuple[str, str, int | None, bool]]
) -> None:
    """As text always; as tokens where each answer is what encoding it gives."""
    talk = start(name, kind)
    end = TEMPLATES[name].end
    encodes_alike = True
    for asked, answered, keep, is_cut in turns:
        new = [said("user", asked)]
        if not talk.messages and TEMPLATES[name].has_system:
            new.insert(0, said("system", "Be brief."))
        composed = talk.ask(new)

        whole = talk.rendered()
        ids = talk.tokenizer.encode(whole)
        assert talk.text == talk.tokenizer.decode_with_special(ids)
        assert not composed.history_differs
        if encodes_alike and kind != FALLBACK:
            assert talk.log.tolist() == ids

        kept = talk.answer(answered, end=None if is_cut else end, keep=keep)
        encodes_alike &= not is_cut and kept == answered


@pytest.mark.parametrize("name", OTHERS)
@FEW
@given(turns=turns())
def test_where_a_template_trims_the_words_are_the_whole_rendering(
    name: str, turns: list[tuple[str, str, int | None, bool]]
) -> None:
    """It writes an answer's spaces otherwise once it is history; the log keeps what was said."""
    talk = start(name, "byte level")
    for asked, answered, keep, is_cut in turns:
        composed = talk.ask([said("user", asked)])

        assert squeezed(talk.text) == squeezed(talk.rendered())
        assert not composed.history_differs
        talk.answer(answered, end=None if is_cut else TEMPLATES[name].end, keep=keep)


@pytest.mark.parametrize("name", CLOSING)
def test_an_answer_is_closed_once(name: str) -> None:
    """By the model, or by the next turn when the answer was cut; never twice and never not."""
    end = TEMPLATES[name].end
    texts: list[str] = []
    talk = start(name, "byte level")
    for closes in (end, None):
        talk = start(name, "byte level")
        talk.ask([said("user", "Hello")])
        talk.answer("the cat", end=closes)
        talk.ask([said("user", "And now?")])
        texts.append(talk.text)

    closed, cut = texts
    assert squeezed(closed) == squeezed(cut)
    assert closed.count(end) == talk.rendered().count(end)


def test_a_token_that_closes_nothing_stays_and_the_answer_is_closed() -> None:
    """A model may end by another of its ends than the template writes; the log is the truth."""
    talk = start("chatml", "byte level")
    talk.ask([said("user", "Hello")])
    talk.answer("the cat", end="<|endoftext|>")
    composed = talk.ask([said("user", "And now?")])

    assert "the cat<|endoftext|><|im_end|>\n<|im_start|>user\nAnd now?" in talk.text
    assert composed.history_differs
    talk.answer("yes", end="<|im_end|>")
    assert talk.ask([said("user", "And then?")]).history_differs


@pytest.mark.parametrize("name", ["qwen3", "lfm2", "nemotron"])
def test_thoughts_stay_in_the_log_and_the_difference_is_told(name: str) -> None:
    """The template drops them from history. Recurrent states can't be cut: the log stands."""
    talk = start(name, "byte level")
    end = TEMPLATES[name].end
    differ: list[bool] = []
    for asked in ("One?", "Two?", "Three?", "Four?"):
        differ.append(talk.ask([said("user", asked)]).history_differs)
        talk.answer(f"<think>\nHm, {asked}\n</think>\n\nIt is so.", end=end)

    assert differ == [False, False, True, True]
    assert talk.text.count("<think>") == 4
    assert talk.rendered().count("<think>") < 4


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_date_that_changes_is_told_and_not_written_again(name: str) -> None:
    """What the template adds at the beginning is in the log as it was when it was said."""
    source = "{{ 'Today is ' + today + '\\n' }}" + TEMPLATES[name].source.replace("bos_token", "''")
    shape = Shape(source, "<s>", TEMPLATES[name].end)
    talk = Talk(format_of(shape, tokenizer("byte level")))
    talk.ask(ChatPrompt([said("user", "Hi")], variables={"today": "Monday"}))
    talk.answer("Ho", end=TEMPLATES[name].end)
    same = talk.ask([said("user", "Hi")])
    talk.answer("Ho", end=TEMPLATES[name].end)
    other = talk.ask(ChatPrompt([said("user", "Hi")], variables={"today": "Tuesday"}))

    assert not same.history_differs
    assert other.history_differs
    assert talk.text.count("Today is Monday") == 1
    assert "Tuesday" not in talk.text


def test_several_messages_at_once_and_a_system_message_later() -> None:
    talk = start("granite", "byte level")
    talk.ask([said("system", "Be brief."), said("user", "Hello"), said("user", "Anybody?")])
    talk.answer("Yes", end=None)
    talk.ask([said("system", "Be long."), said("user", "Go on")])

    assert talk.text == talk.rendered()


@pytest.mark.parametrize("name", ["chatml", "granite", "zephyr", "falcon h1", "plain"])
def test_appended_messages_are_followed_by_the_rest(name: str) -> None:
    """A system message absorbed before anybody asks, a note in between, two notes in a row."""
    talk = start(name, "byte level")
    end = TEMPLATES[name].end if TEMPLATES[name].closes else None
    talk.ask([said("system", "Be brief.")], answers=False)
    assert talk.text == talk.rendered(answers=False)
    talk.ask([said("user", "Hello")])
    talk.answer("Yes", end=end)
    talk.ask([said("user", "A note.")], answers=False)
    talk.ask([said("user", "Another note.")], answers=False)
    assert squeezed(talk.text) == squeezed(talk.rendered(answers=False))
    talk.ask([said("user", "So?")])

    assert squeezed(talk.text) == squeezed(talk.rendered())


def test_appended_messages_that_would_be_written_otherwise_are_refused() -> None:
    """Results of tools share one block: the first of two can't stand in the log by itself."""
    talk = start("qwen3", "byte level")
    talk.ask([said("user", "Look twice")])
    talk.answer("I look", end="<|im_end|>")
    talk.ask([said("tool", "one")], answers=False)

    with pytest.raises(ChatTemplateError, match="give them all in one turn"):
        talk.ask([said("tool", "two")])


def test_results_of_tools_follow_the_answer_that_called() -> None:
    """Tools are told once; what the model wrote to call one is its answer's text."""
    talk = start("qwen3", "byte level")
    tools = [{"type": "function", "function": {"name": "look"}}]
    talk.ask(ChatPrompt([said("user", "Look")], tools=tools))
    talk.answer('<tool_call>{"name": "look"}</tool_call>', end="<|im_end|>")
    composed = talk.ask([said("tool", "one"), said("tool", "two")])
    peer = talk.format.render(ChatPrompt(talk.messages, tools=tools))

    assert talk.text == peer
    assert not composed.history_differs
    assert talk.text.count("# Tools") == 1


@pytest.mark.parametrize("end", ["<|im_end|>", None])
def test_an_answer_that_was_begun_is_one_message_with_its_beginning(end: str | None) -> None:
    talk = start("chatml", "byte level")
    begun = [said("user", "Count"), said("assistant", "One, two")]
    talk.ask(ChatPrompt(begun, continue_final=True))
    assert talk.text.endswith("<|im_start|>assistant\nOne, two")
    talk.answer(", three", end=end)
    talk.ask([said("user", "Go on")])

    assert "<|im_start|>assistant\nOne, two, three<|im_end|>\n<|im_start|>user\nGo on" in talk.text


def test_what_stands_for_the_last_answer_is_nobodys_to_write() -> None:
    """A message that held it would end the conversation; so it isn't the same in two processes."""
    here = vars(chat_format)["_PLACEHOLDER"]
    code = "from adapters.text.chat_format import _PLACEHOLDER as name; print(name)"
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert len(other) == len(here) > 24
    assert other != here


def test_a_template_that_hides_the_last_answer_can_have_no_second_turn() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}\n{% endif %}{% endfor %}"
    )
    talk = Talk(format_of(Shape(source, "<s>", "</s>"), tokenizer("byte level")))
    talk.ask([said("user", "Hello")])
    talk.answer("Yes", end="</s>")

    with pytest.raises(ChatTemplateError, match="shows the last answer 0 times"):
        talk.ask([said("user", "So?")])
