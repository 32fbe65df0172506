"""A device that counts what it is made to compute and copy, whatever the kernel says of it."""

from collections.abc import Callable

import attrs

from adapters.passing_device import PassingDevice, PassingWorker
from kernel.step import (
    DeviceStep,
    DeviceWorker,
    StepReport,
    TransferReport,
    TransferStep,
    WorkerContext,
)

__all__ = ["CountingDevice"]


@attrs.define(eq=False)
class CountingDevice(PassingDevice):
    """Passes everything on to a device."""

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

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:
        return _CountingWorker(super().start_worker(context), self)


@attrs.define(eq=False)
class _CountingWorker(PassingWorker):
    _counter: CountingDevice

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self._counter.count(step)
        super().submit(step, done)

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        self._counter.transfers += 1
        super().transfer(step, done)
