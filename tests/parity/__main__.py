"""``python -m tests.parity``: every family and shape against transformers, as a table."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.parity import table
from tests.parity.cases import CASES, Case
from tests.parity.result import CaseResult, compare


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 0 when every tolerance holds."""
    parser = _parser()
    options = parser.parse_args(arguments)
    chosen = [case for case in CASES if not options.family or case.family in options.family]
    if options.write and len(chosen) < len(CASES):
        parser.error("--write needs all families: leave --family out")
    torch.set_num_threads(1)  # tensors are tiny: two threads would only wait for each other
    with tempfile.TemporaryDirectory() as folder:
        results = [
            _compare(case, Path(folder), f"{number}/{len(chosen)}", options.worlds)
            for number, case in enumerate(chosen, 1)
        ]
    figures = table.figures(results)
    if options.write:
        table.PAGE.write_text(table.page_with(table.table(figures["results"])), encoding="utf-8")
    if options.json:
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    else:
        sys.stdout.write(table.table(figures["results"]) + "\n")
    for fault in figures["faults"]:
        _note(fault)
    return int(bool(figures["faults"]))


def _compare(case: Case, folder: Path, number: str, worlds: int) -> CaseResult:
    begun = time.perf_counter()
    result = compare(case, folder, worlds=worlds)
    off = "  ".join(
        f"{dtype} {max(errors.values()):.0e}" for dtype, errors in result.errors.items()
    )
    _note(f"{number:>7}  {case.key:36} {off}  {time.perf_counter() - begun:5.1f} s")
    return result


def _note(line: str) -> None:
    """Progress, as it goes; stdout is for the result."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    known = sorted({case.family for case in CASES})
    parser.add_argument("--family", nargs="+", default=[], choices=known, metavar="FAMILY")
    parser.add_argument("--worlds", type=int, default=2, help="random worlds for each shape")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--write", action="store_true", help="write the table in docs/models.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
