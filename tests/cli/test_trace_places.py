"""Logs of claims in several places: each fact that places add is checked by the replay."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from adapters.cli import main
from adapters.trace_audit import EngineAudit, audit_lines
from ownership import Place
from tests.ownership.support import Recorder, open_desk

Events = list[dict[str, Any]]


def story() -> Events:
    """A state of two runs parks, comes back for a turn, is forked, read out, and slides."""
    recorder = Recorder()
    desk = open_desk(slots=6, host=(4, 16), observer=recorder)
    state = desk.committed(4)  # claim 0
    state = desk.committed(5, desk.name(), replaces=state)  # claim 1
    fork = desk.reserve(0, desk.name())  # claim 2 keeps the history alive
    desk.step([fork], 0)
    parked = desk.parked(state)  # claim 3
    turn = desk.working(1, desk.ledger.view.name_of(parked))  # claim 4 shares it
    copy = desk.copied(turn)  # claim 5: a preempted turn
    reader = desk.copied(desk.ledger.view.name_of(parked), Place.FILE)  # claim 6
    cut = desk.copied(desk.ledger.view.name_of(parked), Place.DEVICE, first_page=1)  # claim 7
    desk.ledger.audit()
    for claim in (turn, copy, reader, cut, fork):
        desk.batch.rollback(claim)
    desk.session.close(parked)
    desk.ledger.audit()
    return [{"event": name, "engine": "e", **fields} for name, fields in recorder.events]


def audited(events: Events) -> EngineAudit:
    (engine,) = audit_lines(json.dumps(event) for event in events).engines
    return engine


def event_of(events: Events, name: str, claim: int) -> dict[str, Any]:
    """The event of that name of a claim; a landing of it."""
    for event in events:
        rows: list[dict[str, Any]] = event.get("rows", [event])
        if event["event"] == name and any(row.get("claim") == claim for row in rows):
            return event
    raise LookupError(name, claim)


def test_the_story_is_sound_before_it_is_changed() -> None:
    """Else each of the changes below would prove nothing."""
    found = audited(story())

    assert found.problems == ()
    assert (found.free_slots, found.free_pages) == (6, 16)
    assert (found.host_free_slots, found.host_free_pages) == (4, 16)


@pytest.mark.parametrize(
    ("claim", "field", "value", "text"),
    [
        (3, "place", "device", "claim 3 is in device memory, its slot 6 is not"),
        (3, "slot", 4, "claim 3 is in host memory, its slot 4 is not"),
        (3, "pages", [16, 17, 9], "claim 3 is in host memory, its page 9 is not"),
        (3, "run", 0, "claim 3 differs from its base 1"),
        (3, "first_page", 1, "claim 3 at 9 has 3 frozen pages"),
        (4, "place", "host", "claim 4 is in host memory, its slot 1 is not"),
        (4, "run", None, "claim 4 differs from its base 3"),
        (4, "run", 2, "claim 4 differs from its base 3"),
        (4, "position", 8, "claim 4 differs from its base 3"),
        (5, "base_name", "session:a@2", "claim 5 has a base without a name, or a name without"),
        (6, "place", "host", "claim 6 at 9 has 0 frozen pages"),
        (6, "pages", [30], "claim 6 is in file memory, its page 30 is not"),
        (6, "slot", 9, "claim 6 is in file memory, its slot 9 is not"),
        (7, "first_page", 0, "claim 7 differs from its base 3"),
    ],
)
def test_a_claim_is_where_its_slot_and_pages_are(
    claim: int, field: str, value: object, text: str
) -> None:
    """And has in common with its base what is there, in its own place."""
    events = story()
    event_of(events, "claim.reserved", claim)[field] = value

    found = audited(events).problems
    assert found[0].about in (f"claim {claim}", event_about(events, claim))
    assert text in "\n".join(problem.text for problem in found)


def event_about(events: Events, claim: int) -> str:
    """Whose event the landing of a claim is."""
    return f"lease {event_of(events, 'lease.landed', claim)['lease']}"


def test_a_moved_state_keeps_its_name() -> None:
    """A change of place is no new version."""
    events = story()
    event_of(events, "claim.committed", 3)["version"] = 3

    found = audited(events).problems[0]
    assert (found.kind, found.about) == ("mismatch", "claim 3")
    assert found.text == "claim 3 is session:a@2, moved, and has another name"


def test_a_state_is_replaced_by_what_started_from_it() -> None:
    """Commit is compare-and-swap: a copy that came too late replaces nothing."""
    events = story()
    event_of(events, "claim.reserved", 1).update(base=None, base_name=None, position=0, run=None)

    texts = [problem.text for problem in audited(events).problems]
    assert "claim 1 replaces session:a@1, but started from None" in texts


def test_what_was_copied_is_frozen_run_by_run() -> None:
    """One run in place of two is no copy of them, and nobody's twin."""
    events = story()
    (row,) = event_of(events, "lease.landed", 3)["rows"]
    (earlier,) = row.pop("earlier")
    row.update(frozen=[*earlier["frozen"], *row["frozen"]], parent=None)

    found = audited(events).problems[0]
    assert (found.kind, found.about) == ("run count", event_about(events, 3))
    assert found.text == "claim 3 was copied from 1 in other runs"


