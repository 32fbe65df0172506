"""``python -m ownership.lint``: the move checker's command line."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ownership.lint.check import check_paths
from ownership.lint.config import Config, ConfigError
from ownership.lint.findings import Report

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check paths; 0: clean, 1: findings, 2: something could not be read."""
    parser = argparse.ArgumentParser(
        prog="python -m ownership.lint",
        description="Check that every handle is moved once on every path (rules OWN001 to OWN008).",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files and folders")
    parser.add_argument(
        "--config", type=Path, help="a TOML file; default: the pyproject.toml above"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--statistics", action="store_true", help="count findings by rule")
    options = parser.parse_args(arguments)
    missing = [path for path in options.paths if not path.exists()]
    if missing:
        parser.error(f"no such file or folder: {', '.join(map(str, missing))}")
    try:
        if options.config is not None:
            config = Config.load(options.config)
        else:
            config = Config.find(options.paths[0].absolute())
    except ConfigError as error:
        parser.error(str(error))
    report = check_paths(options.paths, config)
    if options.json:
        sys.stdout.write(json.dumps(report.as_dict(), indent=2) + "\n")
    else:
        _write(report, statistics=options.statistics)
    if report.unreadable:
        return 2
    return 1 if report.findings else 0


def _write(report: Report, *, statistics: bool) -> None:
    for finding in report.findings:
        sys.stdout.write(finding.render() + "\n\n")
    if statistics:
        for rule, count in report.statistics.items():
            sys.stdout.write(f"{rule} {count}\n")
    for path, why in report.unreadable:
        sys.stderr.write(f"{path}: {why}\n")
    count = len(report.findings)
    sys.stderr.write(f"{count} findings in {report.files} files ({report.lines} lines)\n")


if __name__ == "__main__":
    sys.exit(main())
