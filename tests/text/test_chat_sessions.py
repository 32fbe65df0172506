"""Sessions and requests of messages on a real engine: the log is what the template writes."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import attrs
import pytest

from adapters.text.errors import ChatTemplateError
from kernel import (
    BlockingEngine,
    ChatPrompt,
    Engine,
    EngineConfig,
    RequestAborted,
    SamplingParams,
    Session,
    SessionBusy,
    SessionClosed,
    ValidationError,
)
from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.chat import Composition, Exchange, Message
from kernel.engine.desk import CALLER
from kernel.ids import SessionId, TurnId, session_custodian
from kernel.messages import CancelTurn, CloseSession, InterruptTurn, SessionMessage
from tests.text.conversations import format_of, said
from tests.text.scripted import ScriptedDevice, log_of, opened
from tests.text.templates import TEMPLATES
from tests.text.trained import tokenizer

TOKENIZER = tokenizer("byte level")
CHATML = format_of(TEMPLATES["chatml"], TOKENIZER)
CONFIG = EngineConfig(model="fake", page_size=4, log_events=False)
GREEDY = SamplingParams(temperature=0, max_tokens=64)
HELLO, AGAIN = said("user", "Hello"), said("user", "And now?")


def engine_for(name: str = "chatml", **options: Any) -> tuple[ScriptedDevice, Any]:
    shape = TEMPLATES[name]
    device, both = opened(TOKENIZER, format_of(shape, TOKENIZER), ends=shape.end, **options)
    return device, Engine.open(CONFIG, device=both)


def text_of(engine: Engine, session: Session) -> str:
    return TOKENIZER.decode_with_special(log_of(engine, session.session_id))


def written(messages: Sequence[Message], name: str = "chatml", *, answers: bool = True) -> str:
    return format_of(TEMPLATES[name], TOKENIZER).render(messages, answers=answers)


async def say(session: Session, device: ScriptedDevice, text: str, answer: str) -> str:
    device.script.extend(TOKENIZER.encode(answer + "<|im_end|>"))
    async with session.turn([said("user", text)], GREEDY) as turn:
        return (await turn.wait()).text


@pytest.mark.parametrize("name", ["chatml", "qwen3", "granite", "zephyr"])
async def test_the_log_is_the_whole_rendering_however_turns_end(name: str) -> None:
    """By the model's end, at the limit, by an interrupt during or after, or by a stop string."""
    rng = random.Random(name)
    device, opening = engine_for(name, delay=0.0002)
    messages: list[Message] = [said("system", "Be brief.")]
    async with opening as engine, engine.session() as session:
        for number in range(10):
            new = [*messages, said("user", f"Line {number}")][0 if number == 0 else -1 :]
            messages = [*messages, said("user", f"Line {number}")]
            answer = f"the cat {number} and the hat, über"
            device.script.clear()
            device.script.extend(TOKENIZER.encode(answer + TEMPLATES[name].end))
            ending = rng.choice(["end", "length", "interrupt", "late", "stop", "leave"])
            params = SamplingParams(
                temperature=0,
                max_tokens=5 if ending == "length" else 64,
                stop=("hat",) if ending == "stop" else (),
            )
            async with session.turn(new, params, on_exit="keep") as turn:
                if ending in ("interrupt", "leave"):
                    async for _ in turn:
                        break
                if ending == "interrupt":
                    await session.interrupt(keep=rng.randrange(2))
                if ending != "leave":
                    await turn.wait()
            await engine.settle()
            if ending == "late":
                await session.interrupt(keep=rng.randrange(6))
            asked = written(messages, name)
            log = text_of(engine, session)
            assert log.startswith(asked)
            kept = log[len(asked) :].removesuffix(TEMPLATES[name].end)
            assert answer.startswith(kept)
            messages = [*messages, said("assistant", kept)]


