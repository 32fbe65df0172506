"""Engines with more and more sessions, nearly all of them dormant, and what a turn costs in each.

One engine for each number of sessions, all in one process. Every session is opened by a real turn.
Then the engines take turns at serving one turn each, so that whatever disturbs the machine disturbs
all of them alike: the session is drawn from those that are dormant, is woken, takes its turn and is
told that it is kept, while another one goes to rest in its place.
"""

import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import anyio
import attrs

from adapters.cli.bench.clock import until
from adapters.cli.bench.counting import CountingDevice
from adapters.cli.bench.counting_store import CountingFiles
from adapters.cli.bench.resident_memory import resident_bytes
from adapters.cli.bench.small_states import config_for, open_small
from kernel import Engine, SamplingParams
from kernel.engine.opening import find_session_files
from kernel.ids import SessionId
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
    open_s: float = 0.0
    close_s: float = 0.0
    bytes_grown: int = 0
    """Memory that the process had more of after the sessions were opened."""
    seconds: list[float] = attrs.field(factory=list[float])
    cpu_seconds: list[float] = attrs.field(factory=list[float])
    """Of all threads of the process, while each turn was under way."""
    per_turn: dict[str, float] = attrs.field(factory=dict[str, float])
    """Operations of each turn that was measured."""
    _hops: int = 0

    async def fill(self) -> None:
        """Open all sessions, each by a turn."""
        before, started = resident_bytes(), time.perf_counter()
        numbers = iter(range(self.count))

        async def client() -> None:
            for number in numbers:
                name = name_of(number)
                async with (
                    self.engine.session(session_id=name, detached=True) as session,
                    session.turn(_INPUT, _PARAMS) as turn,
                ):
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
        if stored is not None:
            await until(lambda: stored.residents.is_settled and stored.is_idle)
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

    def end(self) -> None:
        """The count is over."""
        counts = {
            "hops": self.engine.core.dispatcher.hops - self._hops,
            "steps": self.device.steps,
            "transfers": self.device.transfers,
            **dict(sorted(self.files.jobs.items())),
        }
        self.per_turn = {
            name: round(count / len(self.seconds), 2) for name, count in counts.items()
        }


@asynccontextmanager
async def _opened(
    count: int, store: Path, model: str, sync: SyncPolicy
) -> AsyncGenerator[World, None]:
    """An engine over an empty store; its closing is timed, and must leave nothing behind.

    Raises:
        RuntimeError: something was left.
    """
    device, files = CountingDevice(open_small(model)), CountingFiles(find_session_files())
    config = config_for(store, sync)
    async with Engine.open(config, device=device, session_files=files) as engine:
        world = World(count, engine, device, files, random.Random(count))
        yield world
        started = time.perf_counter()
    world.close_s = time.perf_counter() - started
    device.close()
    audit, slots = engine.core.audit, engine.core.limits.num_slots
    if audit is None or not audit.conserved or audit.free_slots != slots:
        raise RuntimeError(f"closing left something: {audit}")


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

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None, None]:
        """Open all engines and all their sessions; close them at the end of the block."""
        async with AsyncExitStack() as engines:
            for count in self.sizes:
                self.tell(f"opening {count} sessions ...")
                opened = _opened(count, self.store_of(count), self.model, self.sync)
                world = await engines.enter_async_context(opened)
                self.worlds.append(world)
                await world.fill()
            yield

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
                began = time.process_time()
                world.seconds.append(await world.wake_one())
                world.cpu_seconds.append(time.process_time() - began)
        for world in self.worlds:
            await world.rest()
            world.end()

    def turn_ms(self) -> dict[str, float]:
        """The median by number of sessions."""
        return {str(world.count): _ms(median(world.seconds)) for world in self.worlds}

    def turn_cpu_ms(self) -> dict[str, float]:
        """The median of processor time by number of sessions, which others can't lengthen."""
        return {str(world.count): _ms(median(world.cpu_seconds)) for world in self.worlds}

    def turn_p95_ms(self) -> dict[str, float]:
        """One in twenty took longer."""
        return {str(world.count): _ms(quantiles(world.seconds, n=20)[-1]) for world in self.worlds}

    def per_turn(self) -> dict[str, dict[str, float]]:
        """Operations of a turn by number of sessions."""
        return {str(world.count): world.per_turn for world in self.worlds}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
