"""Who owned which slot after each event of a log: what a drawing of it has to show.

Written out once more, and naively, so that a drawing is not compared with itself.
"""

import json
from typing import Any

__all__ = ["owners_by_event"]

ENDS = {
    "claim.rolled_back",
    "claim.closed",
    "claim.evicted",
    "claim.reclaimed",
    "claim.drain_ended",
}


def owners_by_event(lines: list[str]) -> list[list[list[str]]]:
    """For each engine and each of its events, the owners of its slots after that event."""
    events: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        event = json.loads(line)
        events.setdefault(event["engine"], []).append(event)
    return [_owners(of_engine) for of_engine in events.values()]


def _owners(events: list[dict[str, Any]]) -> list[list[str]]:
    opened = next(event for event in events if event["event"] == "ledger.opened")
    slots = opened["slots"] + opened.get("host_slots", 0)
    owner: dict[int, str] = {}
    slot_of: dict[int, int | None] = {}
    lost: set[int] = set()
    states: list[list[str]] = []
    for event in events:
        name, claim = event["event"], event.get("claim", -1)
        if name == "claim.reserved":
            owner[claim], slot_of[claim] = "batch", event["slot"]
        elif name in {"claim.committed", "claim.admitted"}:
            owner[claim] = event["owner"]
        elif name == "claim.drained":
            owner[claim] = "draining"
        elif name == "lease.quarantined":
            lost |= set(event["claims"])
        elif name == "lease.landed":
            lost -= {row["claim"] for row in event["rows"]}
        elif name in ENDS:
            del owner[claim]
        row = ["free"] * slots
        for number, whose in owner.items():
            slot = slot_of[number]
            if slot is not None:
                row[slot] = "quarantined" if number in lost else whose
        states.append(row)
    return states
