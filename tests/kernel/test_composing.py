"""Messages that are composed between two handlers: whatever comes meanwhile, nothing is lost."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel import ChatPrompt, Engine, EngineConfig, OpenedDevice, SamplingParams, Session
from kernel.actors.actor import Address
from kernel.chat import Composition, Exchange, Message
from kernel.engine.desk import CALLER
from kernel.errors import EngineFault, ModelError, QueueTimeout, RequestAborted
from kernel.ids import SessionId, TurnId, session_custodian
from kernel.messages import CancelTurn, SessionMessage, StartTurn
from tests.kernel.turns import make_request

GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
CONFIG = EngineConfig(model="fake", page_size=4, num_slots=4, num_pages=64, max_model_len=128)


def said(number: int, role: str = "user") -> Message:
    return {"role": role, "content": number}


@attrs.define(eq=False)
class Numbers:
    """Writes each message as its number, once for each exchange before it."""

    meanwhile: Callable[[int], object] = lambda number: None
    """Called with the first message's number, while it is composed."""
    seen: list[list[int]] = attrs.field(factory=list[list[int]])

    def compose(
        self, history: Sequence[Exchange], prompt: ChatPrompt, /, *, answers: bool
    ) -> Composition:
        self.seen.append([number for told in history for number in _numbers(told.prompt)])
        numbers = _numbers(prompt)
        self.meanwhile(numbers[0])
        return Composition((len(history) + 1, *numbers), str(numbers))


def _numbers(prompt: ChatPrompt) -> list[int]:
    found = [message["content"] for message in prompt.messages]
    return [number for number in found if isinstance(number, int)]


def opening(chat: Numbers) -> Any:
    device = FakeDevice()
    both = OpenedDevice(device=device, tokenizer=device.tokenizer, chat=chat)
    return Engine.open(CONFIG, device=both)


def log_of(engine: Engine, session: Session) -> list[int]:
    return engine.core.session(SessionId(session.session_id)).state.log.tolist()


def post(engine: Engine, session: Session, message: CancelTurn | StartTurn) -> None:
    here = Address[SessionMessage](session_custodian(SessionId(session.session_id)))
    engine.core.dispatcher.post(here, message, CALLER)


async def test_an_error_is_told_though_another_turn_leaves_the_queue_before_it_is() -> None:
    """Else its turn starts without its messages, and goes on as if nothing had been said."""
    chat = Numbers()
    async with opening(chat) as engine, engine.session() as session:
        async with session.turn([said(1)], GREEDY) as turn:
            await turn.wait()
        log = log_of(engine, session)

        other = make_request("other", [7], wait=True)

        def fail(number: int) -> None:
            # Ahead of the news that it failed: another one waits, and is cancelled.
            post(engine, session, StartTurn(other))
            post(engine, session, CancelTurn(TurnId("other"), "abort"))
            raise ModelError(f"no template for {number}")

        chat.meanwhile = fail
        with pytest.raises(ModelError, match="no template for 2"):
            async with session.turn([said(2)], GREEDY):
                pass
        await engine.settle()

        assert other.output.end is not None
        assert isinstance(other.output.end.error, RequestAborted)
        assert log_of(engine, session) == log
        assert engine.core.door.queued_reqs == 0


class Panic(BaseException):
    """As a library in another language may raise."""


async def test_a_template_that_panics_fails_its_own_turn() -> None:
    """What Rust calls a panic is no ``Exception``; the others' turns have nothing to do with it."""
    chat = Numbers()

    def panic(number: int) -> None:
        if number == 2:
            raise Panic("out of range")

    chat.meanwhile = panic
    async with opening(chat) as engine, engine.session() as session:
        with pytest.raises(EngineFault, match="out of range"):
            async with session.turn([said(2)], GREEDY):
                pass
        async with session.turn([said(3)], GREEDY) as turn:
            await turn.wait()

        assert log_of(engine, session)[:2] == [1, 3]


async def test_a_deadline_that_passes_while_messages_are_composed_is_told() -> None:
    chat = Numbers()
    async with opening(chat) as engine, engine.session() as session:
        chat.meanwhile = lambda number: post(
            engine, session, CancelTurn(TurnId("it"), "queue_timeout")
        )
        with pytest.raises(QueueTimeout):
            async with session.turn([said(1)], GREEDY, request_id="it", queue_timeout_s=5):
                pass
        await engine.settle()

        assert log_of(engine, session) == []
        assert engine.core.door.queued_reqs == 0


async def test_a_message_that_its_caller_changes_later_stands_as_it_was_said() -> None:
    """One dict, filled anew for each turn: the history must not change with it."""
    chat = Numbers()
    message: dict[str, object] = {"role": "user", "content": 1}
    async with opening(chat) as engine, engine.session() as session:
        async with session.turn([message], GREEDY) as turn:
            await turn.wait()
        message["content"] = 2
        async with session.turn([message], GREEDY) as turn:
            await turn.wait()

        assert chat.seen == [[], [1]]
