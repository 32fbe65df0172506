"""A deterministic device without tensors, for tests, the tutorial and measurements of the kernel.

See :mod:`adapters.fake_device.arenas` for what it computes and
:mod:`adapters.fake_device.workers` for when it completes. Example, a device whose steps the test
completes::

    device = FakeDevice(mode="manual")
    ...
    device.complete()           # the oldest step
    device.fail(why="planted")  # the next one
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from adapters.fake_device.arenas import FakeArenas, PoisonRead
from adapters.fake_device.lanes import BoundWorker, Lane, Mode
from adapters.fake_device.tokenizer import FakeTokenizer
from adapters.fake_device.transfers import FakeTransfers
from adapters.fake_device.workers import Job
from kernel.errors import ModelError
from kernel.loading import OnProgress, no_progress
from kernel.state_image import StateImage
from kernel.step import (
    DeviceLimits,
    DeviceStep,
    ModelSpec,
    OpenedDevice,
    StepDone,
    StepFault,
    StepReport,
    TransferDone,
    TransferReport,
    TransferStep,
    WorkerContext,
)

__all__ = ["FakeDevice", "FakeTokenizer", "PoisonRead", "open_fake"]

Delay = float | Callable[[DeviceStep], float] | None
S = TypeVar("S")
D = TypeVar("D")


class FakeDevice:
    """Keeps running hashes in slots and pages and draws tokens from them alone."""

    def __init__(
        self,
        *,
        delay: Delay = None,
        transfer_delay: float | Callable[[TransferStep], float] | None = None,
        mode: Mode = "inline",
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
            transfer_delay: the same of transfers, which run beside the steps.
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
            fingerprint=f"fake-{vocab_size}-{uses_slots:d}-{uses_pages:d}",
            slides=True,
        )
        self._arenas: FakeArenas | None = None
        self._transfers: FakeTransfers | None = None
        self._steps = Lane(self._run, mode, delay)
        self._copies = Lane(self._transfer, mode, transfer_delay)
        self._lost: StepFault | None = None
        # Threads meet here: a transfer's and a step's, a hanging worker's and its successor's.
        self._lock = threading.Lock()
        self.steps = 0
        """Steps computed, failed ones included."""
        self.transfers = 0
        """Transfers made, failed ones included."""

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
        self._transfers = FakeTransfers(self._arenas)

    def start_worker(self, context: WorkerContext, /) -> BoundWorker:
        return BoundWorker(context, self._steps, self._copies)

    def close(self) -> None:
        self._arenas = self._transfers = None

    def fail_next(self, why: str = "planted", *, device_lost: bool = False) -> None:
        """Make the next step to be submitted (that has no plan yet) fail when it completes."""
        self._steps.fail_next(StepFault(why, device_lost=device_lost))

    def fail_next_transfer(self, why: str = "planted", *, device_lost: bool = False) -> None:
        """Make the next transfer (that has no plan yet) fail when it completes."""
        self._copies.fail_next(StepFault(why, device_lost=device_lost))

    def hang_next(self) -> None:
        """Make the next step to be submitted (that has no plan yet) wait for :meth:`unhang`."""
        self._steps.hang_next()

    def hang_next_transfer(self) -> None:
        """Make the next transfer (that has no plan yet) wait for :meth:`unhang`."""
        self._copies.hang_next()

    def unhang(self) -> None:
        """Let all hanging steps and transfers complete, however late."""
        self._steps.unhang()
        self._copies.unhang()

    @property
    def waiting(self) -> tuple[DeviceStep, ...]:
        """Mode ``"manual"``: the steps that wait for the test, oldest first."""
        return self._steps.waiting

    @property
    def waiting_transfers(self) -> tuple[TransferStep, ...]:
        """Mode ``"manual"``: the transfers that wait for the test, oldest first."""
        return self._copies.waiting

    def complete(self, n: int = 0) -> None:
        """Complete the n-th waiting step; raises IndexError when fewer wait."""
        self._steps.complete(n)

    def complete_transfer(self, n: int = 0) -> None:
        """Complete the n-th waiting transfer; raises IndexError when fewer wait."""
        self._copies.complete(n)

    def fail(self, n: int = 0, why: str = "planted", *, device_lost: bool = False) -> None:
        """Make the n-th waiting step fail; raises IndexError when fewer wait."""
        self._steps.complete(n, StepFault(why, device_lost=device_lost))

    def fail_transfer(self, n: int = 0, why: str = "planted", *, device_lost: bool = False) -> None:
        """Make the n-th waiting transfer fail; raises IndexError when fewer wait."""
        self._copies.complete(n, StepFault(why, device_lost=device_lost))

    def _run(self, job: Job[DeviceStep, StepDone]) -> StepReport:
        with self._lock:
            self.steps += 1
            return self._made(job, self._compute, self._spoil)

    def _transfer(self, job: Job[TransferStep, TransferDone]) -> TransferReport:
        with self._lock:
            self.transfers += 1
            return self._made(job, self._copy, self._spoil_copies)

    def _made(
        self, job: Job[S, D], make: Callable[[Job[S, D]], D], spoil: Callable[[S], None]
    ) -> D | StepFault:
        fault = self._lost or job.fault
        try:
            if fault is None:
                return make(job)
            spoil(job.step)
        except Exception as error:
            return StepFault(f"{type(error).__name__}: {error}", error)
        if fault.device_lost:
            self._lost = fault
        return fault

    def _compute(self, job: Job[DeviceStep, StepDone]) -> StepDone:
        return StepDone(self.arenas.run(job.step), compute_s=job.delay_s)

    def _spoil(self, step: DeviceStep) -> None:
        self.arenas.poison_freed(step)
        self.arenas.poison_written(step)

    def _copy(self, job: Job[TransferStep, TransferDone]) -> TransferDone:
        images: tuple[StateImage | None, ...] = self._made_transfers.run(job.step)
        return TransferDone(images, copy_s=job.delay_s)

    def _spoil_copies(self, step: TransferStep) -> None:
        self._made_transfers.poison_freed(step)
        self._made_transfers.poison_written(step)

    @property
    def _made_transfers(self) -> FakeTransfers:
        if self._transfers is None:
            raise RuntimeError("the fake device has no arenas: call allocate first")
        return self._transfers


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
