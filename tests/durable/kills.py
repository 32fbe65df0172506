"""Kill an engine again and again, and hold what its store has against what its callers were told.

``python -m tests.durable.kills --count 2000 --model fake`` forks a child that serves sessions from
a store, kills it (SIGKILL) at a random moment, and starts the next one on the same store. After
each restart every session must be at its last acknowledged change, or at the one that was under
way; its log must be that of a run that was never interrupted, and so must be every later token;
where there is a snapshot, it must be one that was given to the store, bit for bit.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import selectors
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio._backends._asyncio as on_asyncio
import attrs

from adapters import session_store
from adapters.fake_device import FakeDevice
from adapters.session_files import session_files
from kernel import Engine, EngineConfig
from kernel.step import OpenedDevice
from tests.durable.kill_child import GREEDY, Plan, serve

__all__ = ["main", "open_model", "run"]

# Imported here, so that a forked child need not.
_PRELOADED = (asyncio, on_asyncio, session_store)


@attrs.define(eq=False)
class _Session:
    """What is known of one session."""

    turns: int = 0
    """Acknowledged."""
    might_be: int | None = None
    """Turns after the change that is under way."""
    offered: set[str] = attrs.field(factory=set[str])


@attrs.define(eq=False)
class Judge:
    """Reads what children say, and says what is wrong."""

    plan: Plan
    logs: list[list[list[int]]]
    """Of an uninterrupted run: by session, the log after each number of turns."""
    said: list[list[list[int]]]
    sessions: dict[str, _Session] = attrs.field(factory=dict[str, _Session])
    wrong: list[str] = attrs.field(factory=list[str])
    seen: Counter[str] = attrs.field(factory=Counter[str])
    found: set[str] = attrs.field(factory=set[str])

    def begin(self) -> None:
        """A child starts."""
        self.found = set()

    def hear(self, kind: str, name: str, *facts: Any) -> None:
        """One line of a child."""
        self.seen[kind] += 1
        if kind == "ready":
            self._judge_absent()
            return
        session = self.sessions.setdefault(name, _Session())
        number = int(name[1:])
        match kind:
            case "ask":
                change, turns = str(facts[0]), int(facts[1])
                self._expect(name, turns == session.turns, f"goes on at {turns}, not {session}")
                after = {"turn": turns + 1, "rewind": turns - 1, "forget": 0}
                session.might_be = after[change]
            case "told":
                self._told(name, session, number, *facts)
            case "offer":
                session.offered.add(facts[0])
            case "found":
                self._judge(name, session, number, *facts)
            case _:
                self._expect(name, False, f"{kind}: {facts}")

    def _told(self, name: str, session: _Session, number: int, change: str, *facts: Any) -> None:
        self.seen[change] += 1
        if change == "turn":
            turns, said = int(facts[0]), list[int](facts[1])
            self._expect(name, said == self.said[number][turns], f"turn {turns} said {said}")
        session.turns = session.might_be or 0
        session.might_be = None
        if change == "forget":
            session.offered.clear()

    def _judge(
        self, name: str, session: _Session, number: int, log: list[int], image: str | None
    ) -> None:
        self.found.add(name)
        legal = {session.turns, session.might_be} - {None}
        at = [turns for turns in legal if turns is not None and self.logs[number][turns] == log]
        self._expect(name, bool(at), f"{session} was found with {len(log)} tokens: {log}")
        if at:
            self.seen["newer" if at[0] != session.turns else "at the last"] += 1
            session.turns, session.might_be = at[0], None
        if image is not None:
            self.seen["snapshots"] += 1
            self._expect(name, image in session.offered, f"nobody has offered the state {image}")
            is_short = int(image.split(":")[0]) < len(log)
            self._expect(name, is_short, f"its state {image} is beyond its log of {len(log)}")

    def _judge_absent(self) -> None:
        for name, session in self.sessions.items():
            if name not in self.found:
                is_legal = session.turns == 0 or session.might_be == 0
                self._expect(name, is_legal, f"{session} is not in the store")
                session.turns, session.might_be = 0, None

    def _expect(self, name: str, is_right: bool, why: str) -> None:
        if not is_right:
            self.wrong.append(f"{name}: {why}")


async def _uninterrupted(plan: Plan, opened: OpenedDevice) -> list[list[list[int]]]:
    """What each session says in a run of its own that nobody kills."""
    config = EngineConfig(model="fake", page_size=4, dtype=plan.dtype, max_num_seqs=1)
    said: list[list[list[int]]] = []
    async with Engine.open(config, device=opened) as engine:
        for number in range(plan.sessions):
            said.append([])
            async with engine.session() as session:
                for turn in range(plan.turns):
                    async with session.turn(plan.input(number, turn), GREEDY) as running:
                        said[-1].append(list((await running.wait()).token_ids))
    return said


def _in_a_child(work: Any) -> tuple[int, int]:
    """Fork; returns the child and where to read what it writes."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writes)
        return pid, reads
    try:
        os.close(reads)
        work(writes)
    except BaseException as error:
        os.write(writes, json.dumps(["crashed", "s0", repr(error)]).encode() + b"\n")
    finally:
        os._exit(0)


