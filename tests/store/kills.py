"""Kills a process that writes to a store: ``python -m tests.store.kills [--count 200]``.

A child keeps turns and states and tells what has been reported to it; it is killed with SIGKILL
at a random moment, now and then while it opens the store. The store is opened again and must hold
all that was told, in order, and snapshots that are those of the log. All kills hit the same store.
"""

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import attrs

from kernel.session_store import ReadSession, ReadState, SessionRecord, StoreFault, SyncPolicy
from kernel.state_image import StateImage
from tests.store.stores import OpenStore, opened
from tests.store.writer import FILE_BYTES, READY, SESSIONS, image_of, tokens_of, write_for_ever

__all__ = ["Kills", "kill_often"]


@attrs.define(eq=False)
class Kills:
    """What many kills have come to."""

    kills: int = 0
    reported_turns: int = 0
    """Turns of which the child had told the report."""
    found_beyond: int = 0
    """Turns that were found and had not been told of: they may be there or not."""
    snapshots: int = 0
    """Snapshots that were read after a kill."""
    broken: list[str] = attrs.field(factory=list[str])


@attrs.define(eq=False)
class _Killer:
    directory: Path
    sync: SyncPolicy
    rng: random.Random
    kills: Kills = attrs.field(factory=Kills)
    least: list[int] = attrs.field(factory=lambda: [0] * SESSIONS)
    """Turns that each session must have."""

    def kill_one(self) -> None:
        # Started from a server that has imported all this: a fresh interpreter takes a second.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.store.writer"])
        ours, theirs = context.Pipe(duplex=False)
        arguments = (self.directory, self.sync, self.rng.randrange(1 << 30), theirs)
        child = context.Process(target=write_for_ever, args=arguments, daemon=True)
        child.start()
        theirs.close()
        with ours:
            if self.kills.kills % 8 != 7:
                assert ours.recv() == READY
            time.sleep(self.rng.uniform(0, 0.15))
            child.kill()
            self._hear(ours)
        child.join()
        child.close()
        self.kills.kills += 1

    def _hear(self, reports: Connection) -> None:
        while True:
            try:
                line = reports.recv()
            except (EOFError, OSError):  # the end, or the middle of a message
                return
            if line.startswith("fault"):
                self._broken(line)
            elif line != READY:
                session, turn = map(int, line.split())
                self.least[session] = max(self.least[session], turn + 1)
                self.kills.reported_turns += 1

    def check(self) -> None:
        with opened(self.directory, sync=self.sync, file_bytes=FILE_BYTES) as store:
            for session in range(SESSIONS):
                self._check(store, session)

    def _check(self, store: OpenStore, session: int) -> None:
        least = self.least[session]
        record = store.do(ReadSession(f"s{session}"))
        if not isinstance(record, SessionRecord):
            if least or not isinstance(record, StoreFault) or record.reason != "missing":
                self._broken(f"session {session} of {least} turns: {record}")
            return
        found = [list(turn.tokens) for turn in record.turns]
        if found != [tokens_of(session, number) for number in range(len(found))]:
            self._broken(f"session {session} has other tokens: {found}")
        if len(found) < least:
            self._broken(f"session {session} has {len(found)} turns of {least}")
        self.kills.found_beyond += len(found) - least
        self.least[session] = len(found)
        if record.state_position is not None:
            self._check_state(store, session, record.state_position, record.state_bytes)

    def _check_state(self, store: OpenStore, session: int, position: int, size: int) -> None:
        self.kills.snapshots += 1
        image = store.do(ReadState(f"s{session}"))
        expected = image_of(session, position, size)
        if not isinstance(image, StateImage) or dict(image.arrays) != dict(expected.arrays):
            self._broken(f"the state of session {session} is {image}")

    def _broken(self, why: str) -> None:
        self.kills.broken.append(f"kill {self.kills.kills}: {why}")


def kill_often(count: int, sync: SyncPolicy, seed: int) -> Kills:
    """Kill a writing child ``count`` times, and look at the store after each."""
    with tempfile.TemporaryDirectory() as place:
        killer = _Killer(Path(place) / "store", sync, random.Random(seed))
        for _ in range(count):
            killer.kill_one()
            killer.check()
    return killer.kills


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.store.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--sync", choices=("full", "normal", "off"), default="full")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kills = kill_often(options.count, options.sync, options.seed)
    sys.stdout.write(f"{kills}\n")
    return int(bool(kills.broken))


if __name__ == "__main__":
    sys.exit(main())
