"""Runs planted bugs up the ladder, each in a copy of its own, until a layer catches it."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import attrs

from tests.mutants.layers import Layer, narrowed
from tests.mutants.mutant import Mutant, mutated_copy

__all__ = ["BrokenLayerError", "Verdict", "check_clean", "judge_all"]


class BrokenLayerError(Exception):
    """A layer fails on the unmutated tree, so that its verdicts say nothing."""


@attrs.frozen
class Verdict:
    """What became of one mutant."""

    mutant: str
    caught_by: tuple[str, ...]
    """Layers that caught it, the cheapest first; only one unless all were asked."""
    said: str
    trace_length: int | None
    seconds: float


def check_clean(
    layers: Sequence[Layer], mutants: Sequence[Mutant], root: Path, *, jobs: int
) -> dict[str, float]:
    """Run each layer on the unmutated copy; returns how long each took.

    Raises:
        BrokenLayerError: one of them finds something, or a mutant names a test that isn't there.
    """
    paths = sorted({mutant.path for mutant in mutants})
    near = sorted({test for mutant in mutants for test in mutant.near})
    layers = [*layers, *narrowed(layers, near)]
    with ThreadPoolExecutor(jobs) as pool:
        runs = {
            layer.name: pool.submit(layer.run, root, *seen)
            for layer in layers
            if (seen := [path for path in paths if layer.can_see(path)])
        }
    for name, run in runs.items():
        if run.result().found:
            raise BrokenLayerError(f"{name} fails on the unmutated tree: {run.result().said}")
    return {name: run.result().seconds for name, run in runs.items()}


def judge_all(
    layers: Sequence[Layer],
    mutants: Sequence[Mutant],
    root: Path,
    *,
    jobs: int,
    all_layers: bool,
) -> Iterator[Verdict]:
    """Judge each mutant of the copy under ``root``, in the order in which they are done."""
    with ThreadPoolExecutor(jobs) as pool:
        todo = [pool.submit(_judge, layers, mutant, root, all_layers) for mutant in mutants]
        for done in as_completed(todo):
            yield done.result()


def _judge(layers: Sequence[Layer], mutant: Mutant, root: Path, all_layers: bool) -> Verdict:
    caught_by: list[str] = []
    said, length, seconds = "", None, 0.0
    with mutated_copy(mutant, source=root) as copy:
        for layer in (*narrowed(layers, mutant.near), *layers):
            if not layer.can_see(mutant.path) or layer.name in caught_by:
                continue
            outcome = layer.run(copy, mutant.path)
            seconds += outcome.seconds
            if outcome.found:
                caught_by.append(layer.name)
                said = said or outcome.said
                length = outcome.trace_length if length is None else length
                if not all_layers:
                    break
    return Verdict(mutant.id, tuple(caught_by), said, length, seconds)
