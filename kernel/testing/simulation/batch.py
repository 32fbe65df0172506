"""Many seeds: run them, count what was seen, keep the tapes of those that fail, and shrink them."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import attrs

from kernel.testing.simulation.runner import MAX_STEPS, Outcome, Scenario, run_seed, run_twice
from kernel.testing.simulation.scenario import kernel_scenario
from kernel.testing.simulation.shrink import shrink
from kernel.testing.simulation.strategies import StrategyName, mixed_strategy
from kernel.testing.simulation.tape import Backend, Failure, Tape

__all__ = ["Batch", "FailedSeed", "Settings", "simulate"]

_COLLECTED_EACH = 50

MUST_BE_SEEN = (
    *("refused: a first turn", "refused: a later turn", "SessionBusy", "QueueFull"),
    *("PromptTooLong", "TooManySessions", "TooLate", "SessionClosed", "RequestAborted"),
    *("cancel in flight", "close in flight", "preemptions", "preempted, then cancelled"),
    *("interrupt in flight", "interrupt while nothing runs", "late interrupt"),
    *("give-up", "give-up refused", "absorbed in a phase of its own", "fork"),
    *("QueueTimeout", "TurnTimeout", "StallTimeout", "left by a timeout"),
    *("native cancel", "clock jump", "kill", "crash planted", "told of a death"),
    *("a template writes", "a template refuses", "a template panics", "SamplingError"),
    *(
        "step slow",
        "step spoils a row",
        "step fails",
        "step hangs",
        "step is lost",
        "quarantine",
        "DeviceLost",
    ),
    *("death of a session", "restart of the scheduler", "restart of the gpu-pool"),
    *("crash of a session", "crash of a scheduler", "crash of a gpu-pool", "EngineClosed"),
    *("a park", "a park landed", "no room: a park", "a state comes back from host memory"),
    *("a preempted turn goes to host memory", "transfer fails", "transfer hangs"),
    *("back to a mark", "rewind", "fork of a running session", "CheckpointNotFound"),
    *("an image is loaded", "a store is full", "a store hangs", "StoreError"),
    *("death of a store", "restart of the store", "a row without its oldest pages"),
    "asked to go for one that waits",
    *("cached tokens", "cache published", "cache evictions"),
    *("ended: length", "ended: stop", "ended: interrupt"),
)
"""In 500 seeds and more of the kernel's own scenario; a run that sees nothing proves nothing."""


@attrs.frozen(kw_only=True)
class Settings:
    """How seeds are run."""

    strategy: StrategyName | Literal["mixed"] = "mixed"
    """``mixed``: all in turn, by the seed."""
    backend: Backend = "asyncio"
    twice_in: int = 50
    """One seed in so many is run twice and must give the same log; 0: none."""
    tapes: Path | None = None
    """Where the tapes of failing seeds are written; ``None``: nowhere."""
    shrinks: int = 3
    """How many failures of a kind are shrunk."""
    until_failure: bool = False
    max_steps: int = MAX_STEPS


@attrs.frozen(kw_only=True)
class FailedSeed:
    """A seed that failed, and its plainest run."""

    seed: int
    strategy: StrategyName
    failure: Failure
    tape: Tape
    """As it failed."""
    shrunk: Tape | None = None
    path: Path | None = None
    """Of the shrunk tape, or of the tape; the other one lies beside it."""


@attrs.define
class Batch:
    """What came of many seeds."""

    seeds: int = 0
    failures: list[FailedSeed] = attrs.field(factory=list[FailedSeed])
    sometimes: Counter[str] = attrs.field(factory=Counter[str])
    """How often which interesting thing has happened."""
    seconds: float = 0.0

    @property
    def unseen(self) -> list[str]:
        """What a large batch of the kernel's scenario must have seen, and this one has not."""
        return [name for name in MUST_BE_SEEN if not self.sometimes[name]]

    @property
    def seeds_per_second(self) -> float:
        return self.seeds / self.seconds if self.seconds else 0.0

    def add(self, other: "Batch") -> None:
        """Put another batch to this one; the time is not added."""
        self.seeds += other.seeds
        self.failures += other.failures
        self.sometimes += other.sometimes

    def check(self) -> None:
        """Raise an AssertionError that names the first seed that failed."""
        if self.failures:
            first = self.failures[0]
            where = "" if first.path is None else f"; replay {first.path}"
            raise AssertionError(f"seed {first.seed} ({first.strategy}): {first.failure}{where}")


def simulate(
    scenario: Scenario = kernel_scenario,
    seeds: Iterable[int] = range(1, 101),
    settings: Settings | None = None,
    *,
    on_seed: Callable[[Batch], object] = lambda _: None,
) -> Batch:
    """Run a scenario on many seeds, each in a world of its own.

    Args:
        scenario: an async function of one :class:`World`; the kernel's own by default.
        seeds: each is a run.
        settings: order of tasks, event loop, what is kept.
        on_seed: called after each seed, for a progress bar.
    """
    settings = settings or Settings()
    batch = Batch()
    begun = time.perf_counter()
    for seed in seeds:
        outcome = _run(scenario, seed, settings)
        batch.seeds += 1
        batch.sometimes += outcome.seen
        if outcome.failure is not None:
            alike = sum(old.failure.kind == outcome.failure.kind for old in batch.failures)
            shrinks = alike < settings.shrinks and not settings.until_failure
            batch.failures.append(_keep(scenario, outcome, settings, shrinks=shrinks))
        batch.seconds = time.perf_counter() - begun
        on_seed(batch)
        if settings.until_failure and batch.failures:
            break
        if not batch.seeds % _COLLECTED_EACH:
            gc.collect()
    return batch


def _run(scenario: Scenario, seed: int, settings: Settings) -> Outcome:
    strategy = mixed_strategy(seed) if settings.strategy == "mixed" else settings.strategy
    is_sampled = settings.twice_in > 0 and seed % settings.twice_in == 0
    run = run_twice if is_sampled else run_seed
    return run(
        seed,
        strategy,
        backend=settings.backend,
        scenario=scenario,
        max_steps=settings.max_steps,
    )


def _keep(scenario: Scenario, outcome: Outcome, settings: Settings, *, shrinks: bool) -> FailedSeed:
    tape, failure = outcome.tape, outcome.failure
    assert failure is not None
    path = _save(tape, settings, "")
    shrunk: Tape | None = None
    if shrinks:
        shrunk = shrink(outcome, scenario, max_steps=settings.max_steps).tape
        path = _save(shrunk, settings, ".shrunk")
    return FailedSeed(
        seed=tape.seed,
        strategy=tape.strategy,
        failure=failure,
        tape=tape,
        shrunk=shrunk,
        path=path,
    )


def _save(tape: Tape, settings: Settings, mark: str) -> Path | None:
    if settings.tapes is None:
        return None
    settings.tapes.mkdir(parents=True, exist_ok=True)
    path = settings.tapes / f"seed-{tape.seed}-{tape.strategy}-{tape.backend}{mark}.json"
    tape.save(path)
    return path


def spans(first: int, last: int, count: int) -> Iterator[range]:
    """The seeds ``first`` to ``last`` in parts of at most ``count``."""
    for start in range(first, last + 1, count):
        yield range(start, min(start + count, last + 1))
