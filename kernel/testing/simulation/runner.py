"""One run of a scenario, fresh or off a tape; and the same run twice, which must be the same."""

import gc
import hashlib
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import attrs

from kernel.testing.simulation.backends import Scenario, drive
from kernel.testing.simulation.decisions import Decisions
from kernel.testing.simulation.scenario import kernel_scenario
from kernel.testing.simulation.strategies import StrategyName, make_strategy
from kernel.testing.simulation.tape import Backend, Failure, Tape
from kernel.testing.simulation.verdict import judge
from kernel.testing.simulation.world import World

__all__ = ["MAX_STEPS", "Outcome", "Scenario", "replay", "replay_twice", "run_seed", "run_twice"]

MAX_STEPS = 60_000

Log = list[tuple[object, ...]]


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of a run."""

    tape: Tape
    seen: Counter[str]
    failures: tuple[Failure, ...]
    log: Log | None = None
    """Events of the kernel, steps of the loop, and faults; when it was asked for."""

    @property
    def failure(self) -> Failure | None:
        """The first thing that went wrong."""
        return self.failures[0] if self.failures else None

    @property
    def digest(self) -> str:
        """Equal for two runs with the same log."""
        return hashlib.blake2b(repr(self.log).encode(), digest_size=8).hexdigest()


def run_seed(
    seed: int,
    strategy: StrategyName = "random",
    *,
    backend: Backend = "asyncio",
    scenario: Scenario = kernel_scenario,
    keeps_log: bool = False,
    max_steps: int = MAX_STEPS,
) -> Outcome:
    """Run a scenario with decisions drawn afresh."""
    tape = Tape(seed=seed, strategy=strategy, backend=backend, scenario=_name(scenario))
    return _run(tape, Decisions(seed), scenario, keeps_log=keeps_log, max_steps=max_steps)


def replay(
    tape: Tape,
    scenario: Scenario = kernel_scenario,
    *,
    keeps_log: bool = False,
    max_steps: int = MAX_STEPS,
) -> Outcome:
    """Run a scenario with the decisions of a tape."""
    decisions = Decisions(tape.seed, tape.tracks)
    return _run(tape, decisions, scenario, keeps_log=keeps_log, max_steps=max_steps)


def run_twice(
    seed: int,
    strategy: StrategyName = "random",
    *,
    backend: Backend = "asyncio",
    scenario: Scenario = kernel_scenario,
    max_steps: int = MAX_STEPS,
) -> Outcome:
    """Run a seed, then its tape; another log is a failure of its own kind."""
    first = run_seed(
        seed, strategy, backend=backend, scenario=scenario, keeps_log=True, max_steps=max_steps
    )
    return _again(first, scenario, max_steps)


def replay_twice(
    tape: Tape, scenario: Scenario = kernel_scenario, *, max_steps: int = MAX_STEPS
) -> Outcome:
    """Replay a tape, and what came of it once more."""
    first = replay(tape, scenario, keeps_log=True, max_steps=max_steps)
    return _again(first, scenario, max_steps)


def _again(first: Outcome, scenario: Scenario, max_steps: int) -> Outcome:
    second = replay(first.tape, scenario, keeps_log=True, max_steps=max_steps)
    if first.log == second.log:
        return first
    failure = Failure("determinism", _first_difference(first.log or [], second.log or []))
    tape = attrs.evolve(first.tape, failure=failure)
    return attrs.evolve(first, tape=tape, failures=(failure, *first.failures))


def _run(
    tape: Tape, decisions: Decisions, scenario: Scenario, *, keeps_log: bool, max_steps: int
) -> Outcome:
    log: Log | None = [] if keeps_log else None
    world = World(decisions, make_strategy(tape.strategy, tape.seed), log)
    with _collector_off():
        drive(tape.backend, world, scenario, max_steps=max_steps)
        judge(world)
    failures = tuple(world.failures)
    failure = failures[0] if failures else None
    return Outcome(
        tape=attrs.evolve(tape, tracks=decisions.made, failure=failure),
        seen=world.seen,
        failures=failures,
        log=log,
    )


@contextmanager
def _collector_off() -> Generator[None]:
    """A finalizer that runs when the collector pleases would be a decision of nobody's."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _first_difference(first: Sequence[object], second: Sequence[object]) -> str:
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return f"entry {place} is {one} and then {other}"
    return f"{len(first)} entries and then {len(second)}"


def _name(scenario: Scenario) -> str:
    if scenario is kernel_scenario:
        return "kernel"
    return f"{scenario.__module__}:{getattr(scenario, '__qualname__', scenario)}"
