"""The ladder that a planted bug has to get past: each layer is a command on a copy of the tree."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = ["LADDER", "Layer", "Outcome", "narrowed"]

_PYTEST = ("pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line")
_OWNERSHIP = ("ownership/",)
_CORE = ("ownership/", "kernel/", "adapters/fake_")
_ALL = ("ownership/", "kernel/", "adapters/")


@attrs.frozen
class Outcome:
    """What a layer said of one copy."""

    found: bool
    seconds: float
    said: str
    """The test that failed, or the last line of the output."""
    trace_length: int | None = None


@attrs.frozen
class Layer:
    """One kind of check.

    Attributes:
        name: as in the table.
        sees: beginnings of the paths in which it can see a bug; it isn't asked about others.
        module: arguments of ``python -m``; ``{path}`` stands for the changed file.
        timeout_s: a copy that takes longer hangs, where the clean one ends: it is caught as well.
        length_of: reads the length of a counter-example from the output.
    """

    name: str
    sees: tuple[str, ...]
    module: tuple[str, ...]
    timeout_s: float
    length_of: Callable[[str], int | None] = lambda _output: None

    def can_see(self, path: str) -> bool:
        """Whether it runs the code of that file at all."""
        return path.startswith(self.sees)

    def folders(self) -> list[str]:
        """The folders of tests that it runs."""
        return [f"{part}/" for part in self.module if part.startswith("tests/")]

    def run(self, root: Path, *paths: str) -> Outcome:
        """Judge the copy under ``root``, in which these files were changed."""
        command = [sys.executable, "-m"]
        for part in self.module:
            command += paths if part == "{path}" else [part]
        begun = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=root,
            env=_environment(root),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Outcome(True, self.timeout_s, f"hangs for {self.timeout_s:g} s")
        seconds = time.perf_counter() - begun
        found = process.returncode != 0
        return Outcome(found, seconds, _gist(output), self.length_of(output) if found else None)


def _environment(root: Path) -> dict[str, str]:
    """This process's own, with the copy first; compiled files are kept, for the copies of it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(root)}


def _gist(output: str) -> str:
    """The test that failed, the property that was violated, or the last line."""
    failure = _first_failure(output)
    if failure:
        return f"{failure.get('property', failure.get('kind'))}: {failure['message']}"[:300]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    failed = [line for line in lines if re.match(r"(FAILED|ERROR) tests/", line)]
    return (failed or lines or [""])[-1][:300]


def _first_failure(output: str) -> Mapping[str, Any]:
    """The first counter-example of a tool that prints JSON; empty when there is none."""
    try:
        failure: Mapping[str, Any] = json.loads(output)["failures"][0]
    except (ValueError, LookupError, TypeError):
        return {}
    return failure


def _length(key: str) -> Callable[[str], int | None]:
    """Reads how long the first counter-example is."""
    return lambda output: _first_failure(output).get(key)


# Where a bug shows at all it shows early: the search is breadth first.
_EXPLORE = (
    *("kernel.testing", "explore", "--world", "ci", "--until-failure", "--json"),
    *("--max-states", "1000"),
)
_SIMULATE = ("kernel.testing", "simulate", "--seeds", "1..100", "--until-failure", "--json")


def narrowed(layers: Sequence[Layer], tests: Sequence[str]) -> list[Layer]:
    """These layers with some of their tests alone; one that has none of them is left out."""
    narrow: list[Layer] = []
    for layer in layers:
        folders = tuple(layer.folders())
        own = [test for test in tests if folders and test.startswith(folders)]
        if own:
            narrow.append(attrs.evolve(layer, module=(*_PYTEST, *own)))
    return narrow


_DEVICE = ("adapters/torch_device/", "adapters/ragged/", "adapters/image_check.py")

_STORE = ("adapters/session_store/",)

LADDER: Final = (
    Layer("types", _ALL, ("mypy", "--no-error-summary", "{path}"), 300),
    Layer("move checker", _ALL, ("ownership.lint", "{path}"), 120),
    Layer("ledger", _OWNERSHIP, (*_PYTEST, "tests/ownership"), 200),
    Layer("explorer", _CORE, _EXPLORE, 300, _length("length")),
    Layer("simulation", _CORE, _SIMULATE, 120, _length("steps")),
    Layer("museum", _CORE, (*_PYTEST, "tests/museum"), 200),
    Layer("unit tests", _CORE, (*_PYTEST, "tests/kernel"), 200),
    Layer("scenarios", _CORE, (*_PYTEST, "tests/scenarios", "tests/cancellation"), 300),
    Layer("prefix cache", _CORE, (*_PYTEST, "tests/prefix_cache"), 200),
    Layer("pressure", _CORE, (*_PYTEST, "tests/pressure"), 200),
    Layer("durability", _CORE, (*_PYTEST, "tests/durable"), 200),
    Layer("store", _STORE, (*_PYTEST, "tests/store"), 200),
    Layer("device", _DEVICE, (*_PYTEST, "tests/torch_device", "tests/ragged"), 200),
)
"""In order of cost."""
