"""``python -m tests.lint.golden --update``: store what the move checker finds now, to be read."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.lint.golden import as_stored, programs
from tests.lint.output import print_progress


def main() -> int:
    """Store or compare every golden program's findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.lint.golden", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the golden files")
    update: bool = parser.parse_args().update
    differ: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tenure-golden-") as name:
        for program in programs("wrong"):
            found = json.dumps(as_stored(program.check(Path(name))), indent=1) + "\n"
            golden = program.golden
            if golden.exists() and golden.read_text(encoding="utf-8") == found:
                continue
            differ.append(program.name)
            if update:
                golden.write_text(found, encoding="utf-8")
        differ += [p.name for p in programs("right") if p.check(Path(name))]
    for one in differ:
        print_progress(one)
    return int(bool(differ) and not update)


if __name__ == "__main__":
    sys.exit(main())