async def test_a_turn_costs_its_new_tokens_only() -> None:
    device, opening = engine_for()
    async with opening as engine, engine.session() as session:
        await say(session, device, "Hello", "the cat")
        before = session.info.num_tokens
        device.script.extend(TOKENIZER.encode("yes<|im_end|>"))
        async with session.turn([AGAIN], GREEDY) as turn:
            result = await turn.wait()

        assert TOKENIZER.decode_with_special(result.prompt_token_ids) == (
            "\n<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n"
        )
        assert result.usage.cached_tokens == before - 1
        assert result.text == "yes"
        assert not result.history_differs


async def test_a_cancelled_turn_leaves_nothing_in_the_conversation() -> None:
    device, opening = engine_for(delay=0.001)
    async with opening as engine, engine.session() as session:
        await say(session, device, "Hello", "the cat")
        log = text_of(engine, session)
        async with session.turn([said("user", "Never mind")], GREEDY) as turn:
            async for _ in turn:
                break
        await engine.settle()
        assert text_of(engine, session) == log
        device.script.clear()
        await say(session, device, "And now?", "yes")

        assert "Never" not in text_of(engine, session)
        assert text_of(engine, session).startswith(
            written([HELLO, said("assistant", "the cat"), AGAIN])
        )


async def test_a_fork_goes_on_from_the_conversation_and_its_parent_from_its_own() -> None:
    device, opening = engine_for()
    async with opening as engine, engine.session() as session:
        await say(session, device, "Hello", "the cat")
        async with session.fork() as child:
            await say(child, device, "To the child", "yes")
            await say(session, device, "To the parent", "no")
            await say(child, device, "And now?", "the hat")
            start = [HELLO, said("assistant", "the cat")]
            yes = [said("user", "To the child"), said("assistant", "yes"), AGAIN]

            assert text_of(engine, child).startswith(written([*start, *yes]))
            assert text_of(engine, session).startswith(
                written([*start, said("user", "To the parent")])
            )


async def test_queued_turns_are_written_for_the_log_that_they_find() -> None:
    """The second is asked for while the first runs; what the first came to decides its tokens."""
    device, opening = engine_for(delay=0.001)
    async with opening as engine, engine.session() as session:
        device.script.extend(TOKENIZER.encode("the cat<|im_end|>yes<|im_end|>no<|im_end|>"))
        async with (
            session.turn([HELLO], GREEDY) as first,
            session.turn([AGAIN], GREEDY, wait=True) as second,
            session.turn([said("user", "Third")], GREEDY, wait=True) as third,
        ):
            assert [(await turn.wait()).text for turn in (third, second, first)] == [
                "no",
                "yes",
                "the cat",
            ]
        messages = [HELLO, said("assistant", "the cat"), AGAIN, said("assistant", "yes")]

        assert text_of(engine, session).startswith(written([*messages, said("user", "Third")]))


async def test_a_turn_that_waits_behind_a_cancelled_one_begins_the_conversation() -> None:
    device, opening = engine_for(delay=0.001)
    async with opening as engine, engine.session() as session:
        async with session.turn([HELLO], GREEDY) as first:
            async with session.turn([AGAIN], GREEDY, wait=True) as second:
                first.cancel()
                device.script.extend(TOKENIZER.encode("yes<|im_end|>"))
                await second.wait()

        assert text_of(engine, session).startswith(written([AGAIN]))


async def test_a_session_is_busy_while_messages_are_composed() -> None:
    """Between two handlers, but others post in between; nobody overtakes, nobody is lost."""
    device, opening = engine_for()
    device.script.extend(TOKENIZER.encode("the cat<|im_end|>yes<|im_end|>"))
    texts: list[str] = []
    refused: list[str] = []
    async with opening as engine, engine.session() as session:

        async def ask(wait: bool) -> None:
            try:
                async with session.turn([HELLO], GREEDY, wait=wait) as turn:
                    texts.append((await turn.wait()).text)
            except SessionBusy as error:
                refused.append(error.turn_id)

        async with anyio.create_task_group() as tasks:
            for wait in (True, False, True, False):
                tasks.start_soon(ask, wait)
        await engine.settle()

        assert len(texts) + len(refused) == 4
        assert len(texts) >= 2
        assert session.info.state == "idle"
        assert engine.stats().num_queued_tokens == 0


