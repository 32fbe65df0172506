"""Engines that fail while they are opened: the error comes as it is, and nothing is left open."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from adapters.fake_device import FakeDevice
from adapters.fake_device.lanes import BoundWorker
from adapters.torch_device import open_torch
from kernel import Engine, EngineConfig, EngineFault, ModelError, ValidationError
from kernel.ids import GPU_POOL
from kernel.step import DeviceLimits, OpenedDevice, WorkerContext
from tests.cancellation.holding import assert_stopped
from tests.errors.door import says
from tests.errors.models import make_model


async def _open(config: EngineConfig, **options: Any) -> None:
    async with Engine.open(config, **options):
        raise AssertionError("it opened")


async def test_a_whole_directory_opens(tmp_path: Path, anyio_backend: str) -> None:
    """So that what the damaged ones are refused for is the damage."""
    opened = open_torch(model=str(make_model(tmp_path)), device="cpu", dtype="auto")
    async with Engine.open(EngineConfig(max_num_seqs=2, page_size=4), device=opened) as engine:
        out = await engine.complete([1, 2, 3])
        assert out.usage.prompt_tokens == 3
    assert engine.core.audit is not None
    assert engine.core.audit.at_rest


@attrs.define(init=False)
class _Watched(FakeDevice):
    """Notes whether it is closed; it may fail where it is asked to."""

    fails_at: str
    is_closed: bool

    def __init__(self, fails_at: str = "") -> None:
        super().__init__()
        self.fails_at = fails_at
        self.is_closed = False

    def allocate(self, limits: DeviceLimits, /) -> None:
        if self.fails_at == "allocate":
            raise ModelError("no memory for the arenas; lower num_slots or num_pages")
        super().allocate(limits)

    def start_worker(self, context: WorkerContext, /) -> BoundWorker:
        if self.fails_at == "start_worker":
            raise ModelError("no thread can be started")
        return super().start_worker(context)

    def close(self) -> None:
        self.is_closed = True
        super().close()


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "more than the model holds": ({"max_model_len": 200_000}, "at most 100000"),
    "no slot": ({"num_slots": 0}, "needs at least 1"),
    "no page": ({"num_pages": 0}, "needs at least 1"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
async def test_a_configuration_that_contradicts_the_model_closes_the_device(
    name: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was opened for this engine, so nobody else will."""
    device = _Watched()
    opened = OpenedDevice(device=device, tokenizer=device.tokenizer)

    def open_it(*_how: object) -> OpenedDevice:
        return opened

    monkeypatch.setattr("kernel.engine.engine.open_device", open_it)
    changes, part = CONTRADICTIONS[name]
    with pytest.raises(ValidationError) as caught:
        await _open(EngineConfig(model="fake", **changes))
    says(caught, part)
    assert device.is_closed


@pytest.mark.parametrize("where", ["allocate", "start_worker"])
async def test_a_device_that_can_not_start_is_told_as_it_is(where: str, anyio_backend: str) -> None:
    """Not wrapped in a group, and not with a task left behind."""
    with pytest.raises(ModelError, match="no "):
        await _open(EngineConfig(model="fake"), device=_Watched(where))


async def test_a_restart_that_fails_ends_the_engine_cleanly(anyio_backend: str) -> None:
    """The successor of a dead GPU pool gets no worker: everybody is told, nothing is lost."""
    device = _Watched()
    async with Engine.open(EngineConfig(model="fake"), device=device) as engine:
        turn = await engine.stream([1, 2]).__aenter__()
        device.fails_at = "start_worker"
        engine.core.dispatcher.kill(GPU_POOL, RuntimeError("planted"))
        with pytest.raises(EngineFault):
            await turn.wait()
        with pytest.raises(EngineFault, match="no thread can be started"):
            await engine.complete([1])
        assert not engine.health().live
    assert_stopped(engine.core, after_deaths=True)
