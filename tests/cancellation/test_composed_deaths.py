"""A session dies while it starts a turn whose messages were composed: all who wait are told.

The message in its hand is then ``Composed``, which names the turn and carries nobody's answer.
"""

from collections.abc import Sequence
from typing import cast

import anyio
import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel import ChatPrompt, Engine, OpenedDevice, Session, TenureError
from kernel.chat import Composition, Exchange
from kernel.sessions.session import SessionActor
from tests.cancellation.holding import assert_all_free
from tests.cancellation.killing import tick
from tests.cancellation.planting import Plant, plant
from tests.cancellation.stage import CONFIG, GREEDY

CONFIG_WITH_DEATHS = attrs.evolve(CONFIG, max_restarts=100)


class PlainChat:
    """Writes a message as the tokens in it."""

    def compose(
        self, history: Sequence[Exchange], prompt: ChatPrompt, /, *, answers: bool
    ) -> Composition:
        tokens = [
            token for message in prompt.messages for token in cast("list[int]", message["content"])
        ]
        return Composition(tuple(tokens), "")


async def _speak(session: Session, wait: bool, told: list[str]) -> None:
    try:
        async with session.turn([{"role": "user", "content": [5]}], GREEDY, wait=wait) as turn:
            await turn.wait()
        told.append("answered")
    except TenureError as error:
        told.append(type(error).__name__)


async def _cut(session: Session, told: list[str]) -> None:
    try:
        await session.interrupt(0)
        told.append("cut")
    except TenureError as error:
        told.append(type(error).__name__)


async def _three_callers(session: Session) -> list[str]:
    told: list[str] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_speak, session, False, told)
            await tick()
            tasks.start_soon(_cut, session, told)
            tasks.start_soon(_speak, session, True, told)
    return told


@pytest.mark.parametrize("moment", range(36))
async def test_everybody_is_told_wherever_the_session_dies(
    moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first turn left a checkpoint, which the start of the next one gives back."""
    device = FakeDevice(eos_token_ids=())
    opened = OpenedDevice(device=device, tokenizer=device.tokenizer, chat=PlainChat())
    async with Engine.open(CONFIG_WITH_DEATHS, device=opened) as engine:
        session = await engine.session().__aenter__()
        for _ in range(2):
            async with session.turn([{"role": "user", "content": [3, 4]}], GREEDY) as turn:
                await turn.wait()
        what = Plant(SessionActor, moment)
        plant(engine.core, what, monkeypatch)

        told = await _three_callers(session)

        what.is_armed = False
        assert len(told) == 3
        assert what.where or told.count("SessionLost") == 0
        await session.close()
        await engine.settle()
    assert_all_free(engine.core)
