"""A device on virtual time: its steps take as long, fail, hang and get lost as the tape says.

It stands before a device that computes at once (:mod:`kernel.testing.device`), and hands it each
step at the moment at which the step is due. So memory that was given back too early is seen.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol

import attrs

from kernel.loading import no_progress
from kernel.opening import DEVICES
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
    StepFault,
    StepReport,
    WorkerContext,
)
from kernel.testing.device import FaultyDevice, open_faulty_device
from kernel.testing.simulation.decisions import Track
from kernel.testing.simulation.timeline import Timeline

__all__ = ["SimulatedDevice", "open_inner"]

Done = Callable[[StepReport], None]

_SPEEDS_S = (0.0, 0.001, 0.004, 0.02)
_HANGS_S = (0.3, 1.5, 4.0, 1e6)
"""How long a hanging step hangs; the last one until the faults end."""
_FATES = ("ok", "slow", "fails", "hangs", "is lost", "spoils a row")
_WEIGHTS = (86, 4, 4, 3, 1, 2)


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


@attrs.define(eq=False)
class _Job:
    step: DeviceStep
    done: Done
    fate: str
    delay_s: float
    due_at: float = 0.0


class SimulatedDevice:
    """The device of one engine in a simulated world."""

    def __init__(self, inner: Device, world: _World, track: Track) -> None:
        if not isinstance(inner, FaultyDevice):
            raise TypeError(f"{inner!r} can't be told to fail")
        self.inner = inner
        self.world = world
        self.faults = 0
        """Steps that were made to fail or to hang, so far."""
        self._track = track
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
        """Let every step that runs, is slow or hangs be done now."""
        for worker in self._workers:
            worker.hurry()

    @property
    def running(self) -> int:
        """Steps that are not done."""
        return sum(len(worker.jobs) for worker in self._workers)

    def deliver(self, call: Callable[[], object]) -> None:
        """Deliver a completion to the kernel: at once, or a little later."""
        if self._delivers_late and self._track.draw(2):
            self.world.timeline.later(0.0, call)
        else:
            call()

    def plan(self, step: DeviceStep, done: Done) -> _Job:
        """What becomes of a step."""
        has_faults = self.world.faults.device
        fate = _FATES[self._track.weighted(_WEIGHTS) if has_faults else 0]
        if fate in ("ok", "fails", "spoils a row"):
            delay_s = self._speed_s * (self._track.draw(4) / 2) if self._speed_s else 0.0
        else:
            delay_s = self._track.pick(_HANGS_S if fate == "hangs" else _HANGS_S[:2])
        if fate != "ok":
            self.world.seen[f"step {fate}"] += 1
            self.faults += fate not in ("slow", "spoils a row")
        return _Job(step, done, fate, delay_s)

    def compute(self, worker: DeviceWorker, job: _Job) -> None:
        """Compute a step now, or let it fail."""
        if self._is_closed:
            return
        if job.fate == "fails":
            self.inner.fail_next("simulated")
        elif job.fate == "is lost":
            self.inner.fail_next("simulated", device_lost=True)
        spoils = job.fate == "spoils a row"
        worker.submit(job.step, (lambda report: job.done(_spoiled(report))) if spoils else job.done)


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
    """Runs steps one after another, each in its own time."""

    _device: SimulatedDevice
    _inner: DeviceWorker
    jobs: deque[_Job] = attrs.field(factory=deque[_Job])
    """The first one runs."""
    _is_stopped: bool = False

    def submit(self, step: DeviceStep, done: Done, /) -> None:
        if self._is_stopped:
            done(StepFault("the worker was stopped before the step began"))
            return
        self.jobs.append(self._device.plan(step, done))
        if len(self.jobs) == 1:
            self._begin()

    def stop(self) -> None:
        self._is_stopped = True
        while len(self.jobs) > 1:
            self.jobs.pop().done(StepFault("the worker was stopped before the step began"))

    def join(self, timeout_s: float, /) -> bool:
        """Wait, which is to let time pass."""
        timeline = self._device.world.timeline
        while self.jobs:
            left_s = max(0.0, self.jobs[0].due_at - timeline.now())
            if left_s > timeout_s:
                timeline.advance(timeout_s)
                return False
            timeline.advance(left_s)
            timeout_s -= left_s
            self._finish(self.jobs[0])
        return True

    def hurry(self) -> None:
        """Finish what runs now."""
        if self.jobs:
            self._finish(self.jobs[0])

    def _begin(self) -> None:
        job = self.jobs[0]
        timeline = self._device.world.timeline
        job.due_at = timeline.now() + job.delay_s
        if job.delay_s:
            timeline.later(job.delay_s, lambda: self._finish(job))
        else:
            self._finish(job)

    def _finish(self, job: _Job) -> None:
        if not self.jobs or self.jobs[0] is not job:
            return
        self._device.compute(self._inner, job)
        self.jobs.popleft()
        if self.jobs:
            self._begin()
