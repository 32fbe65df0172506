"""A device whose every step waits until the explorer lets it end, and that remembers its memory.

It wraps any :class:`~kernel.testing.device.FaultyDevice` and hands a step on when it is to end, so
memory is touched as late as it can be: whoever gives something back too early is seen. Beside the
real arenas it keeps in plain tokens what each slot and each cell of a page must hold. A state that
does not hold exactly its own history is seen at once, not when it draws a wrong token.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Literal, cast

import attrs

from kernel.errors import ValidationError
from kernel.loading import no_progress
from kernel.opening import DEVICES
from kernel.step import (
    CopyOf,
    DeviceFactory,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    ModelSpec,
    StepDone,
    StepFault,
    StepReport,
    StepRow,
    WorkerContext,
)
from kernel.testing.device import FaultyDevice
from ownership import NoSlot

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
Tokens = tuple[int, ...]

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
class Memory:
    """What the slots and pages hold, as tokens; ``None`` where nobody knows."""

    page_size: int = 1
    slots: dict[int, Tokens | None] = attrs.field(factory=dict[int, "Tokens | None"])
    cells: dict[tuple[int, int], Tokens | None] = attrs.field(
        factory=dict[tuple[int, int], "Tokens | None"]
    )
    """By page and place in it: all tokens up to the one that stands there."""
    wrong: list[str] = attrs.field(factory=list[str])
    """Rows that started from something else than what they were said to start from."""

    def run(self, step: DeviceStep) -> None:
        """Follow a step that the device has computed."""
        for row in step.rows:
            self._prepare(row)
        for row in step.rows:
            self._absorb(step.step, row)

    def lose(self, step: DeviceStep) -> None:
        """Follow a step that has failed: what it may have written is unknown."""
        for row in step.rows:
            if not isinstance(row.slot, NoSlot):
                self.slots[row.slot] = None
            for page in _written(row, self.page_size):
                for place in range(self.page_size):
                    self.cells[page, place] = None

    def _prepare(self, row: StepRow) -> None:
        if isinstance(row.initial, CopyOf):
            self.slots[cast("int", row.slot)] = self.slots.get(row.initial.slot)
        elif row.initial == "zeros":
            self.slots[cast("int", row.slot)] = ()
        if row.tail_copy is not None:
            source, target = row.tail_copy.source, row.tail_copy.target
            for place in range(self.page_size):
                self.cells[target, place] = self.cells.get((source, place))

    def _absorb(self, step: int, row: StepRow) -> None:
        if isinstance(row.slot, NoSlot):
            before = self._read_pages(row)
        else:
            before = self.slots.get(row.slot)
        if before is None or len(before) != row.position:
            what = "nothing known" if before is None else f"{len(before)} tokens"
            self.wrong.append(f"step {step}: slot {row.slot} held {what} at {row.position}")
            before = (-1,) * row.position
        tokens = list(before)
        for token in row.tokens:
            tokens.append(token)
            if row.pages:
                position = len(tokens) - 1
                page = row.pages[position // self.page_size]
                self.cells[page, position % self.page_size] = tuple(tokens)
        if not isinstance(row.slot, NoSlot):
            self.slots[row.slot] = tuple(tokens)

    def _read_pages(self, row: StepRow) -> Tokens | None:
        if not row.position:
            return ()
        last = row.position - 1
        return self.cells.get((row.pages[last // self.page_size], last % self.page_size))

    def prefix(self, pages: Sequence[int], length: int) -> Tokens | None:
        """What the first ``length`` positions of a page table hold, if all of it is one history."""
        found: Tokens | None = ()
        for position in range(length):
            page = pages[position // self.page_size]
            cell = self.cells.get((page, position % self.page_size))
            if cell is None or len(cell) != position + 1 or cell[:-1] != found:
                return None
            found = cell
        return found


def _written(row: StepRow, page_size: int) -> Sequence[int]:
    end = row.position + len(row.tokens)
    return row.pages[row.position // page_size : -(-end // page_size)] if row.pages else ()


@attrs.define(eq=False)
class HeldStep:
    """A step that the device has and that has not ended."""

    step: DeviceStep
    done: Callable[[StepReport], None]
    worker: "HeldWorker"

    @property
    def touched_slots(self) -> set[int]:
        """Slots that it may read or write until it has ended."""
        slots = {row.slot for row in self.step.rows if not isinstance(row.slot, NoSlot)}
        copied = {row.initial.slot for row in self.step.rows if isinstance(row.initial, CopyOf)}
        return {int(slot) for slot in slots | copied}

    @property
    def written_pages(self) -> set[int]:
        """Pages that it may write until it has ended."""
        size = self.worker.device.memory.page_size
        return {page for row in self.step.rows for page in _written(row, size)}


@attrs.define(eq=False)
class HeldWorker:
    """Keeps what is submitted; the first of its steps runs, the others wait behind it."""

    device: "HeldDevice"
    inner: DeviceWorker
    held: list[HeldStep] = attrs.field(factory=list[HeldStep])
    is_stopped: bool = False

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        if self.is_stopped:
            done(_STOPPED)
            return
        self.held.append(HeldStep(step, done, self))

    def stop(self) -> None:
        self.is_stopped = True
        queued = self.held[1:]
        del self.held[1:]
        for step in queued:
            step.done(_STOPPED)

    def join(self, timeout_s: float, /) -> bool:
        """False while a step is held: nobody knows how long that will be."""
        del timeout_s
        return not self.held


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
        """Every step that has not ended, in order of submission."""
        steps = [step for worker in self.workers for step in worker.held]
        return sorted(steps, key=lambda held: held.step.step)

    def end(self, held: HeldStep, how: Ending) -> StepReport:
        """Let a step touch its memory and end; its completion is posted before this returns."""
        reports: list[StepReport] = []
        self.was_lost |= how == "lost"
        if how != "done":
            self.inner.fail_next(f"planted: {how}", device_lost=how == "lost")
        held.worker.inner.submit(held.step, reports.append)
        (report,) = reports
        if isinstance(report, StepDone):
            self.memory.run(held.step)
        else:
            self.memory.lose(held.step)
        held.worker.held.remove(held)
        held.done(report)
        return report
