"""``tenure chat``: a session on a terminal, and Ctrl-C as barge-in."""

import os
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import anyio
import attrs
import pytest
from click.testing import CliRunner

import adapters.models
from adapters.cli import main
from adapters.cli.chat import Conversation
from adapters.fake_device import FakeDevice
from adapters.text.opening import open_text
from kernel import Engine, EngineConfig, OpenedDevice, SamplingParams, Session
from kernel.ids import SessionId
from tests.known import known

FAKE = ["--device", "fake", "--model", "fake", "--max-tokens", "8", "--seed", "1"]


def test_two_turns_run_in_one_session() -> None:
    """The second turn goes on from the state of the first."""
    result = CliRunner().invoke(main, ["chat", *FAKE], input="hello\n\nagain\n/info\n/quit\n")

    assert result.exit_code == 0
    assert "idle, 2 turns" in result.stdout


def test_a_conversation_at_its_limit_says_so_and_goes_on() -> None:
    """It can still be looked at, and left in peace."""
    lines = f"hello\n{'x' * 100}\n/info\n/quit\n"
    result = CliRunner().invoke(main, ["chat", "--num-pages", "2", *FAKE], input=lines)

    assert result.exit_code == 0
    assert "PromptTooLong" in result.stderr
    assert "idle, 1 turn," in result.stdout


def test_the_end_of_input_leaves() -> None:
    """A pipe has no /quit."""
    assert CliRunner().invoke(main, ["chat", *FAKE], input="hello\n").exit_code == 0


async def test_ctrl_c_interrupts_the_answer_and_what_was_shown_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session keeps the tokens that the person has read, and takes the next turn."""
    lines = iter(["tell me everything", "/quit"])

    def typed(_prompt: str) -> str:
        return next(lines)

    monkeypatch.setattr("builtins.input", typed)
    device = FakeDevice(delay=0.005)
    opened = OpenedDevice(device=device, tokenizer=device.tokenizer)
    params = SamplingParams(max_tokens=2000, ignore_eos=True)
    config = EngineConfig(log_events=False)
    async with Engine.open(config, device=opened) as engine, engine.session() as session:

        async def press_ctrl_c() -> None:
            for _ in range(1000):
                await anyio.sleep(0.005)
                if session.info.state == "running":
                    break
            await anyio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(press_ctrl_c)
                await Conversation(session, params).run()

        info = session.info

    assert info.turns == 1
    assert len("tell me everything") < known(info.num_tokens) < 1000


@attrs.frozen
class Letters:
    """A letter a token, so that what was printed can be counted."""

    vocab_size: int = 26

    def encode(self, text: str, /) -> list[int]:
        return [ord(char) % 26 for char in text]

    def decode(self, token_ids: Sequence[int], /) -> str:
        return "".join(chr(ord("a") + token) for token in token_ids)


async def runs_after(session: Session, turns: int) -> None:
    """Wait until a turn runs and so many have ended before it."""
    for _ in range(5000):
        if session.info.turns == turns and session.info.state == "running":
            return
        await anyio.sleep(0.001)


async def test_the_session_holds_what_was_shown_and_no_more_whenever_ctrl_c_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token that was read but isn't in the log makes the next answer go on from another text.

    The state is kept as well: an interrupt that cuts behind it costs the whole turn again.
    """
    presses = 25
    lines = iter(["go", *["on"] * (presses - 1), "/quit"])

    def typed(_prompt: str) -> str:
        return next(lines)

    monkeypatch.setattr("builtins.input", typed)
    device = OpenedDevice(device=FakeDevice(vocab_size=26, delay=0.002), tokenizer=Letters())
    params = SamplingParams(max_tokens=2000, ignore_eos=True)
    config = EngineConfig(log_events=False)
    async with Engine.open(config, device=device) as engine, engine.session() as session:

        async def press_ctrl_c() -> None:
            for press in range(presses):
                await runs_after(session, press)
                await anyio.sleep(0.01 + press * 0.0004)
                os.kill(os.getpid(), signal.SIGINT)

        with anyio.fail_after(15):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(press_ctrl_c)
                await Conversation(session, params).run()

        info = session.info
    shown = re.findall("[a-z]", capsys.readouterr().out)

    assert info.turns == presses
    assert info.num_tokens == len(shown) + len("go") + (presses - 1) * len("\non")
    assert info.pending_tokens == 1


TEMPLATE = """{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"""


@pytest.fixture
def chat_model(tmp_path: Path) -> Path:
    """The bundled model with a chat template beside its tokenizer."""
    directory = tmp_path / "model"
    shutil.copytree(Path(adapters.models.__file__).with_name("bundled"), directory)
    (directory / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return directory


def test_a_model_directory_with_a_template_is_talked_to_in_messages(chat_model: Path) -> None:
    """Every line is a message, the system's comes first, and one session holds them all."""
    options = ["--model", str(chat_model), "--max-tokens", "4", "--temperature", "0"]
    lines = "Hello\nAnd now?\n/info\n/quit\n"
    result = CliRunner().invoke(main, ["chat", "--system", "Be brief.", *options], input=lines)

    assert result.exit_code == 0, result.output
    assert "idle, 2 turns" in result.stdout


@pytest.mark.parametrize("takes_messages", [True, False])
async def test_what_stands_before_the_first_line_stands_there_once(
    monkeypatch: pytest.MonkeyPatch, chat_model: Path, takes_messages: bool
) -> None:
    """As a message of its own where there is a template, as text where there is none."""
    lines = iter(["Hello", "And now?", "/quit"])

    def typed(_prompt: str) -> str:
        return next(lines)

    monkeypatch.setattr("builtins.input", typed)
    text = open_text(chat_model)
    device = FakeDevice(vocab_size=text.tokenizer.vocab_size, eos_token_ids=())
    opened = OpenedDevice(device=device, tokenizer=text.tokenizer, chat=text.chat)
    params = SamplingParams(max_tokens=1, temperature=0)
    config = EngineConfig(log_events=False)
    async with Engine.open(config, device=opened) as engine, engine.session() as session:
        assert engine.takes_messages
        talk = Conversation(session, params, system="Be brief.", takes_messages=takes_messages)
        await talk.run()
        log = engine.core.session(SessionId(session.session_id)).state.log.tolist()
    said = text.tokenizer.decode(log)

    begins = "system: Be brief.\nuser: Hello\nassistant:" if takes_messages else "Be brief.\nHello"
    assert said.startswith(begins)
    assert said.count("Be brief.") == 1
    assert ("\nuser: And now?\nassistant:" in said) == takes_messages
