"""Two threads, one for steps and one for transfers, that report each of them exactly once.

``submit`` and ``transfer`` only put something into a queue; ``done`` is called by the thread (or
by the caller's own once the worker is stopping). Whatever is raised becomes a :class:`StepFault`.
"""

import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from adapters.polite_thread import PoliteThread, tell_fault
from kernel.state_image import StateImage
from kernel.step import (
    DeviceStep,
    RowOutcome,
    StepDone,
    StepFault,
    StepReport,
    TransferDone,
    TransferReport,
    TransferStep,
)

__all__ = ["RunStep", "RunTransfer", "ThreadWorker"]

RunStep = Callable[[DeviceStep], tuple[RowOutcome, ...]]
RunTransfer = Callable[[TransferStep], tuple[StateImage | None, ...]]

S = TypeVar("S", DeviceStep, TransferStep)
D = TypeVar("D")
Done = Callable[[D | StepFault], None]
Run = Callable[[S], D]

_STOPPED: Final = StepFault("the device's worker was stopping before it began")


class _Lane(Generic[S, D]):
    """One thread, and what it is to run, in order.

    Args:
        prepare: called first, in the thread; returns the function that runs a step. If it raises,
            every step is reported as failed for that reason.
        is_lost: whether an error means that no later step on the device can succeed.
        name: of the thread.
    """

    def __init__(
        self,
        prepare: Callable[[], Run[S, D]],
        is_lost: Callable[[BaseException], bool],
        name: str,
    ) -> None:
        self._prepare: Callable[[], Run[S, D]] = prepare
        self._is_lost = is_lost
        self._queue: queue.SimpleQueue[tuple[S, Done[D]] | None] = queue.SimpleQueue()
        self._stopping = False
        self._lock = threading.Lock()  # nothing is queued behind the end mark
        self._thread = PoliteThread(self._work, name=name, stop=self.stop)

    def enqueue(self, step: S, done: Done[D]) -> None:
        """Queue a step; ``done`` is called once, from the thread."""
        with self._lock:
            if not self._stopping:
                self._queue.put((step, done))
                return
        done(_STOPPED)

    def stop(self) -> None:
        """End after the step that runs; queued steps are reported as failed. Idempotent."""
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._queue.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended; False when it still runs at the deadline."""
        return self._thread.join(timeout_s)

    def _work(self) -> None:
        run: Run[S, D] | None = None
        unprepared: BaseException | None = None
        try:
            run = self._prepare()
        except BaseException as error:
            unprepared = error
        while (item := self._queue.get()) is not None:
            step, done = item
            if self._stopping:
                self._report(done, _STOPPED)
            elif run is None:
                self._report(done, self._fault(unprepared or RuntimeError("not prepared")))
            else:
                self._report(done, self._run(run, step))
            del item, step, done  # else the last step lives on while the thread waits

    def _run(self, run: Run[S, D], step: S) -> D | StepFault:
        try:
            return run(step)
        except BaseException as error:
            return self._fault(error)

    def _fault(self, error: BaseException) -> StepFault:
        # The frames of the failed step hold its tensors.
        traceback.clear_frames(error.__traceback__)
        why = f"{type(error).__name__}: {error}"
        return StepFault(why=why, error=error, device_lost=self._is_lost(error))

    def _report(self, done: Done[D], report: D | StepFault) -> None:
        try:
            done(report)
        except BaseException:
            tell_fault()  # the caller's; the steps that follow get their reports


class ThreadWorker:
    """A :class:`kernel.step.DeviceWorker` over functions that run one step or one transfer.

    Args:
        prepare: called first, in the worker's thread; returns the function that runs a step. If
            it raises, every step is reported as failed for that reason.
        prepare_transfers: the same of transfers, in a thread that the first of them starts.
        is_lost: whether an error means that no later step on the device can succeed.
    """

    def __init__(
        self,
        prepare: Callable[[], RunStep],
        *,
        prepare_transfers: Callable[[], RunTransfer] | None = None,
        is_lost: Callable[[BaseException], bool] = lambda _error: False,
        name: str = "tenure-torch",
    ) -> None:
        self._is_lost = is_lost
        self._name = name
        self._prepare_transfers = prepare_transfers or _no_transfers
        self._lock = threading.Lock()  # one transfer thread, and none that stop does not know of
        self._is_stopping = False
        self._transfers: _Lane[TransferStep, TransferDone] | None = None
        self._steps = _Lane(lambda: _timed_step(prepare()), is_lost, name)

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        """Queue a step; ``done`` is called once, from the worker's thread."""
        self._steps.enqueue(step, done)

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        """Queue a transfer; ``done`` is called once, from the thread of the transfers."""
        with self._lock:
            lane = self._transfers
            if lane is None:
                lane = self._transfers = _Lane(
                    lambda: _timed_transfer(self._prepare_transfers()),
                    self._is_lost,
                    f"{self._name}-transfers",
                )
                if self._is_stopping:
                    lane.stop()
        lane.enqueue(step, done)

    def stop(self) -> None:
        """End after what runs; queued steps and transfers are reported as failed. Idempotent."""
        self._steps.stop()
        with self._lock:
            self._is_stopping = True
            if self._transfers is not None:
                self._transfers.stop()

    def join(self, timeout_s: float, /) -> bool:
        """Wait until both threads have ended; False when one still runs at the deadline."""
        deadline = time.monotonic() + timeout_s
        has_ended = self._steps.join(timeout_s)
        if self._transfers is None:
            return has_ended
        return self._transfers.join(max(0.0, deadline - time.monotonic())) and has_ended


def _timed_step(run: RunStep) -> Run[DeviceStep, StepDone]:
    def timed(step: DeviceStep) -> StepDone:
        begun = time.perf_counter()
        tokens = run(step)
        return StepDone(tokens=tokens, compute_s=time.perf_counter() - begun)

    return timed


def _timed_transfer(run: RunTransfer) -> Run[TransferStep, TransferDone]:
    def timed(step: TransferStep) -> TransferDone:
        begun = time.perf_counter()
        images = run(step)
        return TransferDone(images=images, copy_s=time.perf_counter() - begun)

    return timed


def _no_transfers() -> RunTransfer:
    # For a worker of steps alone: its transfers are reported as failed, for this reason.
    raise NotImplementedError("this worker was made without transfers")