@attrs.define(eq=False)
class Interfering:
    """A chat format during whose work something is posted to the session, ahead of the result."""

    meanwhile: Callable[[], object] = lambda: None

    def compose(
        self, history: Sequence[Exchange], prompt: ChatPrompt, /, *, answers: bool
    ) -> Composition:
        self.meanwhile()
        return CHATML.compose(history, prompt, answers=answers)


@pytest.mark.parametrize("how", ["interrupt", "interrupt any", "abort", "close"])
async def test_what_comes_while_messages_are_composed_is_heard(how: str) -> None:
    """The same outcome as for a turn that waits: kept without an answer, cancelled, or closed."""
    interfering = Interfering()
    _, both = opened(TOKENIZER, interfering, ends="<|im_end|>")
    kept: Reply[int] = Reply()
    async with Engine.open(CONFIG, device=both) as engine, engine.session() as session:
        here = Address[SessionMessage](session_custodian(SessionId(session.session_id)))
        named = TurnId("it") if how == "interrupt" else None
        message: SessionMessage = InterruptTurn(named, None, kept)
        if how == "close":
            message = CloseSession()
        elif how == "abort":
            message = CancelTurn(TurnId("it"), "abort")
        interfering.meanwhile = lambda: engine.core.dispatcher.post(here, message, CALLER)
        turn = session.turn([HELLO], GREEDY, request_id="it")
        if how.startswith("interrupt"):
            async with turn:
                result = await turn.wait()
            assert result.finish_reason == "interrupt"
            assert await kept.wait() == 0
            assert text_of(engine, session) == written([HELLO])
        else:
            with pytest.raises(SessionClosed if how == "close" else RequestAborted):
                async with turn:
                    await turn.wait()
        await engine.settle()

        assert engine.stats().num_queued_tokens == 0
        assert session.info.state == ("closed" if how == "close" else "idle")


async def test_a_log_that_changes_while_messages_are_composed_is_composed_for_again() -> None:
    """A late interrupt cuts the turn before: what was composed would follow the longer log."""
    interfering = Interfering()
    device, both = opened(TOKENIZER, interfering, ends="<|im_end|>")
    async with Engine.open(CONFIG, device=both) as engine, engine.session() as session:
        device.script.extend(TOKENIZER.encode("the cat<|im_end|>"))
        async with session.turn([HELLO], GREEDY, request_id="first") as turn:
            await turn.wait()
        here = Address[SessionMessage](session_custodian(SessionId(session.session_id)))
        message = InterruptTurn(TurnId("first"), 1, Reply())
        interfering.meanwhile = lambda: engine.core.dispatcher.post(here, message, CALLER)
        async with session.turn([AGAIN], GREEDY) as turn:
            await turn.wait()

        the = said("assistant", TOKENIZER.decode(TOKENIZER.encode("the cat")[:1]))
        assert text_of(engine, session).startswith(written([HELLO, the, AGAIN]))


async def test_what_the_template_refuses_is_raised_at_the_block_and_leaves_the_session() -> None:
    device, opening = engine_for("llama2")
    async with opening as engine, engine.session() as session:
        with pytest.raises(ChatTemplateError, match="alternate"):
            async with session.turn([HELLO, HELLO], GREEDY):
                pytest.fail("it was accepted")
        device.script.extend(TOKENIZER.encode("yes</s>"))
        async with session.turn([HELLO], GREEDY) as turn:
            assert (await turn.wait()).text == "yes"

        assert session.info.turns == 1
        assert engine.stats().num_queued_tokens == 0
        with pytest.raises(ChatTemplateError, match="alternate"):
            await engine.complete([HELLO, HELLO], GREEDY)


async def test_appended_messages_are_absorbed_and_followed() -> None:
    device, opening = engine_for()
    async with opening as engine, engine.session() as session:
        system = said("system", "Be brief.")
        result = await session.append([system])
        assert text_of(engine, session) == written([system], answers=False)
        assert result.finish_reason == "length"
        await say(session, device, "Hello", "yes")

        assert text_of(engine, session).startswith(written([system, HELLO]))


