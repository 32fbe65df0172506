"""What the replay makes of real logs: cut off, appended to, mixed, and full of other things."""

from pathlib import Path

import pytest

from adapters.trace_audit import EngineAudit, audit_file, audit_lines
from tests.cli.log_writer import LogWriter, two_turns


def kinds(audit: EngineAudit) -> list[str]:
    return [problem.kind for problem in audit.problems]


def test_a_log_that_ends_while_the_engine_runs_names_what_is_owned_and_no_leak() -> None:
    """An operator may replay the log of a living engine."""
    log = LogWriter()
    two_turns(log)

    audit = log.audit()

    assert audit.conserved
    assert (audit.still_owned, audit.leaked) == (1, 0)
    assert (audit.free_slots, audit.free_pages) == (3, 5)


def test_a_missing_event_is_a_gap() -> None:
    """A log with holes proves nothing, so the audit may not call it conserved."""
    log = LogWriter()
    log.reserve(0, 1)
    log.seq += 1
    log.release("rolled_back", 0, 1)

    audit = log.audit()

    assert kinds(audit) == ["gap"]
    assert str(audit.problems[0]) == "seq 3: gap: expected event 2, found 3"


def test_engines_in_one_log_are_audited_apart() -> None:
    """Two engines in one process number their claims, slots and events each from the start."""
    one, two = LogWriter("engine-1"), LogWriter("engine-2")
    for log in (one, two):
        two_turns(log)
    mixed = [line for pair in zip(one.lines, two.lines, strict=True) for line in pair]

    audit = audit_lines(mixed)

    assert audit.conserved
    assert [engine.engine for engine in audit.engines] == ["engine-1", "engine-2"]
    assert audit.count("claim.committed") == 4


def test_a_log_that_was_appended_to_holds_one_ledger_after_another() -> None:
    """A restarted process writes to the same file under the same name."""
    first, second = LogWriter(), LogWriter()
    two_turns(first)
    two_turns(second)

    audit = audit_lines([*first.lines, *second.lines])

    assert audit.conserved
    assert len(audit.engines) == 2


def test_other_events_and_other_text_pass_by(tmp_path: Path) -> None:
    """The log is the application's: it holds what the application writes."""
    log = LogWriter()
    lines = [*log.lines, '{"event": "request.served", "seq": "x"}', "Traceback:", "[1, 2]", ""]
    path = tmp_path / "application.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    audit = audit_file(path)

    assert audit.conserved
    assert (audit.lines, audit.skipped_lines) == (5, 3)


@pytest.mark.parametrize("slot", ["1", True, 1.5, [1]])
def test_a_field_of_another_type_is_a_finding_and_no_crash(slot: object) -> None:
    """A replay that stops at the first odd line hides everything after it."""
    log = LogWriter()
    log.write("claim.reserved", claim=0, slot=slot, generation=1, position=0, pages=[], run=None)
    log.reserve(1, 2)

    audit = log.audit()

    assert kinds(audit) == ["malformed"]
    assert audit.still_owned == 1


def test_a_log_without_a_ledger_is_not_called_conserved() -> None:
    """An empty file is no proof."""
    assert not audit_lines(['{"event": "engine.opened"}']).conserved


def test_problems_are_counted_beyond_those_that_are_kept() -> None:
    """Memory stays bounded on a log that is wrong from end to end."""
    log = LogWriter()
    for claim in range(150):
        log.reserve(claim, 1)

    audit = log.audit()

    assert audit.num_problems == 149
    assert len(audit.problems) == 100
