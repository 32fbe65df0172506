"""``python -m tests.lint.corpus --json``: fetch the libraries, check them, look findings up.

Needs the network, for pip. Fails on a finding that nobody has classed, on more than 5 % false
ones, and on any finding without a configuration.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import attrs

from tests.lint.corpus import CLASSES, LIBRARIES, Measured, classified, measure
from tests.lint.output import print_json, print_line, print_progress

MOST_FALSE = 0.05


def main() -> int:
    """Measure all libraries and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.lint.corpus", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cache", type=Path, help="keep what pip fetched in this folder")
    parser.add_argument("--only", help="one library")
    arguments = parser.parse_args()
    known = classified()
    with tempfile.TemporaryDirectory(prefix="tenure-corpus-") as name:
        folder: Path = arguments.cache or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        measured: list[Measured] = []
        for library in LIBRARIES:
            if arguments.only in (None, library.name):
                print_progress(f"{library.name} {library.version} ...")
                measured.append(measure(library, folder, known))
    verdicts = Counter[str]()
    for one in measured:
        verdicts.update(one.verdicts)
    findings = sum(len(one.findings) for one in measured)
    share = verdicts["false"] / findings if findings else 0.0
    total = {
        "findings": findings,
        "unclassified": sum(len(one.unclassified) for one in measured),
        **{verdict: verdicts[verdict] for verdict in CLASSES},
        "false_share": round(share, 4),
        "consuming_calls": sum(one.consuming_calls for one in measured),
        "lines": sum(one.lines for one in measured),
        "findings_without_configuration": sum(
            one.findings_without_configuration for one in measured
        ),
    }
    if arguments.json:
        libraries = [attrs.asdict(one) for one in measured]
        print_json({**total, "libraries": libraries})
    else:
        for key, value in total.items():
            print_line(f"{key}: {value}")
        for one in measured:
            for finding in one.unclassified:
                print_line(f"{finding['file']}:{finding['line']} {finding['message']}")
    is_bad = total["unclassified"] or total["findings_without_configuration"]
    return int(bool(is_bad) or share > MOST_FALSE)


if __name__ == "__main__":
    sys.exit(main())
