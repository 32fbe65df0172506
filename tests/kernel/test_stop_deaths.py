"""Actors that die while the engine stops."""

from collections.abc import Callable

import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel.devices.gpu_pool import GpuPool
from kernel.messages import StepCompleted
from kernel.step import DeviceStep, DeviceWorker, StepReport, TransferReport, TransferStep
from tests.kernel.loopless import Loopless


@attrs.define
class EndsWhenJoined:
    """A worker whose step is done at the last moment."""

    inner: DeviceWorker
    device: FakeDevice

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self.inner.submit(step, done)

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        self.inner.transfer(step, done)

    def stop(self) -> None:
        self.inner.stop()

    def join(self, timeout_s: float, /) -> bool:
        if self.device.waiting:
            self.device.complete()
        return self.inner.join(timeout_s)


def test_a_pool_that_dies_of_its_last_completion_leaves_no_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The successor has a worker of its own, and a thread with it: it is stopped like any other."""
    world = Loopless.open()
    pool = world.core.recovery.pool
    assert pool is not None
    pool.worker = EndsWhenJoined(pool.worker, world.device)
    world.start(world.session(), [1, 2, 3])
    deaths: list[int] = []

    def crash_once(self: GpuPool, message: StepCompleted) -> None:
        if not deaths:
            deaths.append(message.step)
            raise RuntimeError("planted")

    monkeypatch.setattr(GpuPool, "_complete", crash_once)
    report = world.core.stop(join_timeout_s=0.0)

    assert len(deaths) == 1
    assert world.core.dispatcher.actors() == []
    assert report.at_rest
    assert report.quarantined == 0
