"""Engines with more and more sessions, nearly all of them dormant, and what a turn costs in each.

One engine for each number of sessions, all in one process. Every session is opened by a real turn.
Then the engines take turns at serving one turn each, so that whatever disturbs the machine disturbs
all of them alike: the session is drawn from those that are dormant, is woken, takes its turn and is
told that it is kept, while another one goes to rest in its place.
"""

import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import anyio
import attrs

from adapters.cli.bench.counting import CountingDevice
from adapters.cli.bench.counting_store import CountingFiles
from adapters.cli.bench.resident_memory import resident_bytes
from adapters.cli.bench.small_states import config_for, open_small
from kernel import Engine, SamplingParams
from kernel.ids import SessionId
from kernel.opening import find_session_files
from kernel.session_store import SyncPolicy

__all__ = ["ManySessions", "World", "name_of", "one_turn"]

_CLIENTS: Final = 64
_PARAMS: Final = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, detokenize=False)
_INPUT: Final = [5, 6, 7, 8]
_WARM_UP: Final = 16


def name_of(number: int) -> str:
    """The name of a session."""
    return f"user-{number:06d}"


async def one_turn(engine: Engine, name: str) -> float:
    """Seconds of a turn of a session, until its caller knows that it is kept."""
    started = time.perf_counter()
    async with engine.attach(name).turn(_INPUT, _PARAMS) as turn:
        await turn.wait()
    return time.perf_counter() - started


@attrs.define(eq=False)
class World:
    """One engine and its store."""

    count: int
    engine: Engine
    device: CountingDevice
    files: CountingFiles
    draws: random.Random
    lives: AsyncExitStack
    open_s: float = 0.0
    bytes_grown: int = 0
    """Memory that the process had more of after the sessions were opened."""
    seconds: list[float] = attrs.field(factory=list[float])
    _hops: int = 0

    async def fill(self) -> None:
        """Open all sessions, each by a turn."""
        before, started = resident_bytes(), time.perf_counter()
        numbers = iter(range(self.count))

        async def client() -> None:
            for number in numbers:
                name = name_of(number)
                async with self.engine.session(session_id=name, detached=True) as session:
                    async with session.turn(_INPUT, _PARAMS) as turn:
                        await turn.wait()

        async with anyio.create_task_group() as clients:
            for _ in range(_CLIENTS):
                clients.start_soon(client)
        await self.rest()
        self.open_s = time.perf_counter() - started
        self.bytes_grown = resident_bytes() - before

    async def rest(self) -> None:
        """Wait until as many sessions as can are dormant."""
        stored = self.engine.core.stored
        while stored is None or not (stored.residents.is_settled and stored.is_idle):
            await anyio.sleep(0.001)
        await self.engine.settle()

    def begin(self) -> None:
        """Count operations from here on."""
        self.device.begin()
        self.files.jobs.clear()
        self._hops = self.engine.core.dispatcher.hops

    async def wake_one(self) -> float:
        """Seconds of a turn of a session that is dormant."""
        name = name_of(self.draws.randrange(self.count))
        while SessionId(name) in self.engine.core.sessions:
            name = name_of(self.draws.randrange(self.count))
        return await one_turn(self.engine, name)

    def per_turn(self) -> dict[str, float]:
        """Operations since the count began, for each turn that was measured since."""
        counts = {
            "hops": self.engine.core.dispatcher.hops - self._hops,
            "steps": self.device.steps,
            "transfers": self.device.transfers,
            **dict(sorted(self.files.jobs.items())),
        }
        return {name: round(count / len(self.seconds), 2) for name, count in counts.items()}

    async def close(self) -> float:
        """Seconds of closing the engine, which must leave nothing behind.

        Raises:
            RuntimeError: something was left.
        """
        started = time.perf_counter()
        await self.lives.aclose()
        seconds = time.perf_counter() - started
        audit = self.engine.core.audit
        if audit is None or not audit.conserved or audit.free_slots != _slots(self.engine):
            raise RuntimeError(f"closing left something: {audit}")
        return seconds


def _slots(engine: Engine) -> int:
    return engine.core.limits.num_slots


@attrs.define(eq=False)
class ManySessions:
    """Engines of so many sessions each, in directories below one.

    Args:
        sizes: numbers of sessions.
        directory: where the stores lie.
        model: a name that :func:`open_small` knows.
        sync: as in ``EngineConfig``.
        tell: told what is being done.
    """

    sizes: tuple[int, ...]
    directory: Path
    model: str
    sync: SyncPolicy
    tell: Callable[[str], object]
    worlds: list[World] = attrs.field(factory=list[World])

    def store_of(self, count: int) -> Path:
        """Where the store of so many sessions lies."""
        return self.directory / str(count)

    async def open(self) -> None:
        """Open all engines and all their sessions."""
        for count in self.sizes:
            self.tell(f"opening {count} sessions ...")
            lives = AsyncExitStack()
            device, files = CountingDevice(open_small(self.model)), CountingFiles(
                find_session_files()
            )
            lives.callback(device.close)
            config = config_for(self.store_of(count), self.sync)
            opened = Engine.open(config, device=device, session_files=files)
            engine = await lives.enter_async_context(opened)
            world = World(count, engine, device, files, random.Random(count), lives)
            self.worlds.append(world)
            await world.fill()

    async def measure(self, turns: int) -> None:
        """So many turns in each engine, by turns."""
        self.tell(f"{turns} turns among each of {', '.join(map(str, self.sizes))} sessions ...")
        for _ in range(_WARM_UP):
            for world in self.worlds:
                await world.wake_one()
        for world in self.worlds:
            await world.rest()
            world.begin()
        for _ in range(turns):
            for world in self.worlds:
                world.seconds.append(await world.wake_one())
        for world in self.worlds:
            await world.rest()

    def turn_ms(self) -> dict[str, float]:
        """The median by number of sessions."""
        return {str(world.count): _ms(median(world.seconds)) for world in self.worlds}

    def turn_p95_ms(self) -> dict[str, float]:
        """One in twenty took longer."""
        return {str(world.count): _ms(quantiles(world.seconds, n=20)[-1]) for world in self.worlds}

    def per_turn(self) -> dict[str, dict[str, float]]:
        """Operations of a turn by number of sessions."""
        return {str(world.count): world.per_turn() for world in self.worlds}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
