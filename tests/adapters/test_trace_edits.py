"""The audit names whose event was edited, for each of a thousand random edits of real logs."""

import json
import random

import pytest

from adapters.trace_audit import audit_lines, seal
from adapters.trace_audit.event import Event
from tests.adapters.trace_edits import KINDS, Drafts, judge, run_edits, source_logs
from tests.adapters.trace_logs import names_in
from tests.docs.markdown import ROOT

EVERY_EVENT_OF_THE_LEDGER = {
    name for name in seal.COVERED if name.startswith(("ledger.", "claim.", "lease."))
}


def test_the_logs_are_sound_and_hold_every_event_of_a_ledger() -> None:
    """An edit of a log that was wrong before, or that lacks half of the events, proves little."""
    logs = source_logs(20)

    assert [audit_lines(lines).engines[0].problems for lines in logs] == [()] * 20
    assert {name for lines in logs for name in names_in(lines)} >= EVERY_EVENT_OF_THE_LEDGER


def test_the_audit_knows_every_field_that_is_written() -> None:
    """A sealed field that the audit doesn't know would make each event look changed."""
    events = [json.loads(line) for lines in source_logs(6) for line in lines]

    wrong = {
        (event["event"], field)
        for event in events
        for field in event.keys() ^ (seal.COVERED[event["event"]] | {"event", "check"})
    }
    assert wrong == set()


@pytest.mark.timeout(90)  # seconds on a quiet core, a minute beside a type checker
def test_each_of_a_thousand_edits_is_named() -> None:
    """The first finding names the claim, lease, turn or actor of the edited event; no other."""
    outcome = run_edits(1000)

    assert outcome.missed == []
    assert outcome.named == 1000
    assert min(outcome.kinds[kind] for kind in KINDS) > 150


def test_without_seals_the_replay_still_finds_nine_edits_of_ten() -> None:
    """A bare observer's log: what the events say of one another, without a checksum."""
    outcome = run_edits(400, sealed=False)

    assert outcome.found > 0.9 * outcome.edits


def test_an_audit_that_believes_every_seal_misses_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the guard: the thousand edits do need the checksum."""

    def believe(event: Event, check: int) -> bool:
        return True

    monkeypatch.setattr(seal, "_is_as_written", believe)

    assert run_edits(100).missed


def test_the_raw_line_on_the_events_page_is_one_that_was_written() -> None:
    """Whoever writes an audit of his own will try his checksum on it."""
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith('{"engine"')]
    event = json.loads(line)
    sealed = seal.Seal.of(Event(event["event"], event))

    assert sealed is not None
    assert sealed.is_intact
    assert (sealed.number, sealed.before) == (16, "turn req-2")


def test_events_that_follow_an_edit_are_replayed_all_the_same() -> None:
    """A doubled event is passed over and a moved one put back: nothing else is found wrong."""
    lines = source_logs(2)[1]
    drafts = Drafts(lines, random.Random(1))

    for edit in (drafts.doubled(), drafts.doubled(), drafts.doubled()):
        (engine,) = audit_lines(edit.lines).engines
        assert judge(edit) in edit.about
        assert engine.num_problems == 1, edit


def test_a_log_whose_head_was_cut_off_says_how_much_is_missing() -> None:
    """Rotated logs are common; what can't be proven is said, and nothing is blamed on a claim."""
    lines = source_logs(2)[1]

    first = audit_lines(lines[20:]).engines[0].problems[0]

    assert first.kind == "gap"
    assert "20 events are missing" in first.text


def test_fields_that_an_application_adds_break_no_seal() -> None:
    """Its processors stamp a level, a host, a trace id."""
    lines = source_logs(2)[1]
    stamped = [json.dumps({"level": "info", **json.loads(line), "trace_id": 9}) for line in lines]

    assert audit_lines(stamped).conserved


def test_an_event_of_a_later_version_is_passed_over() -> None:
    """An old audit reads a new log: what it doesn't know it can't judge."""
    lines = source_logs(2)[1]
    place = next(n for n, line in enumerate(lines) if '"turn.started"' in line)
    event = json.loads(lines[place])
    lines[place] = json.dumps({**event, "event": "tier.moved", "bytes": 7})

    assert audit_lines(lines).conserved


@pytest.mark.parametrize("line", [1, 2, 60, 100])
def test_an_event_that_was_moved_before_the_first_is_named(line: int) -> None:
    """It must not be taken for all that is left of another ledger's log."""
    lines = source_logs(2)[1]
    moved = [lines[line], *lines[:line], *lines[line + 1 :]]
    (engine,) = audit_lines(moved).engines

    assert engine.problems[0].about == seal.subject_of(decoded(lines[line]))
    assert engine.num_problems == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("engine", "other"), ("event", "claim.drained"), ("event", "turn.ended"), ("conserved", None)],
)
def test_a_changed_last_event_is_named_without_one_behind_it(field: str, value: object) -> None:
    """No event behind it says what it was about, and its own name may be what was changed."""
    lines = source_logs(2)[1]
    last = json.loads(lines[-1])
    assert last["event"] == "engine.closed"
    changed = [*lines[:-1], json.dumps({**last, field: value})]

    problems = [found for engine in audit_lines(changed).engines for found in engine.problems]
    assert problems[0].about == "engine"


def test_a_ledger_that_begins_after_a_log_without_its_head_is_another() -> None:
    """A rotated log, and a process that was restarted under the same name."""
    first, second = source_logs(2)
    renamed = [line.replace('"ledger-0"', '"engine-1"') for line in first]
    verdicts = audit_lines([*second[40:], *renamed]).engines

    assert len(verdicts) == 2


def decoded(line: str) -> Event:
    event = json.loads(line)
    return Event(event["event"], event)