def _lines(reads: int, until: float) -> Iterator[bytes]:
    """Whole lines, until the moment, or to the end of all that was written."""
    left = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reads, selectors.EVENT_READ)
        while (wait := until - time.monotonic()) > 0:
            if not selector.select(wait):
                return
            data = os.read(reads, 1 << 16)
            if not data:
                return
            *lines, left = (left + data).split(b"\n")
            yield from lines
    while left:
        # The moment has come within a line.
        data = os.read(reads, 1 << 16)
        if not data:
            return
        *lines, left = (left + data).split(b"\n")
        yield from lines


def _oracle(plan: Plan, opened: OpenedDevice) -> Judge:
    def work(writes: int) -> None:
        said = anyio.run(partial(_uninterrupted, plan, opened))
        with os.fdopen(writes, "w") as pipe:
            json.dump(said, pipe)

    pid, reads = _in_a_child(work)
    with os.fdopen(reads) as pipe:
        said: list[list[list[int]]] = json.load(pipe)
    os.waitpid(pid, 0)
    logs: list[list[list[int]]] = []
    for number, turns in enumerate(said):
        log: list[int] = []
        logs.append([[]])
        for turn, tokens in enumerate(turns):
            log = [*log, *plan.input(number, turn), *tokens]
            logs[-1].append(log)
    return Judge(plan, logs, said)


def run(
    *, count: int, model: str, seed: int, directory: Path, most_s: float, sync: Any = "normal"
) -> dict[str, Any]:
    """Kill ``count`` children; returns what was seen and what was wrong."""
    began = time.monotonic()
    opened = open_model(model)
    vocabulary = min(500, opened.device.model.vocab_size)
    dtype = "auto" if model == "fake" else "float64"
    plan = Plan(str(directory), seed, 6, 24, sync, vocabulary, dtype, resident=2)
    judge = _oracle(plan, opened)
    gc.freeze()
    draw = random.Random(seed)
    for kill in range(count):
        judge.begin()
        child = attrs.evolve(plan, seed=seed * 1_000_003 + kill)
        pid, reads = _in_a_child(partial(serve, child, opened, session_files))
        # Squared: as many die while they start as long after.
        until = time.monotonic() + draw.random() ** 2 * most_s
        for line in _lines(reads, until):
            judge.hear(*json.loads(line))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for line in _lines(reads, time.monotonic() + 10.0):
            judge.hear(*json.loads(line))
        os.close(reads)
        if judge.wrong:
            judge.wrong.append(f"kill {kill} of seed {seed}")
            break
    return {
        "kills": count,
        "model": model,
        "seed": seed,
        "sync": sync,
        "seen": dict(sorted(judge.seen.items())),
        "wrong": judge.wrong,
        "seconds": round(time.monotonic() - began, 1),
    }


def open_model(model: str) -> OpenedDevice:
    """A device that may be forked before its first worker; the bundled model in float64."""
    if model == "fake":
        device = FakeDevice(eos_token_ids=())
        return OpenedDevice(device=device, tokenizer=device.tokenizer)
    import torch

    from adapters.torch_device import open_torch

    torch.set_num_threads(1)  # a pool of threads would be forked without its threads
    return open_torch(model=model, device="cpu", dtype="float64", state_dtype="auto")


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 when something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--model", choices=("fake", "bundled"), default="fake")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sync", choices=("full", "normal", "off"), default="normal")
    parser.add_argument("--most-s", type=float, help="latest moment of a kill")
    given = parser.parse_args(arguments)
    most_s = given.most_s or (0.6 if given.model == "fake" else 3.0)
    with tempfile.TemporaryDirectory() as directory:
        report = run(
            count=given.count,
            model=given.model,
            seed=given.seed,
            directory=Path(directory) / "store",
            most_s=most_s,
            sync=given.sync,
        )
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return int(bool(report["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
