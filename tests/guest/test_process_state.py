"""A good guest: an engine leaves the process as it found it, while it is open and afterwards."""

from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

import adapters
from adapters.fake_device import FakeDevice
from kernel import (
    BlockingEngine,
    DeviceLost,
    Engine,
    EngineConfig,
    OpenedDevice,
    SamplingParams,
)
from kernel.step import Device
from tests.guest.process_state import loop_state, process_state, threads_of_ours
from tests.oracle.tiny_model import TinyModel

CONFIG = EngineConfig(max_num_seqs=2, num_pages=32, page_size=4, max_num_batched_tokens=8)
PARAMS = SamplingParams(temperature=0.8, max_tokens=6, ignore_eos=True, seed=1)
_WEIGHTS = Path(adapters.__file__).parent / "models" / "bundled" / "model.safetensors"


def open_fake() -> Device:
    return FakeDevice()


def open_fake_thread() -> Device:
    return FakeDevice(mode="thread", delay=0.001)


def open_tiny() -> Device:
    return TinyModel(3).device("float32")


def open_bundled() -> OpenedDevice:
    if not _WEIGHTS.exists():
        pytest.skip("the bundled model has not been trained yet")
    from adapters.torch_device import open_torch

    return open_torch(model="bundled", device="cpu", dtype="auto")


Opener = Callable[[], Device | OpenedDevice]


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """What has changed, by name; a short failure message."""
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


async def _use(engine: Engine, look: Callable[[], None]) -> None:
    """Most of what an application does, with a look around in the middle of a turn."""
    with anyio.fail_after(15):
        async with engine.session() as session:
            await session.append([1, 2, 3])
            async with session.turn([4, 5], PARAMS) as turn:
                await anext(turn)
                look()
            await session.interrupt(0) if turn.has_result else None
            async with session.turn([6], PARAMS) as turn:
                await turn.wait()
        await engine.map([[1], [2, 3], [4]], PARAMS)
        with pytest.raises(ValueError, match="prompt"):
            await engine.complete([])


@pytest.mark.parametrize(
    ("backend", "open_device"),
    [
        ("asyncio", open_fake),
        ("trio", open_fake),
        ("asyncio", open_fake_thread),
        ("asyncio", open_tiny),
        ("trio", open_tiny),
        ("asyncio", open_bundled),
    ],
)
def test_an_engine_changes_nothing_that_others_see(backend: str, open_device: Opener) -> None:
    """Sampling included: it draws from generators of its own, on its own thread."""
    open_device()  # what an import does is another matter, see test_imports
    states: list[dict[str, object]] = []

    def look() -> None:
        states.append(process_state() | loop_state())

    async def main() -> None:
        look()
        async with Engine.open(CONFIG, device=open_device()) as engine:
            # A worker's thread sets its own number of torch threads at its start, and torch knows
            # no other way than by the default, which is put back at once: before the first step.
            await engine.complete([1], PARAMS)
            look()
            await _use(engine, look)
            look()
        look()

    threads, outside = threads_of_ours(), process_state()
    anyio.run(main, backend=backend)
    after = process_state()

    before, *others = states
    assert len(others) == 4
    assert [differences(before, other) for other in others] == [{}] * 4
    assert differences(outside, after) == {}
    assert threads_of_ours() == threads


@pytest.mark.parametrize("open_device", [open_fake, open_tiny])
def test_the_blocking_door_changes_nothing_either(open_device: Opener) -> None:
    """Its event loop lives on a thread of its own, and dies with it."""
    open_device()
    threads, before = threads_of_ours(), process_state()
    with BlockingEngine(CONFIG, device=open_device()) as engine:
        engine.complete([1, 2], PARAMS)
        during = process_state()
        with engine.session() as session, session.turn([3], PARAMS) as deltas:
            next(deltas)

    assert differences(before, during) == {}
    assert differences(before, process_state()) == {}
    assert threads_of_ours() == threads


async def test_a_failing_engine_changes_nothing() -> None:
    """Errors take other ways through the code than success does."""
    threads, before = threads_of_ours(), process_state() | loop_state()
    device = FakeDevice(mode="thread")
    async with Engine.open(CONFIG, device=device) as engine:
        device.fail_next(device_lost=True)
        with pytest.raises(DeviceLost):
            await engine.complete([1], PARAMS)
        during = process_state() | loop_state()

    assert differences(before, during) == {}
    assert differences(before, process_state() | loop_state()) == {}
    assert threads_of_ours() == threads


async def test_an_engine_with_a_log_leaves_the_loggers_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``log_events`` writes through the application's structlog, as it is configured."""
    before = process_state()
    async with Engine.open(EngineConfig(log_events=True), device=FakeDevice()) as engine:
        await engine.complete([1], PARAMS)

    assert differences(before, process_state()) == {}
    out, err = capsys.readouterr()
    assert "engine.opened" in out
    assert "engine.closed" in out
    assert err == ""
