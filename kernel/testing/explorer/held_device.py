"""A device whose every step waits until the explorer lets it end, and that remembers its memory.

It wraps any :class:`~kernel.testing.device.FaultyDevice` and hands a step on when it is to end, so
memory is touched as late as it can be: whoever gives something back too early is seen. Transfers
wait as steps do, behind other transfers only. Beside the real arenas it keeps in plain tokens what
each slot and each cell of a page must hold (:mod:`kernel.testing.explorer.held_memory`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal, cast

import attrs

from kernel.engine.opening import DEVICES
from kernel.errors import ValidationError
from kernel.loading import no_progress
from kernel.step import (
    DeviceFactory,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    ModelSpec,
    StepFault,
    StepReport,
    TransferReport,
    TransferStep,
    WorkerContext,
)
from kernel.testing.device import FaultyDevice
from kernel.testing.explorer.held_memory import Memory, Tokens, Touched, touched
from ownership import Place

__all__ = [
    "Ending",
    "HeldDevice",
    "HeldStep",
    "Memory",
    "Tokens",
    "borrow",
    "give_back",
    "open_inner",
]

Ending = Literal["done", "failed", "lost"]

_spares: dict[str, list[FaultyDevice]] = defaultdict(list[FaultyDevice])
_uses: dict[int, int] = {}
_MOST_USES = 500
"""A device remembers its workers, so it is not used for ever."""

_STOPPED = StepFault("the worker was stopped before the step began")


@cache
def _factory(name: str) -> DeviceFactory:
    for entry in entry_points(group=DEVICES, name=name):
        return cast("DeviceFactory", entry.load())
    raise ValidationError(parameter="device", value=name, why="no such device is installed")


def borrow(model: str) -> FaultyDevice:
    """A device for one stage: a new one, or one that an earlier stage has given back.

    Opening one takes longer than to replay a trace, and ``allocate`` clears its memory.
    """
    spares = _spares[model]
    return spares.pop() if spares else open_inner(model)


def give_back(model: str, device: "HeldDevice") -> None:
    """A stage ends: its device may serve another one, if it was not lost."""
    inner = device.inner
    uses = _uses.pop(id(inner), 0) + 1
    if not device.was_lost and uses < _MOST_USES:
        _uses[id(inner)] = uses
        _spares[model].append(inner)


def open_inner(model: str, name: str = "fake") -> FaultyDevice:
    """A fresh device of that entry point."""
    device = _factory(name)(
        model=model, device=name, dtype="auto", state_dtype="auto", progress=no_progress
    ).device
    if not isinstance(device, FaultyDevice):
        raise ValidationError(parameter="device", value=name, why="it can't be told to fail")
    return device


@attrs.define(eq=False)
class HeldStep:
    """A step or a transfer that the device has and that has not ended."""

    step: DeviceStep | TransferStep
    done: Callable[[Any], None]
    """Takes the report of a step, or of a transfer."""
    worker: "HeldWorker"

    @property
    def is_running(self) -> bool:
        """Whether it is its turn: those that were submitted before it have ended."""
        return any(queue[:1] == [self] for queue in (self.worker.held, self.worker.transfers))

    def touches(self, place: Place) -> Touched:
        """What it may touch in a place until it has ended."""
        return touched(self.step, place, self.worker.device.memory.page_size)

    @property
    def touched_slots(self) -> set[int]:
        """Slots of the device that it may read or write until it has ended."""
        return self.touches(Place.DEVICE).slots

    @property
    def written_pages(self) -> set[int]:
        """Pages of the device that it may write until it has ended."""
        return self.touches(Place.DEVICE).written_pages


@attrs.define(eq=False)
class HeldWorker:
    """Keeps what is submitted; the first of its steps runs, the others wait behind it.

    So do its transfers, beside the steps.
    """

    device: "HeldDevice"
    inner: DeviceWorker
    held: list[HeldStep] = attrs.field(factory=list[HeldStep])
    """Its steps."""
    transfers: list[HeldStep] = attrs.field(factory=list[HeldStep])
    is_stopped: bool = False

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self._hold(self.held, HeldStep(step, done, self))

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        self._hold(self.transfers, HeldStep(step, done, self))

    def _hold(self, queue: list[HeldStep], held: HeldStep) -> None:
        if self.is_stopped:
            held.done(_STOPPED)
            return
        queue.append(held)

    def stop(self) -> None:
        self.is_stopped = True
        for queue in (self.held, self.transfers):
            queued = queue[1:]
            del queue[1:]
            for step in queued:
                step.done(_STOPPED)

    def join(self, timeout_s: float, /) -> bool:
        """False while a step is held: nobody knows how long that will be."""
        del timeout_s
        return not self.held and not self.transfers

    def run(self, held: HeldStep) -> StepReport | TransferReport:
        """Let one of them touch the memory; its report."""
        reports: list[StepReport | TransferReport] = []
        if isinstance(held.step, TransferStep):
            self.inner.transfer(held.step, reports.append)
            self.transfers.remove(held)
        else:
            self.inner.submit(held.step, reports.append)
            self.held.remove(held)
        (report,) = reports
        return report


@attrs.define(eq=False)
class HeldDevice:
    """The device of an explored engine."""

    inner: FaultyDevice
    memory: Memory = attrs.field(factory=Memory)
    workers: list[HeldWorker] = attrs.field(factory=list[HeldWorker])
    was_lost: bool = False

    @property
    def model(self) -> ModelSpec:
        return self.inner.model

    @property
    def poison_reads(self) -> Sequence[object]:
        return self.inner.poison_reads

    def allocate(self, limits: DeviceLimits, /) -> None:
        self.memory.page_size = limits.page_size
        self.inner.allocate(limits)

    def start_worker(self, context: WorkerContext, /) -> HeldWorker:
        worker = HeldWorker(self, self.inner.start_worker(context))
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        self.inner.close()

    @property
    def held(self) -> list[HeldStep]:
        """Every step and transfer that has not ended, in order of submission."""
        steps = [step for worker in self.workers for step in (*worker.held, *worker.transfers)]
        return sorted(steps, key=lambda held: held.step.step)

    def end(self, held: HeldStep, how: Ending) -> StepReport | TransferReport:
        """Let a step touch its memory and end; its completion is posted before this returns."""
        is_lost = how == "lost"
        self.was_lost |= is_lost
        if how != "done":
            inner = self.inner
            is_copy = isinstance(held.step, TransferStep)
            fail = inner.fail_next_transfer if is_copy else inner.fail_next
            fail(f"planted: {how}", device_lost=is_lost)
        report = held.worker.run(held)
        if isinstance(report, StepFault):
            self.memory.lose(held.step)
        else:
            self.memory.follow(held.step, report)
        held.done(report)
        return report