def test_runs_of_a_copy_are_the_claims_own_first_pages() -> None:
    """Each of them."""
    events = story()
    (row,) = event_of(events, "lease.landed", 3)["rows"]
    row["earlier"][0]["frozen"] = [row["frozen"][0]]

    assert audited(events).problems[0].text == "claim 3 froze [17], not its first pages"


def test_a_failed_copy_has_frozen_nothing() -> None:
    """Whatever its row says."""
    events = story()
    event_of(events, "lease.landed", 3)["outcome"] = "failed"

    assert audited(events).problems[0].about == event_about(events, 3)


def test_a_file_is_read_where_its_base_is_and_goes_no_further() -> None:
    """Its position is its base's, and nothing but a rollback follows."""
    events = story()
    (row,) = event_of(events, "lease.landed", 6)["rows"]
    row["position"] = 10
    texts = [problem.text for problem in audited(events).problems]
    assert texts[0] == "claim 6 is read out, and went to 10"

    events = story()
    event_of(events, "claim.rolled_back", 6)["event"] = "claim.committed"
    assert "claim.committed: claim 6 holds no valid state at rest" in [
        problem.text.partition(" of")[0] for problem in audited(events).problems
    ]


def test_a_working_claim_is_copied_while_it_rests() -> None:
    """Not in a lease, not failed, and not before it has landed."""
    events = story()
    landed = event_of(events, "lease.landed", 4)
    launched = events[events.index(landed) - 1]
    for event in (launched, landed):
        events.remove(event)

    texts = [problem.text for problem in audited(events).problems]
    assert "claim 5 starts from 4, which has no state to copy" in texts


@pytest.mark.parametrize("column", ["host_free_slots", "host_free_pages", "host_quarantined_slots"])
@pytest.mark.parametrize("change", [1, -1])
def test_the_ledgers_figures_of_host_memory_are_compared_too(column: str, change: int) -> None:
    """Fewer free ones than by the log have leaked."""
    events = story()
    audits = [event for event in events if event["event"] == "ledger.audited"]
    audits[0][column] += change

    found = audited(events)
    assert found.problems[0].about == "ledger"
    assert (found.leaked > 0) == (change < 0 and "free" in column)


def test_a_log_that_knows_of_no_places_is_read_as_of_the_device() -> None:
    """Logs of earlier releases have none of these fields."""
    recorder = Recorder()
    desk = open_desk(observer=recorder)
    state = desk.committed(9)
    desk.session.close(desk.committed(1, desk.name(), replaces=state))
    desk.ledger.audit()
    new = {"place", "first_page"}
    events = [
        {"event": name, "engine": "e"}
        | {field: fields[field] for field in fields if field not in new and "host" not in field}
        for name, fields in recorder.events
    ]

    found = audited(events)
    assert found.problems == ()
    assert (found.free_slots, found.host_free_slots, found.host_free_pages) == (4, 0, 0)


def test_the_verdict_tells_what_is_free_in_host_memory(tmp_path: Path) -> None:
    """Beside what is free on the device."""
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in story()), encoding="utf-8")
    result = CliRunner().invoke(main, ["trace", "audit", str(path)])

    assert result.exit_code == 0
    assert "6 slots and 16 pages free, 4 and 16 in host memory" in result.stdout
