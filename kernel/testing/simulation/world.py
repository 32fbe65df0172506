"""The world of one run: its decisions, its time, its tasks, its engines, and what went wrong."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast, final

import anyio
import attrs

from kernel.config import EngineConfig
from kernel.engine.engine import Engine
from kernel.environment import Environment
from kernel.errors import TenureError
from kernel.step import OpenedDevice
from kernel.testing.simulation.decisions import Decisions, Track
from kernel.testing.simulation.device import SimulatedDevice, open_inner
from kernel.testing.simulation.faults import Faults
from kernel.testing.simulation.observer import Observer
from kernel.testing.simulation.speech import SimulatedChat
from kernel.testing.simulation.store import SimulatedFiles
from kernel.testing.simulation.strategies import Strategy
from kernel.testing.simulation.tape import Failure
from kernel.testing.simulation.timeline import Job, Timeline
from ownership import AuditReport

__all__ = ["OpenWorld", "World"]

T = TypeVar("T")

_MEANT_FOR_TASKS = (GeneratorExit, KeyboardInterrupt, SystemExit)
"""As a cancellation does, they end a task and say nothing of what it has seen."""


@attrs.define(eq=False)
class OpenWorld:
    """An engine that was opened in a world, with all that watches it."""

    engine: Engine
    device: SimulatedDevice
    files: SimulatedFiles
    observer: Observer
    is_over: bool = False
    """Its block has been left."""
    left_running: int = 0
    """Steps that were not done when the engine had stopped; they stay in quarantine."""

    def note_what_runs_at_the_stop(self) -> None:
        """Count at the very stop: a moment later such a step may be done."""
        core = self.engine.core
        stop = core.stop

        def stop_and_count(*, join_timeout_s: float) -> AuditReport:
            is_first = core.audit is None
            report = stop(join_timeout_s=join_timeout_s)
            if is_first:
                self.left_running = self.device.running
            return report

        setattr(core, "stop", stop_and_count)  # noqa: B010  of this engine, not of its class


@final
class World:
    """What a scenario is given.

    A scenario is an async function of one world. It opens engines with :meth:`open`, starts tasks
    with :meth:`start`, draws what it likes with :meth:`draw`, and sleeps with ``anyio.sleep``.
    Whatever it raises is the failure of the run.

    Attributes:
        seen: how often which interesting thing has happened.
        faults: what goes wrong, and when; nothing until a scenario says so.
    """

    def __init__(
        self, decisions: Decisions, strategy: Strategy, log: list[tuple[object, ...]] | None
    ) -> None:
        self.seen: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.opened: list[OpenWorld] = []
        self.jobs: list[Job] = []
        self.holders: list[Job] = []
        self.log = log
        self._lives = 0
        self._decisions = decisions
        self._strategy = strategy
        self._plan = decisions.track("plan")
        self._tasks = decisions.track("tasks")
        self._mail = decisions.track("mail")
        self.timeline: Timeline
        self.faults = Faults(self, decisions.track("faults"))

    # For scenarios

    def draw(self, count: int) -> int:
        """A number below ``count``; 0 is what a failing run is shrunk towards."""
        return self._plan.draw(count)

    def track(self, name: str) -> Track:
        """A track of decisions of one's own: cutting another one does not shift it."""
        return self._decisions.track(name)

    def now(self) -> float:
        """Seconds of virtual time."""
        return self.timeline.now()

    def start(
        self, name: str, work: Callable[[], Awaitable[object]], *, holds_engine: bool = False
    ) -> Job:
        """Start a task outside of every task group, where faults may kill it.

        What it raises is a failure of the run, unless it is an error of the kernel's public tree.

        Args:
            name: as faults and failures name it.
            work: what it does.
            holds_engine: its end ends an engine, so only a fault of kind ``end`` may kill it.
        """

        async def contained() -> None:
            passes = (*_MEANT_FOR_TASKS, anyio.get_cancelled_exc_class())
            try:
                await work()
            except BaseException as raised:  # a task of asyncio's would keep it to itself
                errors = _leaves(raised)
                for error in errors:
                    if isinstance(error, TenureError):
                        self.saw_error(error)
                    elif not isinstance(error, passes):
                        self.fail("caller", f"{name} saw {error!r}")
                if any(isinstance(error, passes) for error in errors):
                    raise

        job = self.timeline.start(name, contained)
        self.jobs.append(job)
        if holds_engine:
            self.holders.append(job)
        return job

    @asynccontextmanager
    async def open(
        self, config: EngineConfig | None = None, *, model: str = "fake"
    ) -> AsyncGenerator[Engine]:
        """Open an engine on a device whose steps take virtual time.

        Args:
            config: as for :meth:`Engine.open`; a small engine by default.
            model: what the device plays: ``fake`` (hybrid), ``fake-recurrent``, ``fake-attention``.
        """
        opened = open_inner(model)
        track = self._decisions.track
        device = SimulatedDevice(opened.device, self, track("device"), track("transfers"))
        chat = SimulatedChat(self, self._decisions.track("chat"))
        files = SimulatedFiles(self, track("disk"))
        environment = Environment(
            clock=self.now,
            choose=self._choose,
            deliver=device.deliver,
            random=self._random,
            run_blocking=_at_once,
        )
        async with Engine.open(
            config or _small(model),
            device=OpenedDevice(device=device, tokenizer=opened.tokenizer, chat=chat),
            logger=None if self.log is None else _Logger(self.log),
            environment=environment,
            session_files=files,
        ) as engine:
            entry = OpenWorld(engine, device, files, Observer(self, engine.core))
            entry.note_what_runs_at_the_stop()
            self.opened.append(entry)
            try:
                yield engine
            finally:
                entry.is_over = True

    def fail(self, kind: str, message: str) -> None:
        """Note a failure; the first of a run is the one that counts."""
        self.failures.append(Failure(kind, message))
        if self.log is not None:
            self.log.append(("failure", kind, message))

    def saw_error(self, error: BaseException) -> None:
        """A caller got an error of the public tree."""
        self.seen[type(error).__name__] += 1
        if self.log is not None:
            self.log.append(("caller saw", repr(error)))

    # For the loop

    def choose_task(self, keys: Any) -> int:
        """Place of the task that runs next."""
        return self._tasks.decide(keys, self._strategy.task)

    def on_step(self, task: int) -> None:
        """One step of a task, or one callback, is about to run."""
        if self.log is not None:
            self.log.append(("step", task))
        self.faults.on_step()

    def _random(self, count: int) -> bytes:
        self._lives += 1
        return self._lives.to_bytes(count, "big")

    def _choose(self, count: int) -> int:
        return self._mail.decide(range(count), self._strategy.mail)


async def _at_once(work: Callable[[], T], /) -> T:
    """There are no threads in a simulation, and nothing takes time that isn't drawn."""
    await anyio.lowlevel.checkpoint()
    return work()


def _small(model: str) -> EngineConfig:
    """An engine with little to build, and less to share."""
    return EngineConfig(
        model=model,
        device="fake",
        num_slots=None if model == "fake-attention" else 4,
        num_pages=None if model == "fake-recurrent" else 32,
        page_size=4,
        max_model_len=128,
        max_num_seqs=4,
        max_num_batched_tokens=12,
    )


class _Logger:
    """A structlog logger as far as a probe needs one; without what the engine's id is in."""

    def __init__(self, log: list[tuple[object, ...]]) -> None:
        self._log = log

    def info(self, event: str, **fields: object) -> None:
        for name in ("engine", "after", "check"):
            fields.pop(name, None)
        self._log.append(("event", event, fields))


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for inner in group.exceptions for leaf in _leaves(inner)]
