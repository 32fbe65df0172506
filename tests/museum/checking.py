"""Plants the bug of each scenario and sees that the scenario fails."""

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs

from tests.museum.register import Scenario
from tests.museum.running import Outcome, run_tests
from tests.mutants.catalogue import all_mutants
from tests.mutants.mutant import ROOT, Mutant, mutated_copy

__all__ = ["TYPES", "Checked", "check"]

TYPES = "types:"
"""Begins a bug that can't be written down: a wrong program that no type checker lets through."""


@attrs.frozen
class Checked:
    """A scenario, and whether its bug was caught."""

    scenario: Scenario
    caught: bool
    why: str
    """What the scenario said to the bug."""


def check(scenarios: Iterable[Scenario], *, say: Callable[[str], object]) -> list[Checked]:
    """Plant each bug once, and run the scenarios that name it.

    Args:
        scenarios: which to check.
        say: told of each bug when it is done.
    """
    by_bug: dict[str, list[Scenario]] = defaultdict(list)
    for scenario in scenarios:
        by_bug[scenario.exhibit.bug].append(scenario)
    programs = [bug for bug in by_bug if bug.startswith(TYPES)]
    mutants = [bug for bug in by_bug if bug not in programs]
    known = all_mutants()
    checked: list[Checked] = []
    with _snapshot() as clean, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        plant = partial(_plant, clean, known)
        found = pool.map(plant, mutants, [by_bug[bug] for bug in mutants])
        for bug, results in zip(mutants, found, strict=True):
            missed = [result.scenario.exhibit.id for result in results if not result.caught]
            say(f"{bug}: " + (f"missed by {', '.join(missed)}" if missed else "caught"))
            checked += results
    checked += _check_programs([(bug, by_bug[bug]) for bug in programs])
    return sorted(checked, key=lambda result: result.scenario.exhibit.id)


@contextmanager
def _snapshot() -> Generator[Path]:
    """A copy of the tree as it is now, without what tools keep beside it."""
    with tempfile.TemporaryDirectory(prefix="tenure-museum-") as name:
        for part in ("ownership", "kernel", "adapters", "tests", "pyproject.toml"):
            (Path(name) / part).symlink_to(ROOT / part)
        with mutated_copy(source=Path(name)) as copy:
            yield copy


def _plant(
    clean: Path, known: Mapping[str, Mutant], bug: str, scenarios: Sequence[Scenario]
) -> list[Checked]:
    try:
        with mutated_copy(known[bug], source=clean) as root:
            # A stopped engine that hangs is a caught bug too, and need not take long to tell.
            found = run_tests(
                root,
                [scenario.node for scenario in scenarios],
                options=["--timeout=8"],
                is_quiet=True,
            )
    except (KeyError, ValueError) as error:
        return [Checked(scenario, caught=False, why=repr(error)) for scenario in scenarios]
    return [_checked(scenario, found[scenario.node]) for scenario in scenarios]


def _checked(scenario: Scenario, outcome: Outcome) -> Checked:
    why = "; ".join(sorted({*outcome.failures, *outcome.broken})) or "it passed"
    return Checked(scenario, outcome.was_caught, why)


def _check_programs(bugs: Sequence[tuple[str, Sequence[Scenario]]]) -> list[Checked]:
    """See that both type checkers reject the programs; one run of each, over all of them."""
    if not bugs:
        return []
    tests = [f"test_{checker}_rejects_exactly_the_marked_lines" for checker in ("mypy", "pyright")]
    names = {bug: bug.removeprefix(TYPES) for bug, _ in bugs}
    nodes = {
        name: [f"tests/types/test_programs.py::{test}[{name}]" for test in tests]
        for name in names.values()
    }
    found = run_tests(ROOT, [node for each in nodes.values() for node in each])
    checked: list[Checked] = []
    for bug, scenarios in bugs:
        rejected = all(found[node].has_passed for node in nodes[names[bug]])
        why = "rejected by mypy and by pyright" if rejected else "a type checker lets it through"
        checked += [Checked(scenario, rejected, why) for scenario in scenarios]
    return checked
