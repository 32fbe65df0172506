"""A fake device with one worker, driven by hand, and rows to put on it."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from adapters.fake_device import FakeDevice, open_fake
from kernel.step import (
    CopyOf,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    InitialState,
    PageCopy,
    PromptScoring,
    RowOutcome,
    RowSampling,
    StepDone,
    StepFault,
    StepReport,
    StepRow,
    WorkerContext,
)
from ownership import NO_SLOT, NoSlot, PageIndex, SlotIndex

GREEDY = RowSampling(temperature=0, top_k=0, top_p=1, key=0, index=0)
LIMITS = DeviceLimits(num_slots=6, num_pages=24, page_size=4, max_rows=6, max_step_tokens=64)
PROMPT = (11, 12, 13, 14, 15, 16)


Timer = tuple[float, Callable[[], None]]


@attrs.define(eq=False)
class Timers:
    """An engine's clock by hand."""

    pending: list[tuple[float, Callable[[], None]]] = attrs.field(
        factory=list[tuple[float, Callable[[], None]]]
    )

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        self.pending.append((delay_s, callback))
        return None

    def fire(self) -> None:
        pending, self.pending = self.pending, []
        for _, callback in pending:
            callback()


@attrs.define(eq=False)
class Bench:
    """A device with one worker and the reports that came."""

    device: FakeDevice = attrs.field(factory=FakeDevice)
    timers: Timers = attrs.field(factory=Timers)
    reports: list[StepReport] = attrs.field(factory=list[StepReport])
    worker: DeviceWorker = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.device.allocate(LIMITS)
        self.worker = self.start_worker()

    def start_worker(self) -> DeviceWorker:
        return self.device.start_worker(WorkerContext(self.timers.call_later))

    def submit(self, *rows: StepRow, **settings: Any) -> None:
        number: int = settings.pop("step", 0)
        self.worker.submit(DeviceStep(number, rows, **settings), self.reports.append)

    def tokens(self, *rows: StepRow, **settings: Any) -> tuple[RowOutcome, ...]:
        self.submit(*rows, **settings)
        report = self.reports[-1]
        assert isinstance(report, StepDone), report
        return report.tokens

    def fault(self, *rows: StepRow) -> StepFault:
        self.submit(*rows)
        report = self.reports[-1]
        assert isinstance(report, StepFault), report
        return report


def row(
    tokens: Sequence[int],
    *,
    slot: int | NoSlot = 0,
    initial: InitialState = "kept",
    at: int = 0,
    pages: Sequence[int] = (0, 1, 2, 3),
    tail: tuple[int, int] | None = None,
    sampling: RowSampling | None = GREEDY,
    scoring: PromptScoring | None = None,
) -> StepRow:
    return StepRow(
        slot=slot if isinstance(slot, NoSlot) else SlotIndex(slot),
        initial=initial,
        position=at,
        tokens=tuple(tokens),
        pages=[PageIndex(page) for page in pages],
        tail_copy=tail and PageCopy(PageIndex(tail[0]), PageIndex(tail[1])),
        sampling=sampling,
        scoring=scoring,
    )


def cold(history: Sequence[int], *, kind: str = "fake", sampling: RowSampling = GREEDY) -> int:
    """Say which token follows a history, by a device of its own and one step."""
    opened = open_fake(model=kind, device="cpu", dtype="auto").device
    assert isinstance(opened, FakeDevice)
    slot = 3 if opened.model.uses_slots else NO_SLOT
    first = row(history, slot=slot, initial="zeros", pages=range(9, 20), sampling=sampling)
    (token,) = Bench(opened).tokens(first)
    assert isinstance(token, int)
    return token


def bench_with_prompt() -> Bench:
    """Slot 0 and pages 0 and 1 hold the prompt."""
    bench = Bench()
    assert bench.tokens(row(PROMPT, initial="zeros")) == (cold(PROMPT),)
    return bench


TURN = row((5,), slot=1, initial=CopyOf(SlotIndex(0)), at=6, pages=(0, 7), tail=(1, 7))
"""A later turn of the session whose state is in slot 0."""
OTHER = row((1,), slot=4, initial="zeros", pages=(9,))
"""Somebody else."""
