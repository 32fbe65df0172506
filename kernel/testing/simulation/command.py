"""``python -m kernel.testing simulate`` and ``... replay``."""

import argparse
import concurrent.futures
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import attrs

from kernel.testing.simulation.batch import Batch, Settings, simulate, spans
from kernel.testing.simulation.runner import Scenario, replay, replay_twice
from kernel.testing.simulation.scenario import kernel_scenario
from kernel.testing.simulation.story import tell
from kernel.testing.simulation.strategies import STRATEGIES
from kernel.testing.simulation.tape import Tape

__all__ = ["add_commands"]

_SEEDS_IN_A_PART = 100
_TAPES = Path(tempfile.gettempdir()) / "tenure-tapes"


class Commands(Protocol):
    """What ``add_subparsers`` gives."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser:  # noqa: A002
        """Add a command; the word is argparse's."""
        ...


def add_commands(commands: Commands) -> None:
    """Add ``simulate`` and ``replay`` to a command line; each sets ``run``."""
    batch = commands.add_parser("simulate", help="seeded random worlds on virtual time")
    batch.add_argument("--seeds", type=_seeds, default=range(1, 101), metavar="A..B")
    batch.add_argument("--strategy", choices=("mixed", *STRATEGIES), default="mixed")
    batch.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    batch.add_argument("--scenario", default="kernel", metavar="MODULE:FUNCTION")
    batch.add_argument("--jobs", type=int, default=1, help="processes")
    batch.add_argument("--twice-in", type=int, default=50, help="one seed in so many runs twice")
    batch.add_argument("--tapes", type=Path, default=_TAPES, help=f"of failures; {_TAPES}")
    batch.add_argument("--until-failure", action="store_true", help="stop at the first; no shrink")
    batch.add_argument("--no-shrink", action="store_true")
    batch.add_argument("--json", action="store_true", help="one object on stdout")
    batch.add_argument("--progress", action="store_true", help="a line now and then on stderr")
    batch.set_defaults(run=_simulate)
    again = commands.add_parser("replay", help="run a tape again and tell what happens")
    again.add_argument("tape", type=Path)
    again.add_argument("--json", action="store_true")
    again.set_defaults(run=_replay)


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last if dots else first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} is no range; use 1..2000")
    return seeds


def _find(name: str) -> Scenario:
    if name == "kernel":
        return kernel_scenario
    module, _, attribute = name.partition(":")
    found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return cast("Scenario", found)


def _simulate(given: argparse.Namespace) -> int:
    settings = Settings(
        strategy=given.strategy,
        backend=given.backend,
        twice_in=given.twice_in,
        tapes=given.tapes,
        shrinks=0 if given.no_shrink else 3,
        until_failure=given.until_failure,
    )
    begun = time.perf_counter()
    on_seed = _Progress(len(given.seeds), begun) if given.progress else _silent
    if given.jobs > 1:
        batch = _in_processes(given.scenario, given.seeds, settings, given.jobs, on_seed)
    else:
        batch = simulate(_find(given.scenario), given.seeds, settings, on_seed=on_seed)
    batch.seconds = time.perf_counter() - begun
    facts = _facts(batch)
    if given.scenario != "kernel":
        facts["unseen"] = []  # nobody has said what another one must have seen
    print(json.dumps(facts, indent=2) if given.json else _summary(batch))  # noqa: T201
    return int(bool(batch.failures))


def _in_processes(
    scenario: str, seeds: range, settings: Settings, jobs: int, on_part: Callable[[Batch], object]
) -> Batch:
    total = Batch()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        parts = spans(seeds.start, seeds.stop - 1, _SEEDS_IN_A_PART)
        futures = [pool.submit(_part, scenario, part, settings) for part in parts]
        for future in concurrent.futures.as_completed(futures):
            total.add(future.result())
            on_part(total)
            if settings.until_failure and total.failures:
                pool.shutdown(cancel_futures=True)
                break
    total.failures.sort(key=lambda failed: failed.seed)
    return total


def _part(scenario: str, seeds: range, settings: Settings) -> Batch:
    return simulate(_find(scenario), seeds, settings)


def _silent(_: Batch) -> None:
    """No progress."""


class _Progress:
    """One line on stderr, every few seconds."""

    def __init__(self, seeds: int, begun: float) -> None:
        self._seeds = seeds
        self._begun = begun
        self._next = begun + 2

    def __call__(self, batch: Batch) -> None:
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + 5
            rate = batch.seeds / (now - self._begun)
            done = f"{batch.seeds} of {self._seeds} seeds, {rate:.0f}/s"
            sys.stderr.write(f"{done}, {len(batch.failures)} failed\n")


def _facts(batch: Batch) -> dict[str, object]:
    return {
        "seeds": batch.seeds,
        "failed": len(batch.failures),
        "seconds": round(batch.seconds, 2),
        "seeds_per_second": round(batch.seeds_per_second, 1),
        "sometimes": dict(sorted(batch.sometimes.items())),
        "unseen": batch.unseen,
        "failures": [
            {
                "seed": failed.seed,
                "strategy": failed.strategy,
                "kind": failed.failure.kind,
                "message": failed.failure.message,
                "steps": (failed.shrunk or failed.tape).size,
                "tape": None if failed.path is None else str(failed.path),
            }
            for failed in batch.failures
        ],
    }


def _summary(batch: Batch) -> str:
    rate = f"{batch.seeds} seeds in {batch.seconds:.1f} s ({batch.seeds_per_second:.0f}/s)"
    lines = [f"{rate}, {len(batch.failures)} failed"]
    lines += [f"  {count:8}  {name}" for name, count in sorted(batch.sometimes.items())]
    for failed in batch.failures:
        lines.append(f"seed {failed.seed} ({failed.strategy}): {failed.failure}")
        if failed.path is not None:
            lines.append(f"  python -m kernel.testing replay {failed.path}")
    return "\n".join(lines)


def _replay(given: argparse.Namespace) -> int:
    tape = Tape.load(given.tape)
    scenario, expected = _find(tape.scenario), tape.failure
    if expected is not None and expected.kind == "determinism":
        outcome = replay_twice(tape, scenario)  # one run alone does not differ from itself
    else:
        outcome = replay(tape, scenario, keeps_log=True)
    if given.json:
        facts = {
            "seed": tape.seed,
            "failures": [attrs.asdict(failure) for failure in outcome.failures],
            "expected": None if expected is None else attrs.asdict(expected),
            "digest": outcome.digest,
        }
        print(json.dumps(facts, indent=2))  # noqa: T201
    else:
        for line in tell(outcome):
            print(line)  # noqa: T201
        if expected is not None and expected.kind not in {each.kind for each in outcome.failures}:
            print(f"the tape was made of another failure: {expected}")  # noqa: T201
    return int(outcome.failure is not None)
