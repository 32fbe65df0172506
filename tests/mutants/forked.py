"""Runs tests in forks of one process, each with the changed text of one module."""

import importlib
import importlib.abc
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Literal, NoReturn, final

import attrs
import pytest

from tests.mutants.changes import Change

__all__ = ["Fate", "fates", "plant"]

Fate = Literal["killed", "survived", "timeout"]


@final
class _Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module by its changed text; all others are found as always."""

    def __init__(self, change: Change) -> None:
        self._module = change.module
        self._is_package = change.path.endswith("/__init__.py")
        self._path = change.path
        self._code: CodeType = compile(change.source, change.path, "exec")

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        spec = ModuleSpec(name, self, origin=self._path, is_package=self._is_package)
        if self._is_package:
            spec.submodule_search_locations = [os.path.dirname(os.path.abspath(self._path))]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def plant(change: Change) -> None:
    """Import the changed module here and now, before pytest has a finder of its own."""
    sys.meta_path.insert(0, _Planted(change))
    importlib.import_module(change.module)


@attrs.define(eq=False)
class _Running:
    change: Change
    begun: float


def fates(
    changes: Sequence[Change], arguments: Sequence[str], *, jobs: int, timeout_s: float
) -> Iterator[tuple[Change, Fate]]:
    """What becomes of each change under the tests, as they end."""
    waiting = list(reversed(changes))
    running: dict[int, _Running] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            change = waiting.pop()
            running[_fork(change, arguments)] = _Running(change, time.monotonic())
        for pid, one in list(running.items()):
            fate = _look(pid, one, timeout_s)
            if fate is not None:
                del running[pid]
                yield one.change, fate
        time.sleep(0.005)


def _look(pid: int, one: _Running, timeout_s: float) -> Fate | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        return "survived" if status == 0 else "killed"
    if time.monotonic() - one.begun < timeout_s:
        return None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def _fork(change: Change, arguments: Sequence[str]) -> int:
    pid = os.fork()
    if pid == 0:
        _run(change, arguments)
    return pid


def _run(change: Change, arguments: Sequence[str]) -> NoReturn:
    code = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        plant(change)
        code = int(pytest.main(list(arguments)))
    finally:
        os._exit(code)
