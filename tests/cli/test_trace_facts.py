"""Logs without seals: each field of an event is compared with what the log has said before."""

import json
from typing import Any

import pytest

from adapters.trace_audit import EngineAudit, audit_lines
from tests.cli.log_writer import LogWriter, two_turns


def whole() -> list[dict[str, Any]]:
    """Two turns of a session, with the fields that a ledger writes and the writer leaves out."""
    log = LogWriter()
    two_turns(log)
    log.close(1, 2, [13, 12, 10], runs=[101, 100])
    columns = {"batch": 0, "session": 0, "cache": 0, "draining": 0, "quarantined_slots": 0}
    log.write("ledger.audited", free_slots=4, free_pages=8, conserved=True, **columns)
    return [json.loads(line) for line in log.lines]


def audited(events: list[dict[str, Any]]) -> EngineAudit:
    (engine,) = audit_lines(map(json.dumps, events)).engines
    return engine


def the(events: list[dict[str, Any]], name: str, nth: int = 0) -> dict[str, Any]:
    return [event for event in events if event["event"] == name][nth]


def test_the_log_is_sound_before_it_is_changed() -> None:
    """Else each of the changes below would prove nothing."""
    assert audited(whole()).problems == ()


@pytest.mark.parametrize(
    ("name", "nth", "field", "value", "about"),
    [
        ("claim.reserved", 0, "generation", 2, "claim 0"),
        ("claim.reserved", 0, "owner", "session", "claim 0"),
        ("claim.reserved", 1, "base_name", None, "claim 1"),
        ("claim.reserved", 1, "base_name", "session-1@2", "claim 1"),
        ("lease.launched", 0, "slots", [2], "lease 0"),
        ("lease.launched", 1, "lease", 7, "lease 7"),
        ("lease.landed", 1, "step", 5, "lease 1"),
        ("claim.committed", 0, "generation", 3, "claim 0"),
        ("claim.committed", 0, "slot", 0, "claim 0"),
        ("claim.committed", 0, "turn", "turn-7", "claim 0"),
        ("claim.committed", 1, "owner", "cache", "claim 1"),
        ("claim.committed", 1, "version", 1, "claim 1"),
        ("claim.committed", 1, "version", 3, "claim 1"),
        ("claim.committed", 1, "from", "session-2", "claim 1"),
        ("claim.committed", 1, "replaces", 1, "claim 1"),
        ("claim.closed", 0, "turn", "turn-1", "claim 0"),
        ("claim.closed", 0, "position", 7, "claim 0"),
        ("claim.closed", 1, "generation", 1, "claim 1"),
        ("claim.closed", 1, "slot", 3, "claim 1"),
        ("ledger.audited", 0, "session", 1, "ledger"),
        ("ledger.audited", 0, "conserved", False, "ledger"),
    ],
)
def test_a_fact_that_differs_from_what_was_said_is_a_mismatch(
    name: str, nth: int, field: str, value: object, about: str
) -> None:
    """None of these changes what comes back, so conservation alone would pass them all."""
    events = whole()
    the(events, name, nth)[field] = value

    found = audited(events).problems

    assert found, f"{field} of {name} is believed whatever it says"
    assert found[0].kind == "mismatch"
    assert found[0].about == about


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frozen", [11]),
        ("frozen", []),
        ("run", None),
        ("parent", 7),
        ("claim", 1),
        ("position", 3),
    ],
)
def test_a_row_of_a_landing_is_compared_as_well(field: str, value: object) -> None:
    """It says which pages were frozen, in which run, and where the claim is now."""
    events = whole()
    the(events, "lease.landed")["rows"][0][field] = value

    assert audited(events).problems[0].about == "lease 0"


def test_a_failed_landing_moves_nothing() -> None:
    """Position and pages of its claims stay as they were."""
    log = LogWriter()
    log.reserve(0, 1, [10, 11])
    log.step(0, 0, 3)
    log.launch(1, 0)
    log.land(1, 0, 5, outcome="failed")

    assert [(found.kind, found.about) for found in log.audit().problems] == [
        ("mismatch", "lease 1")
    ]


def test_a_run_has_a_number_of_its_own() -> None:
    """A number that was given before would name other pages."""
    log = LogWriter()
    log.reserve(0, 1, [10, 11])
    log.reserve(1, 2, [12])
    log.step(0, 0, 4, frozen=[10], run=100)
    log.step(1, 1, 4, frozen=[12], run=100)

    assert log.audit().problems[0].about == "lease 1"


def test_quarantine_is_told_once() -> None:
    """The second telling is an event too many."""
    log = LogWriter()
    log.reserve(0, 1, [10])
    log.launch(0, 0)
    log.write("lease.quarantined", lease=0, step=0, claims=[0])
    log.write("lease.quarantined", lease=0, step=0, claims=[0])

    assert [found.kind for found in log.audit().problems] == ["order"]


def test_what_a_commit_replaces_ends_in_the_next_event() -> None:
    """Whatever else stands there, the replaced claim is the one to name."""
    log = LogWriter()
    two_turns(log)
    lines = [line for line in log.lines if "claim.closed" not in line]
    log.lines = lines
    log.seq -= 1
    log.reserve(2, 3)

    found = audit_lines(log.lines).engines[0].problems[0]
    assert (found.kind, found.about) == ("mismatch", "claim 0")
