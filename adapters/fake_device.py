"""A deterministic device without tensors, for tests, the tutorial and measurements of the kernel.

See :mod:`adapters.fake_arenas` for what it computes and :mod:`adapters.fake_workers` for when it
completes. Example, a device whose steps the test completes::

    device = FakeDevice(mode="manual")
    ...
    device.complete()           # the oldest step
    device.fail(why="planted")  # the next one
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import attrs

from adapters.fake_arenas import FakeArenas, PoisonRead
from adapters.fake_tokenizer import FakeTokenizer
from adapters.fake_workers import (
    FakeWorker,
    Job,
    ManualWorker,
    QueueWorker,
    ThreadWorker,
    TimerWorker,
)
from kernel.errors import ModelError
from kernel.loading import OnProgress, no_progress
from kernel.step import (
    DeviceLimits,
    DeviceStep,
    ModelSpec,
    OpenedDevice,
    StepDone,
    StepFault,
    StepReport,
    WorkerContext,
)

__all__ = ["FakeDevice", "FakeTokenizer", "PoisonRead", "open_fake"]

Delay = float | Callable[[DeviceStep], float] | None


class FakeDevice:
    """Keeps running hashes in slots and pages and draws tokens from them alone."""

    def __init__(
        self,
        *,
        delay: Delay = None,
        mode: Literal["inline", "manual", "thread"] = "inline",
        uses_slots: bool = True,
        uses_pages: bool = True,
        vocab_size: int = 1000,
        max_model_len: int = 100_000,
        eos_token_ids: Sequence[int] | None = None,
        name: str = "fake",
    ) -> None:
        """Choose the model's kind and when steps complete.

        Args:
            delay: seconds a step takes, or a function of the step; in mode ``"inline"`` ``None``
                completes it inside ``submit``, and a number by a timer of the engine's clock.
            mode: ``"manual"``: by :meth:`complete` and :meth:`fail`; ``"thread"``: in a thread.
            eos_token_ids: ``None``: the last id of the vocabulary; ``()``: no such token.
        """
        self._model = ModelSpec(
            name=name,
            vocab_size=vocab_size,
            max_model_len=max_model_len,
            eos_token_ids=(vocab_size - 1,) if eos_token_ids is None else tuple(eos_token_ids),
            uses_slots=uses_slots,
            uses_pages=uses_pages,
            slot_bytes=8 if uses_slots else 0,
            page_token_bytes=8 if uses_pages else 0,
        )
        self._delay: Delay = delay
        self._mode = mode
        self._arenas: FakeArenas | None = None
        self._workers: list[FakeWorker] = []
        self._planned: deque[StepFault | threading.Event] = deque()
        self._hanging: list[Job] = []
        self._lost: StepFault | None = None
        # Two threads meet here only when a hanging worker's successor runs beside it.
        self._lock = threading.Lock()
        self.steps = 0
        """Steps computed, failed ones included."""

    @property
    def model(self) -> ModelSpec:
        return self._model

    @property
    def tokenizer(self) -> FakeTokenizer:
        """A tokenizer for this vocabulary, in which end-of-sequence tokens have no text."""
        return FakeTokenizer(self._model.vocab_size, self._model.eos_token_ids)

    @property
    def arenas(self) -> FakeArenas:
        """The memory; raises RuntimeError before ``allocate`` and after ``close``."""
        if self._arenas is None:
            raise RuntimeError("the fake device has no arenas: call allocate first")
        return self._arenas

    @property
    def poison_reads(self) -> Sequence[PoisonRead]:
        """Every read of memory that held nothing; empty when the kernel is right."""
        return () if self._arenas is None else self._arenas.poison_reads

    def allocate(self, limits: DeviceLimits, /) -> None:
        self._arenas = FakeArenas(self._model, limits)

    def start_worker(self, context: WorkerContext, /) -> "BoundWorker":
        worker = self._new_worker(context)
        self._workers.append(worker)
        return BoundWorker(self, worker)

    def close(self) -> None:
        self._arenas = None

    def fail_next(self, why: str = "planted", *, device_lost: bool = False) -> None:
        """Make the next step to be submitted (that has no plan yet) fail when it completes."""
        self._planned.append(StepFault(why, device_lost=device_lost))

    def hang_next(self) -> None:
        """Make the next step to be submitted (that has no plan yet) wait for :meth:`unhang`."""
        self._planned.append(threading.Event())

    def unhang(self) -> None:
        """Let all hanging steps complete, however late."""
        hanging, self._hanging = self._hanging, []
        for job in hanging:
            if job.hangs is not None:
                job.hangs.set()
        for worker in self._workers:
            worker.wake()

    @property
    def waiting(self) -> tuple[DeviceStep, ...]:
        """Mode ``"manual"``: the steps that wait for the test, oldest first."""
        return tuple(job.step for _, job in self._waiting())

    def complete(self, n: int = 0) -> None:
        """Complete the n-th waiting step; raises IndexError when fewer wait."""
        worker, job = self._waiting()[n]
        worker.finish(job)

    def fail(self, n: int = 0, why: str = "planted", *, device_lost: bool = False) -> None:
        """Make the n-th waiting step fail; raises IndexError when fewer wait."""
        worker, job = self._waiting()[n]
        job.fault = StepFault(why, device_lost=device_lost)
        worker.finish(job)

    def job(self, step: DeviceStep, done: Callable[[StepReport], None]) -> Job:
        """Make a job of a submitted step, with the next planned fault or hang."""
        delay = self._delay
        job = Job(step, done, (delay(step) if callable(delay) else delay) or 0.0)
        if self._planned:
            plan = self._planned.popleft()
            if isinstance(plan, StepFault):
                job.fault = plan
            else:
                job.hangs = plan
                self._hanging.append(job)
        return job

    def _waiting(self) -> list[tuple[ManualWorker, Job]]:
        return [
            (worker, job)
            for worker in self._workers
            if isinstance(worker, ManualWorker)
            for job in worker.jobs
            if not job.is_hanging
        ]

    def _new_worker(self, context: WorkerContext) -> FakeWorker:
        if self._mode == "thread":
            return ThreadWorker(self._run)
        if self._mode == "manual":
            return ManualWorker(self._run)
        if self._delay is None:
            return QueueWorker(self._run)
        return TimerWorker(self._run, context=context)

    def _run(self, step: DeviceStep, fault: StepFault | None) -> StepReport:
        with self._lock:
            self.steps += 1
            fault = self._lost or fault
            try:
                if fault is None:
                    return StepDone(self.arenas.run(step))
                self.arenas.poison_freed(step)
                self.arenas.poison_written(step)
            except Exception as error:
                return StepFault(f"{type(error).__name__}: {error}", error)
            if fault.device_lost:
                self._lost = fault
            return fault


@attrs.define(eq=False)
class BoundWorker:
    """The fake device's :class:`kernel.step.DeviceWorker`."""

    _device: FakeDevice
    _worker: FakeWorker

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self._worker.enqueue(self._device.job(step, done))

    def stop(self) -> None:
        self._worker.stop()

    def join(self, timeout_s: float, /) -> bool:
        return self._worker.join(timeout_s)


_KINDS = {
    "fake": (True, True),
    "fake-hybrid": (True, True),
    "fake-recurrent": (True, False),
    "fake-attention": (False, True),
}


def open_fake(
    *,
    model: str,
    device: str,
    dtype: str,
    state_dtype: str = "auto",
    progress: OnProgress = no_progress,
) -> OpenedDevice:
    """Open a fake device by name: ``fake``, ``fake-recurrent`` or ``fake-attention``.

    All else is taken as it comes: there is nothing to place, to round or to load.

    Raises:
        ModelError: another name.
    """
    del device, dtype, state_dtype, progress
    if model not in _KINDS:
        raise ModelError(f"no fake model {model!r}; known are {', '.join(_KINDS)}")
    uses_slots, uses_pages = _KINDS[model]
    opened = FakeDevice(uses_slots=uses_slots, uses_pages=uses_pages, name=model)
    return OpenedDevice(device=opened, tokenizer=opened.tokenizer)