async def test_nothing_said_goes_on_with_the_answer_that_was_cut() -> None:
    device, opening = engine_for()
    device.script.extend(TOKENIZER.encode("the cat and the hat<|im_end|>"))
    async with opening as engine, engine.session() as session:
        short = SamplingParams(temperature=0, max_tokens=3)
        async with session.turn([HELLO], short) as turn:
            first = await turn.wait()
        async with session.turn([], GREEDY) as turn:
            rest = await turn.wait()
        assert first.text + rest.text == "the cat and the hat"
        await say(session, device, "And now?", "yes")
        answer = said("assistant", "the cat and the hat")

        assert text_of(engine, session).startswith(written([HELLO, answer, AGAIN]))


async def test_an_answer_that_was_begun_goes_on() -> None:
    device, opening = engine_for()
    begun = ChatPrompt([HELLO, said("assistant", "One, two")], continue_final=True)
    device.script.extend(TOKENIZER.encode(", three<|im_end|>"))
    async with opening as engine, engine.session() as session:
        async with session.turn(begun, GREEDY) as turn:
            assert (await turn.wait()).text == ", three"
        await say(session, device, "And now?", "yes")
        whole = [HELLO, said("assistant", "One, two, three"), AGAIN]

        assert text_of(engine, session).startswith(written(whole))


@pytest.mark.parametrize("first", ["text", "ids"])
async def test_messages_and_other_text_dont_mix_in_a_session(first: str) -> None:
    """No template could go on from text that it didn't write; the other way round neither."""
    device, opening = engine_for()
    prompt: Any = "Some text" if first == "text" else [70, 71]
    async with opening as engine:
        async with engine.session() as session:
            await session.append(prompt)
            with pytest.raises(ValidationError, match="use one kind in a session"):
                async with session.turn([HELLO], GREEDY):
                    pytest.fail("it was accepted")
        async with engine.session() as session:
            await say(session, device, "Hello", "yes")
            await session.append(prompt)
            with pytest.raises(ValidationError, match="use one kind in a session"):
                async with session.turn([AGAIN], GREEDY):
                    pytest.fail("it was accepted")


async def test_one_shots_of_messages() -> None:
    """All doors that take a prompt take messages."""
    device, opening = engine_for()
    messages = [said("system", "Be brief."), HELLO]
    async with opening as engine:
        device.script.extend(TOKENIZER.encode("yes<|im_end|>") * 4)
        result = await engine.complete(messages, GREEDY)
        async with engine.stream(ChatPrompt(messages), GREEDY) as out:
            streamed = await out.wait()
        grown = [each async for each in engine.generate(messages, GREEDY)]
        mapped = await engine.map([messages], GREEDY)
    results = [result, streamed, grown[-1], *mapped]

    assert [each.text for each in results] == ["yes"] * 4
    expected = tuple(TOKENIZER.encode(written(messages)))
    assert [each.prompt_token_ids for each in results] == [expected] * 4


def test_the_blocking_door_takes_messages() -> None:
    device, both = opened(TOKENIZER, CHATML, ends="<|im_end|>")
    device.script.extend(TOKENIZER.encode("yes<|im_end|>") * 3)
    with BlockingEngine(CONFIG, device=both) as engine:
        assert engine.complete([HELLO], GREEDY).text == "yes"
        with engine.session() as session:
            session.append([said("system", "Be brief.")])
            assert session.complete([HELLO], GREEDY).text == "yes"
            with session.turn([AGAIN], GREEDY) as deltas:
                assert "".join(delta.text for delta in deltas) == "yes"


async def test_a_model_without_a_template_takes_no_messages() -> None:
    _, both = opened(TOKENIZER)
    async with Engine.open(CONFIG, device=both) as engine:
        with pytest.raises(ValidationError, match="the model has no chat template"):
            await engine.complete([HELLO], GREEDY)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"content": "Hello"}], "its role must be a str"),
        ([HELLO, "Hello"], "each must be a mapping"),
        ([said("user", "\ud800")], "a lone surro"),
    ],
)
async def test_what_is_no_message_is_refused(messages: Any, why: str) -> None:
    _, opening = engine_for()
    async with opening as engine:
        with pytest.raises(ValidationError, match=why):
            await engine.complete(messages, GREEDY)


