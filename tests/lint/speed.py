"""Speed: lines a second on code without marks, and on this repository.

``python -m tests.lint.speed --json``. Code without marks is what is installed beside us; targets
are 30,000 lines a second there and 8,000 here. Seconds are of the processor, so that a busy
machine measures the same.
"""

import argparse
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ownership.lint import Config, check_paths
from tests.lint.output import print_json, print_line
from tests.lint.sites import ROOT

__all__ = ["measure_repository", "measure_unmarked"]

_REPOSITORY = ("ownership", "kernel", "adapters", "tests")
_NOT_LIBRARIES = ("pip", "ownership", "kernel", "adapters")
TARGETS: Mapping[str, int] = {"unmarked": 30_000, "repository": 8_000}


def _libraries(lines: int) -> Iterator[Path]:
    """Whole installed packages, the smallest names first, until there are so many lines."""
    total = 0
    for package in sorted(Path(sysconfig.get_path("purelib")).iterdir()):
        if total >= lines or not (package / "__init__.py").exists():
            continue
        if package.name in _NOT_LIBRARIES:
            continue
        total += sum(file.read_bytes().count(b"\n") for file in package.rglob("*.py"))
        yield package


def _timed(paths: Sequence[Path], config: Config) -> dict[str, object]:
    started = time.process_time()
    report = check_paths(paths, config)
    seconds = time.process_time() - started
    return {
        "files": report.files,
        "lines": report.lines,
        "findings": len(report.findings),
        "unreadable": len(report.unreadable),
        "seconds": round(seconds, 2),
        "lines_per_second": round(report.lines / seconds),
    }


def measure_unmarked(lines: int) -> dict[str, object]:
    """Check installed packages, until there are so many lines."""
    return _timed(list(_libraries(lines)), Config())


def measure_repository() -> dict[str, object]:
    """Check this repository as ``make lint`` does."""
    paths = [ROOT / name for name in _REPOSITORY]
    return _timed(paths, Config.load(ROOT / "pyproject.toml"))


def main() -> int:
    """Measure and print; fail below a target."""
    parser = argparse.ArgumentParser(prog="python -m tests.lint.speed", description=__doc__)
    parser.add_argument("--lines", type=int, default=300_000, help="unmarked lines, at least")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    measured = {
        "unmarked": measure_unmarked(arguments.lines),
        "repository": measure_repository(),
    }
    if arguments.json:
        print_json({**measured, "targets": dict(TARGETS)})
    else:
        for name, figures in measured.items():
            print_line(f"{name}: {figures['lines_per_second']} lines a second")
    speeds = {name: int(str(figures["lines_per_second"])) for name, figures in measured.items()}
    return int(any(speeds[name] < target for name, target in TARGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
