"""``tenure chat``: a session on a terminal, and Ctrl-C as barge-in."""

import os
import signal

import anyio
import pytest
from click.testing import CliRunner

from adapters.cli import main
from adapters.cli.chat import Conversation
from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, OpenedDevice, SamplingParams

FAKE = ["--device", "fake", "--model", "fake", "--max-tokens", "8", "--seed", "1"]


def test_two_turns_run_in_one_session() -> None:
    """The second turn goes on from the state of the first."""
    result = CliRunner().invoke(main, ["chat", *FAKE], input="hello\n\nagain\n/info\n/quit\n")

    assert result.exit_code == 0
    assert "idle, 2 turns" in result.stdout


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
    assert len("tell me everything") < info.num_tokens < 1000
