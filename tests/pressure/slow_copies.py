"""A device whose transfers take as long as the test says, beside steps that go on."""

from collections import deque
from collections.abc import Callable

import attrs

from adapters.passing_device import PassingDevice, PassingWorker
from kernel.step import (
    DeviceStep,
    DeviceWorker,
    StepFault,
    StepReport,
    TransferReport,
    TransferStep,
    WorkerContext,
)

__all__ = ["SlowCopies"]

Done = Callable[[TransferReport], None]


@attrs.define(eq=False)
class SlowCopies(PassingDevice):
    """Wraps a device; transfers wait until they are let go, the oldest first."""

    steps_beside: int = 0
    """A transfer lands when so many steps have been submitted since it was."""
    num_copies: int = 0
    _waiting: deque[tuple[int, DeviceWorker, TransferStep, Done]] = attrs.field(
        factory=deque[tuple[int, DeviceWorker, TransferStep, Done]]
    )

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:
        return _Worker(super().start_worker(context), self)

    def take(self, worker: DeviceWorker, step: TransferStep, done: Done) -> None:
        self.num_copies += 1
        self._waiting.append((self.steps_beside, worker, step, done))

    def let_go(self, *, is_idle: bool) -> None:
        """Land what has waited long enough, or one whatever it is where nothing else moves."""
        while self._waiting and (is_idle or self._waiting[0][0] <= 0):
            _, worker, step, done = self._waiting.popleft()
            worker.transfer(step, done)
            is_idle = False

    @property
    def waiting(self) -> int:
        """Transfers that have not been let go."""
        return len(self._waiting)

    def fail(self) -> None:
        """Report the oldest transfer as failed; it was never made."""
        _, _, _, done = self._waiting.popleft()
        done(StepFault("planted"))

    def open(self) -> None:
        """Let go of all that waits."""
        while self._waiting:
            self.let_go(is_idle=True)

    def count(self) -> None:
        """A step was submitted."""
        self._waiting = deque(
            (left - 1, worker, step, done) for left, worker, step, done in self._waiting
        )


@attrs.define(eq=False)
class _Worker(PassingWorker):
    _device: SlowCopies

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self._device.count()
        super().submit(step, done)

    def transfer(self, step: TransferStep, done: Done, /) -> None:
        self._device.take(self.worker, step, done)

    def stop(self) -> None:
        self._device.open()
        super().stop()
