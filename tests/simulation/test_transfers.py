"""Transfers in a simulated world: their own time and fates, beside those of the steps."""

import heapq
from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest

from kernel.step import (
    CopyOut,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    StepDone,
    StepFault,
    StepRow,
    TransferDone,
    TransferStep,
    WorkerContext,
)
from kernel.testing.simulation.decisions import Decisions
from kernel.testing.simulation.device import SimulatedDevice, open_inner
from ownership import SlotIndex

LIMITS = DeviceLimits(2, 0, 4, 2, 8, host_slots=2)
TRANSFER = TransferStep(2, (CopyOut(SlotIndex(0), SlotIndex(1), ()),))
STEP = DeviceStep(1, (StepRow(SlotIndex(0), "zeros", 0, (1, 2), (), None, None),))


_SEEN = ("transfer fails", "transfer hangs", "transfer slow", "step fails", "step hangs")


@attrs.define(eq=False)
class Time:
    """A timeline without a loop."""

    at: float = 0.0
    calls: list[tuple[float, int, Callable[[], object]]] = attrs.field(factory=list[Any])

    def now(self) -> float:
        return self.at

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        heapq.heappush(self.calls, (self.at + delay_s, len(self.calls), call))

    def advance(self, seconds: float) -> None:
        """Blocking: nothing else runs."""
        self.at += seconds

    def run(self, until: float) -> None:
        while self.calls and self.calls[0][0] <= until:
            self.at, _, call = heapq.heappop(self.calls)
            call()
        self.at = until


@attrs.define(eq=False)
class Faults:
    device: bool = True


@attrs.define(eq=False)
class Sky:
    """A world with nothing in it but time."""

    timeline: Time = attrs.field(factory=Time)
    faults: Faults = attrs.field(factory=Faults)
    seen: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(_SEEN, 0))


def device_with(
    steps: list[int], transfers: list[int]
) -> tuple[Sky, SimulatedDevice, DeviceWorker]:
    """A device whose decisions are given: first the speed, then fate and delay of each."""
    sky, decisions = Sky(), Decisions(0, {"device": steps, "transfers": transfers})
    tracks = decisions.track("device"), decisions.track("transfers")
    device = SimulatedDevice(open_inner("fake-recurrent").device, cast("Any", sky), *tracks)
    device.allocate(LIMITS)
    return sky, device, device.start_worker(WorkerContext(lambda _delay, _fire: None))


OK, SLOW, FAILS, HANGS = range(4)


def test_a_transfer_takes_time_of_its_own_beside_a_step() -> None:
    """0.02 s at this speed; the step takes none."""
    sky, device, worker = device_with([0], [3, OK, 2])
    reports: list[object] = []
    worker.submit(STEP, reports.append)
    worker.transfer(TRANSFER, reports.append)

    assert reports == [StepDone((None,))]
    assert device.running == 1
    sky.timeline.run(0.019)
    assert len(reports) == 1
    sky.timeline.run(0.021)
    assert reports[1:] == [TransferDone((None,))]
    assert device.running == device.faults == 0


def test_a_transfer_that_fails_is_counted_as_a_fault_and_writes_nothing_known() -> None:
    """What it was to write is poison."""
    sky, device, worker = device_with([0], [0, FAILS])
    reports: list[object] = []
    worker.submit(STEP, reports.append)
    worker.transfer(TRANSFER, reports.append)

    assert isinstance(reports[1], StepFault)
    assert device.faults == sky.seen["transfer fails"] == 1
    assert not device.poison_reads


def test_a_transfer_that_hangs_holds_up_no_step_and_goes_on_when_hurried() -> None:
    """As the faults end, whatever hangs goes on."""
    sky, device, worker = device_with([0], [0, HANGS, 3])
    reports: list[object] = []
    worker.transfer(TRANSFER, reports.append)
    worker.transfer(TransferStep(3, ()), reports.append)
    worker.submit(STEP, reports.append)

    assert reports == [StepDone((None,))]
    assert device.running == 2
    device.hurry()
    assert [type(report) for report in reports[1:]] == [TransferDone, TransferDone]
    assert sky.seen["transfer hangs"] == device.faults == 1


def test_stop_answers_what_is_queued_and_join_lets_time_pass_for_what_runs() -> None:
    """All within the time that is given, steps and transfers together."""
    sky, _, worker = device_with([0], [0, SLOW, 1])
    reports: list[object] = []
    worker.transfer(TRANSFER, reports.append)
    worker.transfer(TRANSFER, reports.append)
    worker.stop()
    worker.transfer(TRANSFER, reports.append)

    assert [type(report) for report in reports] == [StepFault, StepFault]
    assert not worker.join(1.0)
    assert worker.join(1.0)
    assert sky.timeline.at == pytest.approx(1.5)
    assert isinstance(reports[2], TransferDone)


def test_without_faults_transfers_draw_nothing_but_their_time() -> None:
    """So a tape from before there were any replays as it did."""
    sky, device, worker = device_with([0], [0])
    sky.faults.device = False
    reports: list[object] = []
    worker.transfer(TRANSFER, reports.append)

    assert reports == [TransferDone((None,))]
    assert device.faults == 0
