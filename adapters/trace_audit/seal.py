"""The seal of an event, read again: is it as it was written, and what stood before it?

An event's ``check`` is the CRC-32 of its name, a space, and the compact JSON, with sorted keys, of
the fields of its schema (``docs/events.md``); what an application adds of its own is not covered.
``after`` is the number, the subject and the check of the event before it, and null in the first.
"""

import json
import zlib

import attrs

from adapters.trace_audit.event import Event

__all__ = ["Seal", "subject_of"]

_ENDED = "slot generation owner turn position returned_slot returned_pages dropped_runs unpinned"
_KEPT = "slot generation owner version position returned_pages replaces turn to from"
_TURN = "session turn kind prompt_tokens"
_RESULT = (
    "reason error kept generated cached_tokens cache_miss recomputed_tokens preemptions ttft_s"
)

_LEDGER: dict[str, str] = {
    "ledger.opened": "slots pages page_size host_slots host_pages",
    "claim.reserved": "claim place slot generation first_page pages run base base_name position "
    "owner to turn",
    "claim.grown": "claim slot generation pages owner to turn",
    "lease.launched": "lease step claims slots from",
    "lease.landed": "lease step outcome rows unpinned to",
    "lease.quarantined": "lease step claims",
    "claim.rolled_back": f"claim {_ENDED} from",
    "claim.closed": f"claim {_ENDED} from",
    "claim.evicted": f"claim {_ENDED} from",
    "claim.reclaimed": f"claim {_ENDED} from",
    "claim.committed": f"claim {_KEPT}",
    "claim.admitted": f"claim {_KEPT}",
    "claim.drained": "claim slot generation owner pins",
    "claim.drain_ended": "claim returned_slot returned_pages dropped_runs",
    "ledger.audited": "free_slots free_pages batch session cache draining quarantined_slots "
    "quarantined_pages host_free_slots host_free_pages host_quarantined_slots "
    "host_quarantined_pages conserved",
}
_KERNEL: dict[str, str] = {
    "engine.opened": "model slots",
    "engine.failed": "error",
    "engine.closed": "conserved",
    "actor.died": "actor incarnation error",
    "turn.started": _TURN,
    "turn.ended": f"{_TURN} {_RESULT}",
    "turn.history_differs": "session turn",
    "session.dormant": "session num_tokens",
    "session.woken": "session num_tokens",
    "session.state_lost": "session position reason",
}

COVERED: dict[str, frozenset[str]] = {
    name: frozenset(f"engine at after {fields} {also}".split())
    for family, also in ((_LEDGER, "seq"), (_KERNEL, ""))
    for name, fields in family.items()
}
"""The fields that an event's check covers."""

_canonical = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


@attrs.frozen
class Seal:
    """Where an event stands in its engine's log, by its own word."""

    number: int
    """Events of this engine that were written before it."""
    before: str
    """What the event before it was about; empty in the first."""
    before_check: int | None
    check: int
    is_intact: bool
    """The event is as it was written."""

    @classmethod
    def of(cls, event: Event) -> "Seal | None":
        """Read an event's seal; None when it has none that can be read."""
        check, after = event.fields.get("check"), event.fields.get("after")
        if not isinstance(check, int) or "after" not in event.fields:
            return None
        intact = _is_as_written(event, check)
        if after is None:
            return cls(0, "", None, check, intact)
        match after:
            case [int(number), str(before), int(before_check)]:
                return cls(number + 1, before, before_check, check, intact)
            case _:
                return None


def _is_as_written(event: Event, check: int) -> bool:
    covered = COVERED.get(event.name)
    if covered is None:
        # Of a later version, whose fields nobody here knows. The ledger's own are all known.
        return not event.name.startswith(("ledger.", "claim.", "lease."))
    own = {key: value for key, value in event.fields.items() if key in covered}
    return check == zlib.crc32(f"{event.name} {_canonical(own)}".encode())


def subject_of(event: Event) -> str:
    """What an event is about: a claim, a lease, a turn, an actor, the ledger or the engine."""
    for kind in ("claim", "lease", "turn", "actor"):
        if kind in event.fields:
            return f"{kind} {event.fields[kind]}"
    # Not by its name, which may be what was changed.
    return "ledger" if "seq" in event.fields else "engine"
