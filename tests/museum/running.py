"""Runs scenarios with pytest in a process of their own, on this tree or on a copy of it."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.museum import outcomes

__all__ = ["Outcome", "run_tests"]

_STDERR: Final = 2
"""Its descriptor; ``sys.stderr`` may be one that a process can't be given."""


@attrs.frozen
class Outcome:
    """How a test ended over all its parameters."""

    passed: int = 0
    failures: tuple[str, ...] = ()
    """What it failed with, where it failed as a test can."""
    broken: tuple[str, ...] = ()
    """What it failed with, where that shows nothing: an import that failed, say."""

    @property
    def has_passed(self) -> bool:
        """It ran, and every time well."""
        return self.passed > 0 and not self.failures and not self.broken

    @property
    def was_caught(self) -> bool:
        """It failed, and each time as a test that has seen the bug."""
        return bool(self.failures) and not self.broken


def run_tests(
    root: Path,
    nodes: Sequence[str],
    *,
    options: Sequence[str] = (),
    is_quiet: bool = False,
    limit_s: float = 300,
) -> dict[str, Outcome]:
    """Run tests under ``root``; the outcome of each, parameters taken together.

    Args:
        root: the tree; it goes first on the path of imports.
        nodes: the tests, from the root.
        options: more of pytest's.
        is_quiet: show nothing of pytest's own output, which goes to stderr otherwise.
        limit_s: seconds after which the run is ended; nothing is known of its tests then, so none
            of them has passed, and none has caught a bug.
    """
    with tempfile.TemporaryDirectory(prefix="tenure-museum-") as folder:
        path = Path(folder) / "outcomes.json"
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
        command += ["-p", outcomes.__name__, outcomes.OPTION, str(path), *options, *nodes]
        environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        why = "it never ran"
        try:
            subprocess.run(
                command,
                cwd=root,
                env=environment,
                stdout=subprocess.DEVNULL if is_quiet else _STDERR,
                stderr=subprocess.DEVNULL,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            why = f"the run was ended after {limit_s:g} s"
        notes: dict[str, dict[str, str]] = {}
        if path.exists():
            notes = json.loads(path.read_text(encoding="utf-8"))
    return {node: _outcome(node, notes, why) for node in nodes}


def _outcome(node: str, notes: dict[str, dict[str, str]], why_not: str) -> Outcome:
    ours = [note for name, note in notes.items() if node in (name, name.partition("[")[0])]
    return Outcome(
        passed=sum(note["outcome"] == "passed" for note in ours),
        failures=tuple(note["why"] for note in ours if note["outcome"] == "failed"),
        broken=tuple(note["why"] for note in ours if note["outcome"] == "broken")
        or (() if ours else (why_not,)),
    )
