"""A pytest plugin that writes how each test ended, for a runner in another process."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

__all__ = ["OPTION"]

OPTION = "--outcomes"
NO_EVIDENCE = (ImportError, SyntaxError)
"""A test that fails like this shows nothing of the system."""


class _Notes:
    """How each test ended; ``passed``, or what it failed with."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._notes: dict[str, dict[str, str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and report.failed:
            error = call.excinfo
            kind = "broken" if error.errisinstance(NO_EVIDENCE) else "failed"
            self._notes[item.nodeid] = {"outcome": kind, "why": error.exconly()[:500]}
        elif report.when == "call":
            self._notes.setdefault(item.nodeid, {"outcome": report.outcome, "why": ""})
        return report

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._notes), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, help="where to write how each test ended, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(OPTION)
    if path is not None:
        config.pluginmanager.register(_Notes(Path(path)))
