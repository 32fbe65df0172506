"""A device on virtual time: its steps take as long, fail, hang and get lost as the tape says.

It stands before a device that computes at once (:mod:`kernel.testing.device`), and hands it each
step at the moment at which the step is due. So memory that was given back too early is seen.
Transfers have their own time and their own fates, beside those of the steps.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol

import attrs

from kernel.engine.opening import DEVICES
from kernel.loading import no_progress
from kernel.step import (
    Device,
    DeviceFactory,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    ModelSpec,
    OpenedDevice,
    RowFault,
    StepDone,
    StepReport,
    TransferDone,
    TransferReport,
    TransferStep,
    WorkerContext,
)
from kernel.testing.device import FaultyDevice, open_faulty_device
from kernel.testing.simulation.decisions import Track
from kernel.testing.simulation.lanes import Job, Lane
from kernel.testing.simulation.tiers import loads_of
from kernel.testing.simulation.timeline import Timeline

__all__ = ["SimulatedDevice", "open_inner"]

Done = Callable[[StepReport], None]
Copied = Callable[[TransferReport], None]
_StepJob = Job[DeviceStep, StepDone]
_TransferJob = Job[TransferStep, TransferDone]

_SPEEDS_S = (0.0, 0.001, 0.004, 0.02)
_HANGS_S = (0.3, 1.5, 4.0, 1e6)
"""How long a hanging step hangs; the last one until the faults end."""
_FATES = ("ok", "slow", "fails", "hangs", "is lost", "spoils a row")
_WEIGHTS = (86, 4, 4, 3, 1, 2)
_TRANSFER_FATES = ("ok", "slow", "fails", "hangs")
_TRANSFER_WEIGHTS = (84, 6, 7, 3)


class _Faults(Protocol):
    @property
    def device(self) -> bool: ...


class _World(Protocol):
    """What the device needs of the world that it is in."""

    timeline: Timeline

    @property
    def faults(self) -> _Faults: ...

    @property
    def seen(self) -> dict[str, int]: ...


@cache
def _factory() -> DeviceFactory:
    open_faulty_device()  # Raises where there is none.
    factory: DeviceFactory = next(iter(entry_points(group=DEVICES, name="fake"))).load()
    return factory


def open_inner(model: str) -> OpenedDevice:
    """Open the device that computes, without looking for it each time."""
    opened = _factory()(
        model=model, device="fake", dtype="auto", state_dtype="auto", progress=no_progress
    )
    assert isinstance(opened.device, FaultyDevice)
    return opened


class SimulatedDevice:
    """The device of one engine in a simulated world."""

    def __init__(self, inner: Device, world: _World, track: Track, transfers: Track) -> None:
        if not isinstance(inner, FaultyDevice):
            raise TypeError(f"{inner!r} can't be told to fail")
        self.inner = inner
        self.world = world
        self.faults = 0
        """Steps and transfers that were made to fail or to hang, so far."""
        self._track = track
        self._transfers = transfers
        self._copy_speed_s = transfers.pick(_SPEEDS_S)
        self._speed_s = track.pick(_SPEEDS_S)
        self._delivers_late = track.chance(20)
        self._workers: list[_Worker] = []
        self._is_closed = False

    @property
    def model(self) -> ModelSpec:
        return self.inner.model

    @property
    def poison_reads(self) -> Sequence[object]:
        return self.inner.poison_reads

    def allocate(self, limits: DeviceLimits, /) -> None:
        self.inner.allocate(limits)

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:
        worker = _Worker(self, self.inner.start_worker(context))
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        """Drop what still hangs; the memory is gone."""
        self._is_closed = True
        self.inner.close()

    def hurry(self) -> None:
        """Let everything that runs, is slow or hangs be done now."""
        for worker in self._workers:
            worker.hurry()

    @property
    def running(self) -> int:
        """Steps and transfers that are not done."""
        return sum(worker.running for worker in self._workers)

    def deliver(self, call: Callable[[], object]) -> None:
        """Deliver a completion to the kernel: at once, or a little later."""
        if self._delivers_late and self._track.draw(2):
            self.world.timeline.later(0.0, call)
        else:
            call()

    def plan(self, step: DeviceStep, done: Done) -> _StepJob:
        """What becomes of a step."""
        has_faults = self.world.faults.device
        for what in loads_of(step):
            self.world.seen[what] += 1
        fate = _FATES[self._track.weighted(_WEIGHTS) if has_faults else 0]
        delay_s = self._delay_s(self._track, fate, self._speed_s)
        if fate != "ok":
            self.world.seen[f"step {fate}"] += 1
            self.faults += fate not in ("slow", "spoils a row")
        return Job(step, done, fate, delay_s)

    def plan_transfer(self, step: TransferStep, done: Copied) -> _TransferJob:
        """What becomes of a transfer."""
        track, has_faults = self._transfers, self.world.faults.device
        fate = _TRANSFER_FATES[track.weighted(_TRANSFER_WEIGHTS) if has_faults else 0]
        delay_s = self._delay_s(track, fate, self._copy_speed_s)
        if fate != "ok":
            self.world.seen[f"transfer {fate}"] += 1
            self.faults += fate != "slow"
        return Job(step, done, fate, delay_s)

    @staticmethod
    def _delay_s(track: Track, fate: str, speed_s: float) -> float:
        if fate in ("ok", "fails", "spoils a row"):
            return speed_s * (track.draw(4) / 2) if speed_s else 0.0
        return track.pick(_HANGS_S if fate == "hangs" else _HANGS_S[:2])

    def compute(self, worker: DeviceWorker, job: _StepJob) -> None:
        """Compute a step now, or let it fail."""
        if self._is_closed:
            return
        if job.fate == "fails":
            self.inner.fail_next("simulated")
        elif job.fate == "is lost":
            self.inner.fail_next("simulated", device_lost=True)
        spoils = job.fate == "spoils a row"
        worker.submit(job.step, (lambda report: job.done(_spoiled(report))) if spoils else job.done)

    def copy(self, worker: DeviceWorker, job: _TransferJob) -> None:
        """Make a transfer now, or let it fail."""
        if self._is_closed:
            return
        if job.fate == "fails":
            self.inner.fail_next_transfer("simulated")
        worker.transfer(job.step, job.done)


def _spoiled(report: StepReport) -> StepReport:
    """A report of which one row has drawn nothing."""
    if not isinstance(report, StepDone):
        return report
    outcomes = list(report.tokens)
    at = next((at for at, outcome in enumerate(outcomes) if outcome is not None), None)
    if at is not None:
        outcomes[at] = RowFault("simulated")
    return attrs.evolve(report, tokens=tuple(outcomes))


@attrs.define(eq=False)
class _Worker:
    """Runs steps one after another, and transfers beside them."""

    _device: SimulatedDevice
    _inner: DeviceWorker
    _steps: Lane[DeviceStep, StepDone] = attrs.field(init=False)
    _transfers: Lane[TransferStep, TransferDone] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        device, inner, timeline = self._device, self._inner, self._device.world.timeline
        self._steps = Lane(timeline, lambda job: device.compute(inner, job))
        self._transfers = Lane(timeline, lambda job: device.copy(inner, job))

    @property
    def running(self) -> int:
        """Steps and transfers that are not done."""
        return len(self._steps.jobs) + len(self._transfers.jobs)

    def submit(self, step: DeviceStep, done: Done, /) -> None:
        self._steps.submit(lambda: self._device.plan(step, done), done)

    def transfer(self, step: TransferStep, done: Copied, /) -> None:
        self._transfers.submit(lambda: self._device.plan_transfer(step, done), done)

    def stop(self) -> None:
        self._steps.stop()
        self._transfers.stop()

    def join(self, timeout_s: float, /) -> bool:
        """Wait, which is to let time pass."""
        timeline = self._device.world.timeline
        deadline = timeline.now() + timeout_s
        has_ended = self._steps.join(timeout_s)
        return self._transfers.join(max(0.0, deadline - timeline.now())) and has_ended

    def hurry(self) -> None:
        """Finish what runs now."""
        self._steps.hurry()
        self._transfers.hurry()