def test_a_prompt_of_messages_is_checked() -> None:
    with pytest.raises(ValidationError, match="give at least one"):
        ChatPrompt([])
    with pytest.raises(ValidationError, match="no text in the last message"):
        ChatPrompt([said("user", None)], continue_final=True)


def test_messages_that_hold_themselves_or_bytes_are_refused() -> None:
    """A copy of them would have no end; and what is shown of bytes is no text."""
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ValidationError, match=r"messages=.* nested more than 64 deep"):
        ChatPrompt([said("user", circle)])
    with pytest.raises(ValidationError, match="variables=.* or holds itself"):
        ChatPrompt([said("user", "hi")], variables={"circle": circle})
    with pytest.raises(ValidationError, match="decode it: texts are str"):
        ChatPrompt([said("user", b"hi")])


@pytest.mark.parametrize("tools", [5, "abc", {"type": "function"}])
def test_tools_are_a_list(tools: Any) -> None:
    with pytest.raises(ValidationError, match=r"^tools="):
        ChatPrompt([said("user", "hi")], tools=tools)


class Events:
    """A structlog logger that keeps what it is given."""

    def __init__(self) -> None:
        self.names: list[tuple[str, Any]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.names.append((event, fields.get("turn")))


async def test_a_history_that_the_template_would_write_otherwise_is_told() -> None:
    """In the result, and as an event, for the turn in which it is noticed."""
    events = Events()
    shape = TEMPLATES["qwen3"]
    device, both = opened(TOKENIZER, format_of(shape, TOKENIZER), ends=shape.end)
    config = EngineConfig(model="fake", page_size=4)
    differ: dict[str, bool] = {}
    async with Engine.open(config, device=both, logger=events) as engine:
        async with engine.session() as session:
            for name in ("one", "two", "three"):
                device.script.extend(TOKENIZER.encode("<think>Hm</think>\nyes<|im_end|>"))
                async with session.turn([HELLO], GREEDY, request_id=name) as turn:
                    differ[name] = (await turn.wait()).history_differs

    assert differ == {"one": False, "two": False, "three": True}
    assert [turn for event, turn in events.names if event == "turn.history_differs"] == ["three"]


async def test_a_text_begins_as_the_tokenizer_wants_it_and_later_turns_dont() -> None:
    """The post-processor's beginning of sequence: at the start of a log, and of a text only."""
    made = tokenizer("byte level with a beginning")
    _, both = opened(made)
    beginning = made.encode("<|begin_of_text|>")
    words = made.encode("the cat")
    async with Engine.open(CONFIG, device=both) as engine:
        shot = await engine.complete("the cat", SamplingParams(max_tokens=2))
        ids = await engine.complete(words, SamplingParams(max_tokens=2))
        async with engine.session() as session:
            first = await session.append("the cat")
            second = await session.append("the cat")
            log = log_of(engine, session.session_id)
        async with engine.session() as session:
            await session.append(words)
            later = await session.append("the cat")

    assert list(shot.prompt_token_ids) == list(first.prompt_token_ids) == [*beginning, *words]
    assert list(ids.prompt_token_ids) == list(second.prompt_token_ids) == words
    assert list(later.prompt_token_ids) == words
    assert log == [*beginning, *words, *words]


async def test_a_queued_text_behind_a_cancelled_one_begins_the_log() -> None:
    """Which turn is first is known when it starts."""
    made = tokenizer("byte level with a beginning")
    _, both = opened(made, delay=0.001)
    async with Engine.open(CONFIG, device=both) as engine, engine.session() as session:
        async with session.turn("the cat", SamplingParams(max_tokens=400)) as first:
            async with session.turn("the", SamplingParams(max_tokens=1), wait=True) as second:
                first.cancel()
                result = await second.wait()

    assert list(result.prompt_token_ids) == [*made.opening_ids, *made.encode("the")]
