"""One thread that runs steps in order and reports each of them exactly once.

``submit`` only puts the step into a queue; ``done`` is called by the thread (or by ``submit``
itself once the worker is stopping). Whatever the step raises becomes a :class:`StepFault`.
"""

import atexit
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable

from kernel.step import DeviceStep, RowOutcome, StepDone, StepFault, StepReport

__all__ = ["ThreadWorker"]

RunStep = Callable[[DeviceStep], tuple[RowOutcome, ...]]
Done = Callable[[StepReport], None]


class ThreadWorker:
    """A :class:`kernel.step.DeviceWorker` over a function that runs one step.

    Args:
        prepare: called first, in the worker's thread; returns the function that runs a step. If
            it raises, every step is reported as failed for that reason.
        is_lost: whether an error means that no later step on the device can succeed.
    """

    def __init__(
        self,
        prepare: Callable[[], RunStep],
        *,
        is_lost: Callable[[BaseException], bool] = lambda _error: False,
        name: str = "tenure-torch",
    ) -> None:
        self._prepare = prepare
        self._is_lost = is_lost
        self._queue: queue.SimpleQueue[tuple[DeviceStep, Done] | None] = queue.SimpleQueue()
        self._stopping = False
        self._lock = threading.Lock()  # nothing is queued behind the end mark
        # A daemon, so that a step that hangs can't keep the process from ending; the exit hook
        # gives one that doesn't hang the time to finish.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        atexit.register(self._leave)
        self._thread.start()

    def submit(self, step: DeviceStep, done: Done, /) -> None:
        """Queue a step; ``done`` is called once, from the worker's thread."""
        with self._lock:
            if not self._stopping:
                self._queue.put((step, done))
                return
        done(_stopped(step))

    def stop(self) -> None:
        """End after the step that runs; queued steps are reported as failed. Idempotent."""
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._queue.put(None)

    def join(self, timeout_s: float, /) -> bool:
        """Wait until the thread has ended; False when it still runs at the deadline."""
        self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        if ended:
            atexit.unregister(self._leave)
        return ended

    def _leave(self) -> None:
        self.stop()
        self._thread.join(5.0)

    def _work(self) -> None:
        run: RunStep | None = None
        unprepared: BaseException | None = None
        try:
            run = self._prepare()
        except BaseException as error:
            unprepared = error
        while (item := self._queue.get()) is not None:
            step, done = item
            if self._stopping:
                self._report(done, _stopped(step))
            elif run is None:
                self._report(done, self._fault(step, unprepared or RuntimeError("not prepared")))
            else:
                self._report(done, self._run(run, step))
            del item, step, done  # else the last step lives on while the thread waits

    def _run(self, run: RunStep, step: DeviceStep) -> StepReport:
        begun = time.perf_counter()
        try:
            tokens = run(step)
        except BaseException as error:
            return self._fault(step, error)
        return StepDone(tokens=tokens, compute_s=time.perf_counter() - begun)

    def _fault(self, step: DeviceStep, error: BaseException) -> StepFault:
        # The frames of the failed step hold its tensors.
        traceback.clear_frames(error.__traceback__)
        why = f"step {step.step} failed on the device: {type(error).__name__}: {error}"
        return StepFault(why=why, error=error, device_lost=self._is_lost(error))

    def _report(self, done: Done, report: StepReport) -> None:
        try:
            done(report)
        except BaseException:
            # The caller's fault; it must not cost the steps that follow their reports.
            kind, error, trace = sys.exc_info()
            if kind is not None:
                threading.excepthook(threading.ExceptHookArgs((kind, error, trace, self._thread)))


def _stopped(step: DeviceStep) -> StepFault:
    return StepFault(why=f"step {step.step} was not run: the device's worker is stopping")
