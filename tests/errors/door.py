"""Opens an engine on the fake device, and checks that a refusal left nothing behind."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, OpenedDevice
from kernel.errors import TenureError
from tests.cancellation.holding import assert_nothing_held

__all__ = ["open_engine", "says"]

CONFIG = EngineConfig(
    model="fake", num_slots=2, num_pages=8, page_size=4, max_num_seqs=2, max_num_batched_tokens=8
)


@asynccontextmanager
async def open_engine(
    config: EngineConfig = CONFIG, *, delay_s: float | None = None
) -> AsyncGenerator[Engine]:
    """An engine that must hold nothing once its clients have been refused."""
    fake = FakeDevice(eos_token_ids=(), delay=delay_s)
    opened = OpenedDevice(device=fake, tokenizer=fake.tokenizer)
    async with Engine.open(config, device=opened) as engine:
        yield engine
        await engine.settle()
        assert_nothing_held(engine, device=fake)


def says(caught: pytest.ExceptionInfo[TenureError], *parts: str) -> None:
    """The message names the thing, the value, and the way out."""
    message = str(caught.value)
    missing = [part for part in parts if part not in message]
    assert not missing, (missing, message)
