"""The process that is killed: it serves sessions from a store and says what was acknowledged.

Each line that it writes is one fact, written whole or not at all as far as its reader goes: what it
is about to ask (``ask``), what it was told (``told``), what it found in the store when it began
(``found``), and which state it is about to keep (``offer``).
"""

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs

from kernel import Engine, EngineConfig, SamplingParams
from kernel.errors import SessionNotFound
from kernel.session_store import (
    FileHeader,
    KeepState,
    ReadSession,
    ReadState,
    SessionFiles,
    SessionRecord,
    StoreJob,
    StoreReport,
    StoreWorker,
    SyncPolicy,
)
from kernel.state_image import StateImage
from kernel.step import OpenedDevice

__all__ = ["GREEDY", "Plan", "digest_of", "serve"]

GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@attrs.frozen
class Plan:
    """What a child does, as a function of its seed."""

    directory: str
    seed: int
    sessions: int
    turns: int
    """Most turns of one session; then it is forgotten, and begins again."""
    sync: SyncPolicy
    vocabulary: int
    dtype: str
    resident: int

    def input(self, session: int, turn: int) -> list[int]:
        """The same for every life of a session, so that one uninterrupted run tells them all."""
        draw = random.Random(f"{session} {turn}")
        return [draw.randrange(1, self.vocabulary) for _ in range(draw.randint(1, 6))]


def digest_of(image: StateImage) -> str:
    """The same for images that are the same bit for bit."""
    found = hashlib.blake2b(digest_size=12)
    for name, array in sorted(image.arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.data)
    return f"{image.position}:{found.hexdigest()}"


@attrs.define(eq=False)
class _Telling:
    """A store's worker that says which states it is given."""

    worker: StoreWorker
    tell: Callable[..., None]

    def submit(self, job: StoreJob, done: Callable[[StoreReport], None], /) -> None:
        if isinstance(job, KeepState):
            self.tell("offer", job.session_id, digest_of(job.image))
        self.worker.submit(job, done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)


@attrs.define(eq=False)
class _TellingFiles:
    files: SessionFiles
    tell: Callable[..., None]

    def open_store(self, directory: Path, header: FileHeader, **options: Any) -> Any:
        worker = self.files.open_store(directory, header, **options)
        _tell_found(worker, self.tell)
        return _Telling(worker, self.tell)


def _tell_found(worker: StoreWorker, tell: Callable[..., None]) -> None:
    """Say what is in the store, before an engine has touched it."""

    def read(job: StoreJob) -> StoreReport:
        found: list[StoreReport] = []
        worker.submit(job, found.append)
        while not found:
            os.sched_yield()
        return found[0]

    for session_id in worker.session_ids():
        record = read(ReadSession(session_id))
        if not isinstance(record, SessionRecord):
            tell("broken", session_id, repr(record))
            continue
        log = [token for turn in record.turns for token in turn.tokens]
        image = read(ReadState(session_id)) if record.state_position is not None else None
        if image is not None and not isinstance(image, StateImage):
            tell("broken", session_id, repr(image))
            continue
        tell("found", session_id, log, None if image is None else digest_of(image))
    tell("ready", "", 0)


def serve(plan: Plan, opened: OpenedDevice, files: SessionFiles, pipe: int) -> None:
    """Serve until killed."""

    def tell(kind: str, session_id: str, *facts: object) -> None:
        os.write(pipe, json.dumps([kind, session_id, *facts]).encode() + b"\n")

    anyio.run(partial(_serve, plan, opened, _TellingFiles(files, tell), tell))


async def _serve(plan: Plan, opened: OpenedDevice, files: Any, tell: Callable[..., None]) -> None:
    config = EngineConfig(
        model="fake",
        page_size=4,
        max_num_seqs=4,
        num_slots=3,
        dtype=plan.dtype,
        session_store=plan.directory,
        session_store_sync=plan.sync,
        max_resident_sessions=plan.resident,
    )
    draw = random.Random(plan.seed)
    async with Engine.open(config, device=opened, session_files=files) as engine:
        async with anyio.create_task_group() as tasks:
            for session in range(plan.sessions):
                client = _Client(plan, engine, session, random.Random(draw.random()), tell)
                tasks.start_soon(client.run)
            if draw.random() < 0.2:
                # Some are killed while they close, or after that.
                await anyio.sleep(draw.random() * 0.05)
                tasks.cancel_scope.cancel()


@attrs.define(eq=False)
class _Client:
    plan: Plan
    engine: Engine
    number: int
    draw: random.Random
    tell: Callable[..., None]

    async def run(self) -> None:
        name = f"s{self.number}"
        while True:
            async with self.engine.session(session_id=name, detached=True, resume=True) as session:
                turns = session.info.turns or 0
                kind = self._choose(turns)
                self.tell("ask", name, kind, turns)
                if kind == "turn":
                    tokens = self.plan.input(self.number, turns)
                    async with session.turn(tokens, GREEDY) as turn:
                        said = list((await turn.wait()).token_ids)
                    self.tell("told", name, kind, turns, said)
                elif kind == "rewind":
                    self.tell("told", name, kind, await session.rewind(-1))
                else:
                    with contextlib.suppress(SessionNotFound):  # it had no turn yet
                        await self.engine.forget(name)
                    self.tell("told", name, kind, 0)

    def _choose(self, turns: int) -> str:
        if turns >= self.plan.turns:
            return "forget"
        chance = self.draw.random()
        return "rewind" if turns and chance < 0.1 else "turn"
