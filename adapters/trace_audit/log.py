"""Reads a JSON-lines log, one line at a time, and replays each engine's events apart."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from adapters.trace_audit.event import Event
from adapters.trace_audit.replay import Replay
from adapters.trace_audit.report import EngineAudit, TraceAudit
from adapters.trace_audit.seal import COVERED

__all__ = ["audit_file", "audit_lines", "decode"]


def audit_file(path: Path) -> TraceAudit:
    """Replay a log file.

    Raises:
        OSError: the file can't be read.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        return audit_lines(lines)


def audit_lines(lines: Iterable[str]) -> TraceAudit:
    """Replay a log; whatever isn't an event of a ledger passes by."""
    replays: dict[str, Replay] = {}
    finished: list[EngineAudit] = []
    total = skipped = 0
    for line in lines:
        total += 1
        event = decode(line)
        if event is None:
            skipped += 1
            continue
        if event.name not in COVERED and "check" not in event.fields:
            continue
        engine = str(event.fields.get("engine", ""))
        if engine in replays and replays[engine].begins_anew(event):
            # Logs are appended to: the same name again is another ledger, from its first event.
            finished.append(replays.pop(engine).finish())
        if engine not in replays:
            replays[engine] = Replay(engine)
        replays[engine].feed(event)
    verdicts = [(replay, replay.finish()) for replay in replays.values()]
    # Of an engine without a ledger there is nothing to say, unless its events were tampered with.
    finished.extend(each for replay, each in verdicts if replay.saw_ledger or each.num_problems)
    return TraceAudit(engines=tuple(finished), lines=total, skipped_lines=skipped)


def decode(line: str) -> Event | None:
    """Read one line; None when it is no JSON object with an event's name."""
    try:
        fields: object = json.loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    known = cast("dict[str, object]", fields)
    name = known.get("event")
    return Event(name, known) if isinstance(name, str) else None
