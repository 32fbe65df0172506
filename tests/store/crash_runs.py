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
    CutLog,
    DropState,
    KeepFacts,
    KeepState,
    KeepTurn,
    Kept,
    ReadSession,
    ReadState,
    RemoveSession,
    StoreJob,
    SyncPolicy,
)
from kernel.state_image import StateImage
from tests.store.crash_states import CrashState, Loss, crash_states
from tests.store.model import ModelStore, plain
from tests.store.operations import Acknowledged, Operation
from tests.store.recording import RecordingDisk, Tape
from tests.store.stores import OpenStore, image_at, opened, turn_of

__all__ = ["Crash", "Recording", "Tally", "broken_promise", "record", "replay"]

STORE = "store"
KILL = "nothing lost"
FILE_BYTES = 512
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
NAMES = ("a", "b", "c")


@attrs.frozen(eq=False)
class Recording:
    """A run: its operations, and the model after each number of its jobs."""

    operations: Sequence[Operation]
    models: Sequence[ModelStore]
    sync: SyncPolicy
    submitted: Sequence[int]
    """Jobs that had been submitted by each operation."""


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


def workload(rng: random.Random, groups: int) -> Iterator[list[StoreJob]]:
    """Groups of jobs on few sessions, most of which succeed; it plays them on a model itself."""
    model = ModelStore()
    for _ in range(groups):
        jobs = list[StoreJob]()
        for _ in range(rng.choice((1, 1, 2, 4))):
            job = _job(rng, model)
            model.do(job)
            jobs.append(job)
        yield jobs


def _job(rng: random.Random, model: ModelStore) -> StoreJob:
    name = rng.choice(NAMES)
    kept = model.sessions.get(name)
    length = 0 if kept is None else kept.length
    kind = rng.choices(
        ("turn", "state", "file", "cut", "facts", "drop", "remove", "bad"),
        (8, 4, 3, 2, 1, 1, 1, 1),
    )[0]
    if kind == "state" and length > 1:
        image = image_at(
            rng.randrange(1, length), size=rng.choice((16, 400)), fill=rng.randrange(99)
        )
        return KeepState(name, image)
    if kind == "file" and length > 1:
        image = image_at(length - 1, size=rng.choice((600, 9000)), fill=rng.randrange(99))
        return KeepState(name, image)
    if kind == "cut" and length:
        return CutLog(name, rng.randrange(length))
    if kind == "facts":
        return KeepFacts(name, {"mark": rng.randrange(9)})
    if kind == "drop":
        return DropState(name)
    if kind == "remove":
        return RemoveSession(name)
    start = length + 7 if kind == "bad" else rng.choice((length, length, length, length // 2))
    tokens = [rng.randrange(1 << 32) for _ in range(rng.randrange(1, 6))]
    return KeepTurn(name, turn_of(start, tokens, text="x" * rng.choice((5, 5000))))


def _image(rng: random.Random, position: int, sizes: tuple[int, ...]) -> StateImage:
    return image_at(position, size=rng.choice(sizes), fill=rng.randrange(99))


def record(seed: int, sync: SyncPolicy, *, groups: int, reopen_every: int) -> Recording:
    """Run a random workload over the recorder; it is reopened now and then."""
    planned = list(workload(random.Random(seed), groups))
    models = [ModelStore()]
    submitted = list[int]()
    with tempfile.TemporaryDirectory() as directory:
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
    return Recording(tape.operations, models, sync, submitted)


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
            operations[:after], seed + after, alone=alone, subsets=subsets
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
        why = broken_promise(recording, crash)
        if why is not None:
            tally.broken.append(f"crash after operation {crash.after}, {crash.loss.kind}: {why}")
            if until_broken:
                break
    return tally


def broken_promise(recording: Recording, crash: Crash) -> str | None:
    """Recover from a crash; what is wrong with what is found, if anything."""
    keeps_reported = recording.sync == "full" or crash.loss.kind == KILL
    least = crash.reported if keeps_reported else 0
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        crash.state.build(Path(directory))
        try:
            with opened(Path(directory) / STORE, sync="off", file_bytes=FILE_BYTES) as store:
                allowed = recording.models[least : crash.submitted + 1]
                problems = [_difference(store, model, keeps_reported) for model in allowed]
                if all(problems):
                    return f"neither of the {len(allowed)} allowed states: {problems[0]}"
                report = store.do(KeepTurn("new", turn_of(0, [1, 2])))
                return None if report == Kept() else f"it can't be written to: {report}"
        except SessionStoreError as error:
            return str(error)


def _difference(store: OpenStore, model: ModelStore, keeps_reported: bool) -> str | None:
    if store.usage != model.usage():
        return f"it counts {store.usage} and not {model.usage()}"
    if list(store.worker.session_ids()) != sorted(model.sessions):
        return f"it has the sessions {store.worker.session_ids()}"
    for name in model.sessions:
        found = plain(store.do(ReadSession(name)))
        if found != plain(model.do(ReadSession(name))):
            return f"session {name} is {found}"
        image = plain(store.do(ReadState(name)))
        # A file that was not synced may be lost; then that is seen, and the log is there.
        if image != plain(model.do(ReadState(name))) and (keeps_reported or image != "damaged"):
            return f"the state of session {name} is {image}"
    return None
