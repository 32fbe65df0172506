"""Records a run of the store, and holds every state that a crash of it may leave to the promise.

The promise: what is found is what the store held after some number of the jobs, in their order: no
less than were reported when it crashed, no more than were submitted. With policies that don't sync
each commit, a crash of the machine may cost reported jobs, never the order, never half of one.
"""

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from kernel.errors import SessionStoreError
from kernel.session_store import (
    KeepTurn,
    Kept,
    ReadSession,
    ReadState,
    SyncPolicy,
)
from tests.store.crash_jobs import workload
from tests.store.crash_states import EMPTY, CrashState, Loss, crash_states
from tests.store.model import ModelStore, plain
from tests.store.operations import Acknowledged, Operation
from tests.store.recording import RecordingDisk, Tape
from tests.store.stores import OpenStore, opened, turn_of

__all__ = ["STORE", "Crash", "Recording", "Tally", "record", "recovered", "replay", "replay_twice"]

STORE = "store"
KILL = "nothing lost"
FILE_BYTES = 512
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@attrs.frozen(eq=False)
class Recording:
    """A run: its operations, and the model after each number of its jobs."""

    operations: Sequence[Operation]
    models: Sequence[ModelStore]
    sync: SyncPolicy
    submitted: Sequence[int]
    """Jobs that had been submitted by each operation."""
    base: CrashState = EMPTY
    """What was on the disk when it began: what an earlier crash had left."""


@attrs.frozen(eq=False)
class Crash:
    """A crash after some operations, and what it left."""

    after: int
    loss: Loss
    state: CrashState
    reported: int
    submitted: int


@attrs.define(eq=False)
class Tally:
    """What a replay has looked at."""

    operations: int = 0
    crashes: int = 0
    states: int = 0
    """Of them, directories that differ."""
    kinds: Counter[str] = attrs.field(factory=Counter[str])
    broken: list[str] = attrs.field(factory=list[str])

    def add(self, other: "Tally") -> None:
        self.operations += other.operations
        self.crashes += other.crashes
        self.states += other.states
        self.kinds += other.kinds
        self.broken += other.broken


def record(
    seed: int,
    sync: SyncPolicy,
    *,
    groups: int,
    reopen_every: int,
    base: CrashState = EMPTY,
    model: ModelStore | None = None,
) -> Recording:
    """Run a random workload over the recorder; it is reopened now and then.

    Args:
        seed: of the jobs.
        sync: the store's policy.
        groups: groups of jobs, each submitted together.
        reopen_every: groups between two openings of the store.
        base: what is on the disk before.
        model: of the store that this is.
    """
    models = [model or ModelStore()]
    planned = list(workload(random.Random(seed), groups, models[0].copy()))
    submitted = list[int]()
    with tempfile.TemporaryDirectory() as directory:
        base.build(Path(directory))
        tape = Tape(Path(directory))

        def note() -> None:
            submitted.extend([len(models) - 1] * (len(tape.operations) - len(submitted)))

        disk = RecordingDisk(tape, checkpoint_pages=12)
        for first in range(0, groups, reopen_every):
            with opened(
                Path(directory) / STORE, sync=sync, disk=disk, file_bytes=FILE_BYTES
            ) as store:
                for jobs in planned[first : first + reopen_every]:
                    note()
                    for job in jobs:
                        models.append(models[-1].copy())
                        models[-1].do(job)
                    store.all(jobs)
                    tape.add(Acknowledged(len(models) - 1))
        note()
    return Recording(tape.operations, models, sync, submitted, base)


def crashes(
    recording: Recording, seed: int, *, every: int, alone: int | None, subsets: int
) -> Iterator[Crash]:
    """Crashes after each ``every``-th operation, beginning at a random one."""
    operations = recording.operations
    reported = 0
    offset = random.Random(seed).randrange(every)
    for after in range(len(operations) + 1):
        if after and isinstance(operation := operations[after - 1], Acknowledged):
            reported = operation.jobs
        if after % every != offset:
            continue
        submitted = recording.submitted[min(after, len(operations) - 1)]
        for loss, state in crash_states(
            operations[:after], recording.base, seed + after, alone=alone, subsets=subsets
        ):
            yield Crash(after, loss, state, reported, submitted)


