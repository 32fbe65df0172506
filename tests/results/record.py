"""Makes a run and keeps its result: the figures, and what they are figures of."""

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from tests.results.digest import ROOT
from tests.results.run import Run, troubles

__all__ = ["FOLDER", "RunFailed", "make", "read", "write"]

FOLDER = ROOT / "docs" / "results"
MAX_LISTED = 40
"""A longer list of figures is kept as its length."""


class RunFailed(Exception):
    """A run gave no result that could be kept."""


def read(run: Run, folder: Path = FOLDER) -> dict[str, Any] | None:
    """The kept result of a run; None when there is none."""
    path = folder / f"{run.name}.json"
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def write(run: Run, result: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Keep a result."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run.name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return path


def make(run: Run) -> dict[str, Any]:
    """Make a run, and judge it.

    Raises:
        RunFailed: the command failed, printed no figures, or these break a condition; or the
            code was changed while it ran.
    """
    code, start = run.code(), time.perf_counter()
    # Its progress, on stderr, is for whoever watches.
    done = subprocess.run(
        _here(run.command), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    seconds = round(time.perf_counter() - start, 1)
    if done.returncode:
        raise RunFailed(f"{run.command} exited with {done.returncode}:\n{done.stdout[-2000:]}")
    result = {
        "name": run.name,
        "command": run.command,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": _machine(),
        "seconds": seconds,
        "measures": list(run.measures),
        "code": code,
        "figures": _kept(_figures(done.stdout, run)),
    }
    if found := troubles(run, result):
        raise RunFailed("\n".join(found))
    return result


def _here(command: str) -> list[str]:
    """The command with the programs of this environment."""
    program, *arguments = shlex.split(command)
    if program == "python":
        return [sys.executable, *arguments]
    return [str(Path(sys.executable).parent / program), *arguments]


def _figures(printed: str, run: Run) -> dict[str, Any]:
    """The object that a command printed, alone or as its last line."""
    for text in (printed, printed.strip().rpartition("\n")[2]):
        try:
            figures: object = json.loads(text)
        except ValueError:
            continue
        if isinstance(figures, dict):
            return cast("dict[str, Any]", figures)
    raise RunFailed(f"{run.command} printed no JSON object:\n{printed[-2000:]}")


def _kept(value: Any) -> Any:
    """Figures without the long lists that they were counted from."""
    if isinstance(value, Mapping):
        return {str(key): _kept(each) for key, each in cast("Mapping[object, Any]", value).items()}
    if isinstance(value, list):
        items = cast("list[object]", value)
        is_short = len(items) <= MAX_LISTED and not any(isinstance(each, Mapping) for each in items)
        return items if is_short else f"{len(items)} items"
    return value


def _commit() -> str:
    """What was checked out; a result of code that is in no commit says so."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return f"{head} and changes" if _git("status", "--porcelain") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _machine() -> dict[str, object]:
    """Its shape, and nothing that names it."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpus": os.cpu_count(),
        "memory_gib": round(pages / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
