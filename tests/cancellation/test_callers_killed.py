"""Callers' tasks killed natively, at every await and at random ticks: nobody else notices."""

import random
from functools import partial

import anyio
import pytest

from adapters.fake_device import FakeDevice
from kernel import shell
from tests.cancellation.killing import Victim, start, tick
from tests.cancellation.operations import OPERATIONS, Scene
from tests.cancellation.stage import Stage, open_stage


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_caller_killed_at_any_await_leaves_nothing_behind(
    name: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message a tick: the kill lands between any two messages, so at each of its awaits."""
    monkeypatch.setattr(shell, "_HOPS_PER_TURN", 1)
    async with open_stage(FakeDevice(eos_token_ids=())) as stage, anyio.create_task_group() as tasks:
        ticks, is_done = 0, False
        while not is_done:
            scene = Scene(stage.engine, stage.shared, random.Random(name))
            victim = start(anyio_backend, tasks, partial(OPERATIONS[name], scene))
            for _ in range(ticks):
                await tick()
            is_done = victim.is_done
            victim.kill()
            await victim.wait()
            try:
                await stage.check_rest()
            except AssertionError as error:
                error.add_note(f"{name}, killed after {ticks} ticks")
                raise
            ticks += 1
            if stage.shared.info.num_tokens > 5000:
                await stage.check_tokens()
        await stage.check_tokens()
        print(name, ticks)
