"""A device that passes everything on to another: the base of those that count, hold or lose it."""

from collections.abc import Callable

import attrs

from kernel.step import (
    Device,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    ModelSpec,
    StepReport,
    TransferReport,
    TransferStep,
    WorkerContext,
)

__all__ = ["PassingDevice", "PassingWorker"]


@attrs.define(eq=False)
class PassingDevice:
    """A :class:`kernel.step.Device`."""

    inner: Device

    @property
    def model(self) -> ModelSpec:
        return self.inner.model

    def allocate(self, limits: DeviceLimits, /) -> None:
        self.inner.allocate(limits)

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:
        return self.inner.start_worker(context)

    def close(self) -> None:
        self.inner.close()


@attrs.define(eq=False)
class PassingWorker:
    """A :class:`kernel.step.DeviceWorker`."""

    worker: DeviceWorker

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self.worker.submit(step, done)

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        self.worker.transfer(step, done)

    def stop(self) -> None:
        self.worker.stop()

    def join(self, timeout_s: float, /) -> bool:
        return self.worker.join(timeout_s)
