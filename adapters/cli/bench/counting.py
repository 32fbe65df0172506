"""A device that counts what it is made to compute and copy, whatever the kernel says of it."""

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

__all__ = ["CountingDevice"]


@attrs.define(eq=False)
class CountingDevice:
    """Passes everything on to a device."""

    _device: Device
    tokens: int = 0
    """Tokens of all rows of all steps since the count began."""
    tokens_to_draw: int | None = None
    """Tokens up to and including the first step that draws; None before it."""
    steps: int = 0
    transfers: int = 0

    def begin(self) -> None:
        """Begin the count again."""
        self.tokens, self.tokens_to_draw, self.steps, self.transfers = 0, None, 0, 0

    def count(self, step: DeviceStep) -> None:
        """Count a step that is submitted."""
        self.steps += 1
        self.tokens += sum(len(row.tokens) for row in step.rows)
        draws = any(row.sampling is not None for row in step.rows)
        if draws and self.tokens_to_draw is None:
            self.tokens_to_draw = self.tokens

    @property
    def model(self) -> ModelSpec:
        return self._device.model

    def allocate(self, limits: DeviceLimits, /) -> None:
        self._device.allocate(limits)

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:
        return _CountingWorker(self, self._device.start_worker(context))

    def close(self) -> None:
        self._device.close()


@attrs.define(eq=False)
class _CountingWorker:
    _counter: CountingDevice
    _worker: DeviceWorker

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self._counter.count(step)
        self._worker.submit(step, done)

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        self._counter.transfers += 1
        self._worker.transfer(step, done)

    def stop(self) -> None:
        self._worker.stop()

    def join(self, timeout_s: float, /) -> bool:
        return self._worker.join(timeout_s)
