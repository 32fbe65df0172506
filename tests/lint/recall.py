"""Recall: how many planted move faults the move checker reports.

``python -m tests.lint.recall --seeds 200 --json``. A fault counts as reported when there is a
finding in the function that it was planted in; the sources without it have none.
"""

import argparse
import ast
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from ownership.lint import Config, Finding, check_source
from tests.lint.inject import Fault, faults
from tests.lint.output import print_json, print_line, print_progress
from tests.lint.sites import ROOT, sources

__all__ = ["WHY_MISSED", "Recall", "measure"]

_GENERIC = "the message is of any type M here: only its callers know that it carries a handle"
_LEASE = "a lease is a name of what the device has: who leaves it alone has not lost it"
WHY_MISSED: Mapping[str, str] = {
    "kernel/actors/dispatcher.py": _GENERIC,
    "kernel/actors/mailbox.py": _GENERIC,
    "kernel/devices/gpu_pool.py": _LEASE,
    "kernel/devices/recovery.py": _LEASE,
    "kernel/scheduling/parking.py": _LEASE,
    "kernel/scheduling/scheduler.py": _LEASE,
    "tests/ownership/machine.py": _LEASE,
    "tests/ownership/test_twins.py": "a handle is named copy there, so copy.copy is its method",
}
"""By file: why a fault in it can go unseen. Anything else that is missed has no excuse."""


@attrs.frozen
class Recall:
    """What became of the planted faults."""

    injected: int
    reported: int
    by_the_expected_rule: int
    kinds: Mapping[str, int]
    files: int
    findings_without_faults: int
    """Has to be 0: what is found anyway says nothing about a fault."""
    missed: list[dict[str, object]]
    seconds: float

    @property
    def recall(self) -> float:
        """The share that was reported."""
        return self.reported / self.injected if self.injected else 0.0

    def as_json(self) -> dict[str, object]:
        """All of it, for a program to read."""
        return {**attrs.asdict(self), "recall": round(self.recall, 4)}


def measure(planted: Iterable[Fault]) -> Recall:
    """Let the move checker read each file with its fault."""
    started = time.perf_counter()
    config = Config.load(ROOT / "pyproject.toml")
    kinds: Counter[str] = Counter()
    files: dict[str, int] = {}
    texts = sources()
    reported = by_rule = 0
    missed: list[dict[str, object]] = []
    for fault in planted:
        kinds[fault.kind] += 1
        if fault.path not in files:
            place = str(ROOT / fault.path)
            files[fault.path] = len(check_source(texts[fault.path], place, config))
        found = _inside(fault, check_source(fault.text, str(ROOT / fault.path), config))
        reported += bool(found)
        by_rule += any(finding.rule in fault.rules for finding in found)
        if not found:
            missed.append(_told(fault))
        if kinds.total() % 20 == 0:
            print_progress(f"{kinds.total()} planted, {len(missed)} missed")
    seconds = round(time.perf_counter() - started, 2)
    anyway = sum(files.values())
    return Recall(kinds.total(), reported, by_rule, kinds, len(files), anyway, missed, seconds)


def _inside(fault: Fault, findings: Iterable[Finding]) -> list[Finding]:
    """The findings in the function with the fault."""
    name = fault.function.rpartition(".")[2]
    spans = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(ast.parse(fault.text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    return [found for found in findings if any(found.line in span for span in spans)]


def _told(fault: Fault) -> dict[str, object]:
    told: dict[str, object] = attrs.asdict(fault)
    del told["text"]
    return {**told, "reason": WHY_MISSED.get(fault.path, "")}


def main() -> int:
    """Plant, check, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.lint.recall", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many faults")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = measure(faults(arguments.seeds, first_seed=arguments.first))
    if arguments.json:
        print_json(result.as_json())
    else:
        print_line(f"{result.reported} of {result.injected} reported ({result.recall:.1%})")
        for one in result.missed:
            print_line(f"missed: {one['kind']} at {one['path']}:{one['line']}")
    return int(result.recall < 0.95 or result.findings_without_faults > 0)


if __name__ == "__main__":
    sys.exit(main())