def replay(
    recording: Recording,
    seed: int,
    *,
    every: int = 1,
    alone: int | None = None,
    subsets: int = 4,
    until_broken: bool = False,
) -> Tally:
    """Recover from every crash, and collect the promises that were broken."""
    tally = Tally(operations=len(recording.operations))
    seen = set[tuple[bytes, int, int, bool]]()
    for crash in crashes(recording, seed, every=every, alone=alone, subsets=subsets):
        tally.crashes += 1
        tally.kinds[crash.loss.kind] += 1
        is_kill = crash.loss.kind == KILL
        key = (crash.state.digest, crash.reported, crash.submitted, is_kill)
        if key in seen:
            continue
        seen.add(key)
        tally.states += 1
        found = recovered(recording, crash)
        if isinstance(found, str):
            tally.broken.append(f"crash after operation {crash.after}, {crash.loss.kind}: {found}")
            if until_broken:
                break
    return tally


def replay_twice(recording: Recording, seed: int, *, crashes_each: int, every: int) -> Tally:
    """Crash, recover and go on, and crash again in the midst of that.

    Args:
        recording: the run that crashes first.
        seed: of the random choices.
        crashes_each: first crashes, chosen at random.
        every: operations between two second crashes.
    """
    rng = random.Random(seed)
    firsts = list(crashes(recording, seed, every=1, alone=1, subsets=1))
    tally = Tally()
    for first in rng.sample(firsts, min(crashes_each, len(firsts))):
        model = recovered(recording, first)
        if isinstance(model, str):
            tally.broken.append(model)
            continue
        second = record(
            seed,
            recording.sync,
            groups=3,
            reopen_every=2,
            base=first.state,
            model=model,
        )
        tally.add(replay(second, seed, every=every, alone=2, subsets=2))
    return tally


def recovered(recording: Recording, crash: Crash) -> ModelStore | str:
    """What a crash has left of the run, or what is wrong with it."""
    keeps_reported = recording.sync == "full" or crash.loss.kind == KILL
    least = crash.reported if keeps_reported else 0
    # A file that was not synced may be lost; then that is seen, and the log is there.
    may_be_damaged = recording.sync != "full" and (not keeps_reported or recording.base != EMPTY)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        crash.state.build(Path(directory))
        try:
            with opened(Path(directory) / STORE, sync="off", file_bytes=FILE_BYTES) as store:
                problems = list[str]()
                for model in recording.models[least : crash.submitted + 1]:
                    problem = _difference(store, model, may_be_damaged)
                    if problem is None:
                        report = store.do(KeepTurn("new", turn_of(0, [1, 2])))
                        return model if report == Kept() else f"it can't be written to: {report}"
                    problems.append(problem)
                return f"it is in none of {len(problems)} allowed states: {problems[0]}"
        except SessionStoreError as error:
            return str(error)


def _difference(store: OpenStore, model: ModelStore, may_be_damaged: bool) -> str | None:
    if store.usage != model.usage():
        return f"it counts {store.usage} and not {model.usage()}"
    if list(store.worker.session_ids()) != sorted(model.sessions):
        return f"it has the sessions {store.worker.session_ids()}"
    for name in model.sessions:
        found = plain(store.do(ReadSession(name)))
        if found != plain(model.do(ReadSession(name))):
            return f"session {name} is {found}"
        image = plain(store.do(ReadState(name)))
        expected = plain(model.do(ReadState(name)))
        if image != expected and not (may_be_damaged and image == "damaged"):
            return f"the state of session {name} is {image}"
    return None
