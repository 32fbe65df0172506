"""``python -m tests.mutants.general``: every small change to ``ownership/``; what do tests miss?

The changes are cosmic-ray's: comparisons, numbers, conditions and loops turned into their
neighbours. Each is run against the tests of the ownership layer in a fork of this process, without
the random machines, so that what kills a change is a test that says what is wrong.
``docs/mutation.md`` says of each survivor why nobody can see it.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence

from tests.mutants.changes import Change, changes_of, ownership_files, unchanged
from tests.mutants.forked import fates
from tests.mutants.mutant import ROOT

_ARGUMENTS = (
    *("-x", "-q", "-p", "no:cacheprovider", "--timeout", "10", "-m", "not slow"),
    # What was imported to be changed can't be rewritten for better messages any more.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
    "--ignore=tests/ownership/test_machine.py",
    "--ignore=tests/ownership/test_state_machine.py",
    "tests/ownership",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them all; 0 when it ran, whatever survived, and 2 when the tests fail anyway."""
    options = _parser().parse_args(arguments)
    os.chdir(ROOT)
    # Compiled files are kept for the forks, and not in the tree.
    sys.dont_write_bytecode = False
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tenure-mutation-") as compiled:
        sys.pycache_prefix = compiled
        paths = [path for path in ownership_files() if path.name in (options.only or path.name)]
        controls = [unchanged(path) for path in paths]
        for control, fate in fates(
            controls, _ARGUMENTS, jobs=options.jobs, timeout_s=options.timeout_s
        ):
            if fate != "survived":
                _note(f"the tests fail with {control.path} as it is: {fate}")
                return 2
        changes = [change for path in paths for change in changes_of(path)]
        survivors: list[Change] = []
        counts: Counter[str] = Counter()
        for change, fate in fates(
            changes, _ARGUMENTS, jobs=options.jobs, timeout_s=options.timeout_s
        ):
            counts[fate] += 1
            if fate == "survived":
                survivors.append(change)
                _note(change.name)
            if counts.total() % 50 == 0:
                _note(f"{counts.total()} of {len(changes)}: {dict(counts)}")
    names = sorted(change.name for change in survivors)
    result = {
        "changes": len(changes),
        "killed": counts["killed"],
        "timeout": counts["timeout"],
        "survived": counts["survived"],
        "seconds": round(time.perf_counter() - begun, 1),
        "survivors": names,
    }
    if options.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
    else:
        lines = [*names, *(f"{key} {result[key]}" for key in ("killed", "timeout", "survived"))]
        sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _note(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.general", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="endings.py, say")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument("--timeout-s", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
