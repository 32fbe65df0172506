"""``python -m tests.results [NAME...] [--stale] [--list]``: make long runs, keep their results."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.results.record import FOLDER, RunFailed, make, read, write
from tests.results.run import Run, troubles
from tests.results.table import RUNS


def main(
    arguments: Sequence[str] | None = None,
    runs: Sequence[Run] = RUNS,
    folder: Path = FOLDER,
) -> int:
    """Make the runs that were asked for; exit with 1 if one gave no result to keep."""
    parser = argparse.ArgumentParser(prog="python -m tests.results", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="make these runs")
    parser.add_argument(
        "--stale", action="store_true", help="make those whose result is missing or old"
    )
    parser.add_argument("--list", action="store_true", help="say how each result stands")
    options = parser.parse_args(arguments)
    known = {run.name: run for run in runs}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no run {', '.join(unknown)}; known are {', '.join(known)}")
    if options.list:
        for run in runs:
            _say(f"{run.name:12} {_standing(run, folder)}")
        return 0
    chosen = [known[name] for name in options.names]
    if options.stale:
        chosen += [run for run in runs if run not in chosen and _is_stale(run, folder)]
    elif not chosen:
        parser.error("name a run, or give --stale or --list")
    failed = [_make(run, folder) for run in chosen]
    return int(any(failed))


def _is_stale(run: Run, folder: Path) -> bool:
    return run.is_expected and bool(troubles(run, read(run, folder)))


def _standing(run: Run, folder: Path) -> str:
    result = read(run, folder)
    if result is None:
        return troubles(run, None)[0] if run.is_expected else "not made yet"
    found = troubles(run, result)
    return "; ".join(found) if found else f"holds, of {result['date']}, {result['seconds']} s"


def _make(run: Run, folder: Path) -> bool:
    """True when it has failed."""
    _say(f"{run.name}: {run.command}")
    try:
        path = write(run, make(run), folder)
    except RunFailed as error:
        _say(f"{run.name} FAILED: {error}")
        return True
    _say(f"{run.name}: kept in {path.name}")
    return False


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
