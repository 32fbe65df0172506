"""A store of sessions on virtual time: its jobs take as long, fail and hang as the tape says."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs

from kernel.errors import SessionFileError
from kernel.session_store import (
    FileHeader,
    KeepFacts,
    KeepState,
    KeepTurn,
    ReadSession,
    ReadState,
    RemoveSession,
    SessionRecord,
    StoreFault,
    StoreJob,
    StoreReport,
    StoreUsage,
    SyncPolicy,
)
from kernel.state_image import StateImage
from kernel.step import StepFault
from kernel.testing.simulation.decisions import Track
from kernel.testing.simulation.disk import Disk
from kernel.testing.simulation.lanes import Job, Lane
from kernel.testing.simulation.timeline import Timeline

__all__ = ["SimulatedFiles"]

Done = Callable[[StoreReport], None]
_StoreJob = Job[StoreJob, StoreReport]

_SPEEDS_S = (0.0, 0.001, 0.01)
_HANGS_S = (0.3, 1.5, 4.0, 1e6)
"""How long a job hangs; the last one until the faults end."""
_FATES = ("ok", "slow", "is full", "hangs", "damages the snapshot")
_WEIGHTS = (82, 5, 6, 2, 5)


class _Faults(Protocol):
    @property
    def disk(self) -> bool: ...


class _World(Protocol):
    timeline: Timeline

    @property
    def faults(self) -> _Faults: ...

    @property
    def seen(self) -> dict[str, int]: ...


@attrs.define(eq=False)
class SimulatedFiles:
    """The disk of one simulated world; what is packed never leaves it."""

    world: _World
    track: Track
    disk: Disk = attrs.field(factory=Disk)
    faults: int = 0
    """Jobs that were made to fail or to hang, so far."""
    _packed: list[tuple[SessionRecord, StateImage | None]] = attrs.field(
        factory=list[tuple[SessionRecord, "StateImage | None"]]
    )
    _stores: "list[_Store]" = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._stores = []

    def open_store(
        self,
        directory: Path,
        header: FileHeader,
        *,
        sync: SyncPolicy,
        max_state_bytes: int | None,
    ) -> "_Store":
        """Open the store; it is all on one disk."""
        del directory, header, sync, max_state_bytes
        store = _Store(self)
        self._stores.append(store)
        return store

    def pack(self, record: SessionRecord, image: StateImage | None, header: FileHeader) -> bytes:
        """A session as bytes, which name it."""
        del header
        self._packed.append((record, image))
        return str(len(self._packed) - 1).encode()

    def unpack(
        self, data: bytes, header: FileHeader, *, source: str
    ) -> tuple[SessionRecord, StateImage | None]:
        """The session that was packed as these bytes."""
        del header
        try:
            return self._packed[int(data)]
        except (ValueError, IndexError) as error:
            raise SessionFileError(source=source, reason="damaged", why=str(error)) from error

    def write(self, path: Path, data: bytes) -> None:
        """No file is written in a simulation."""
        raise SessionFileError(source=str(path), reason="failed", why=f"{len(data)} bytes too many")

    def read(self, path: Path) -> bytes:
        """And none is read."""
        raise SessionFileError(source=str(path), reason="failed", why="there is no such file")

    def hurry(self) -> None:
        """Let whatever is slow or hangs be done now."""
        for store in self._stores:
            store.lane.hurry()

    def plan(self, job: StoreJob, done: Done) -> _StoreJob:
        """What becomes of a job."""
        track = self.track
        fate = _FATES[track.weighted(_WEIGHTS) if self.world.faults.disk else 0]
        reads = isinstance(job, ReadSession | ReadState)
        if (fate == "is full" and reads) or (fate.startswith("damages") and not _has_image(job)):
            fate = "ok"
        if fate != "ok":
            self.world.seen[f"a store {fate}"] += 1
            self.faults += fate != "slow"
        delays_s: Sequence[float] = _SPEEDS_S
        if fate in ("slow", "hangs"):
            delays_s = _HANGS_S if fate == "hangs" else _HANGS_S[:2]
        return Job(job, partial(_report, done), fate, track.pick(delays_s))

    def work(self, job: _StoreJob) -> None:
        """Do a job that is due."""
        if job.fate == "is full":
            job.done(StoreFault("no space is left", "full"))
            return
        report = self.disk.do(job.step)
        if isinstance(report, StoreFault):
            self.world.seen[f"a job of the store: {report.reason}"] += 1
        elif job.fate.startswith("damages"):
            self.disk.damage_snapshot(job.step.session_id)
        job.done(report)


@attrs.define(eq=False)
class _Store:
    """An open store; see :class:`kernel.session_store.StoreWorker`."""

    files: SimulatedFiles
    lane: Lane[StoreJob, StoreReport] = attrs.field(init=False)
    _is_stopped: bool = False

    def __attrs_post_init__(self) -> None:
        self.lane = Lane(self.files.world.timeline, self.files.work)

    def submit(self, job: StoreJob, done: Done, /) -> None:
        if self._is_stopped:
            done(StoreFault("the store is closed", "stopped"))
        else:
            self.lane.submit(lambda: self.files.plan(job, done), partial(_report, done))

    def holds(self, session_id: str, /) -> bool:
        is_kept = session_id in self.files.disk.sessions
        for job in self.lane.jobs:
            if job.step.session_id == session_id and job.fate != "is full":
                is_kept |= isinstance(job.step, KeepTurn | KeepFacts)
                is_kept &= not isinstance(job.step, RemoveSession)
        return is_kept

    def session_ids(self) -> Sequence[str]:
        return sorted(self.files.disk.sessions)

    def usage(self) -> StoreUsage:
        return self.files.disk.usage()

    def stop(self) -> None:
        """What is queued is done first."""
        self._is_stopped = True

    def join(self, timeout_s: float, /) -> bool:
        return self.lane.join(timeout_s)


def _has_image(job: StoreJob) -> bool:
    return isinstance(job, KeepState)


def _report(done: Done, report: StoreReport | StepFault) -> None:
    done(StoreFault(report.why, "stopped") if isinstance(report, StepFault) else report)
