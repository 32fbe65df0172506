"""The event log: JSON lines on disk, and structlog's global configuration left alone."""

import json
from collections.abc import Mapping
from pathlib import Path

import structlog

from adapters.logs import open_event_log


def test_each_event_is_one_json_line(tmp_path: Path) -> None:
    """The audit reads line by line, so an event may not span lines."""
    path = tmp_path / "events.jsonl"
    with open_event_log(path) as log:
        log.info("claim.reserved", claim=1, pages=[1, 2], turn="a\nb")
        log.info("claim.grown", claim=1)

    first, second = path.read_text(encoding="utf-8").splitlines()

    assert json.loads(first) == {
        "event": "claim.reserved",
        "claim": 1,
        "pages": [1, 2],
        "turn": "a\nb",
    }
    assert json.loads(second)["event"] == "claim.grown"


def test_an_event_is_on_disk_as_soon_as_it_was_written(tmp_path: Path) -> None:
    """The log of a killed process is the one that somebody wants to audit."""
    path = tmp_path / "events.jsonl"
    with open_event_log(path) as log:
        log.info("claim.reserved", claim=1)

        assert path.read_text(encoding="utf-8").endswith("}\n")


def test_the_log_is_appended_to(tmp_path: Path) -> None:
    """Opening a log never loses what it holds."""
    path = tmp_path / "events.jsonl"
    for claim in (1, 2):
        with open_event_log(path) as log:
            log.info("claim.reserved", claim=claim)

    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


def test_a_watcher_sees_each_event(tmp_path: Path) -> None:
    """The live view of the demo is fed from the events that the audit will read."""
    seen: list[tuple[str, object]] = []

    def watch(event: str, fields: Mapping[str, object]) -> None:
        seen.append((event, fields.get("claim")))

    with open_event_log(tmp_path / "events.jsonl", watch=watch) as log:
        log.info("claim.reserved", claim=1)

    assert seen == [("claim.reserved", 1)]


def test_structlog_stays_as_the_application_configured_it(tmp_path: Path) -> None:
    """A guest changes nothing of its host: not even the default configuration."""
    before = structlog.get_config()

    with open_event_log(tmp_path / "events.jsonl") as log:
        log.info("claim.reserved", claim=1)

    assert structlog.get_config() == before
    assert not structlog.is_configured()
