"""Turns the events of one engine into spans of ownership, lane by lane.

It believes the log: whether that is right is the audit's business. What doesn't fit (an end of a
claim that never began) is passed over, so that a damaged log is drawn as far as it goes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from adapters.trace_audit.event import Event
from adapters.trace_view.picture import OWNERS, ClaimLife, Picture

__all__ = ["Drawing"]

ENDS: Final = {
    "claim.rolled_back": "rolled back",
    "claim.closed": "closed",
    "claim.evicted": "evicted",
    "claim.reclaimed": "reclaimed",
    "claim.drain_ended": "drained, and free",
}
FROZEN: Final = len(OWNERS)
FOREVER_S: Final = 1e12
"""No clock says so much; JSON can, and more than a float holds."""


@attrs.define(eq=False)
class _Open:
    """A claim that somebody holds at this point of the log."""

    life: ClaimLife
    owner: str
    since: int
    pages: int
    has_slot: bool
    lease: int | None = None


@attrs.define(eq=False)
class _Flight:
    """A step that is on the device at this point of the log."""

    claims: list[int]
    since: int
    step: object


class Drawing:
    """Takes the events of one engine in order; ``finish`` gives the picture."""

    def __init__(self, engine: str) -> None:
        self.picture = Picture(engine)
        self._open: dict[int, _Open] = {}
        self._flights: dict[int, _Flight] = {}
        self._sessions: dict[str, str] = {}
        self._counts = [0] * (len(OWNERS) + 1)
        self._drawn = list(self._counts)
        self._free_lanes: list[int] = []
        self._follow: Mapping[str, Callable[[int, Mapping[str, Any]], None]] = {
            "ledger.opened": self._opened,
            "claim.reserved": self._reserved,
            "claim.grown": self._grown,
            "claim.committed": self._kept,
            "claim.admitted": self._kept,
            "claim.drained": self._drained,
            "lease.launched": self._launched,
            "lease.landed": self._landed,
            "lease.quarantined": self._quarantined,
            "turn.started": self._turn_started,
        }

    def feed(self, event: Event) -> None:
        """Draw one event."""
        number, fields = len(self.picture.at), event.fields
        at = fields.get("at")
        last = self.picture.at[-1] if self.picture.at else 0.0
        if not isinstance(at, (int, float)) or not abs(at) < FOREVER_S:
            at = last
        self.picture.at.append(float(at))
        try:
            follow = self._follow.get(event.name)
            if follow is not None:
                follow(number, fields)
            elif event.name in ENDS:
                self._ended(number, fields, ENDS[event.name])
            elif event.name in {"actor.died", "engine.failed"}:
                what = f"{fields.get('actor', 'the engine')}: {fields.get('error')}"
                self.picture.marks.append((number, what))
        except (KeyError, TypeError):
            pass  # a claim that never began, a field that isn't there: the audit tells of those
        if self._counts != self._drawn:
            self._drawn = list(self._counts)
            self.picture.usage.append((number, *self._counts))

    def finish(self) -> Picture:
        """End what is open where the log ends."""
        end = len(self.picture.at)
        for claim in self._open.values():
            self._close_span(claim, end)
        for lease, flight in self._flights.items():
            self._close_step(lease, flight, end, is_ok=False)
        self.picture.spans.sort()
        self.picture.steps.sort()
        return self.picture

    def _opened(self, _number: int, fields: Mapping[str, Any]) -> None:
        sizes = [_integer(fields[name]) for name in ("slots", "pages", "page_size")]
        host = [_integer(fields.get(name, 0)) for name in ("host_slots", "host_pages")]
        self.picture.slots, self.picture.host_slots = sizes[0], host[0]
        self.picture.pages, self.picture.page_size = sizes[1] + host[1], sizes[2]
        self.picture.lanes = sizes[0] + host[0]

    def _reserved(self, number: int, fields: Mapping[str, Any]) -> None:
        turn, lane = str(fields.get("turn", "")), fields["slot"]
        life = ClaimLife(
            number=_integer(fields["claim"]),
            turn=turn,
            session=self._sessions.get(turn, ""),
            lane=self._take_lane() if lane is None else _integer(lane),
            base=fields["base"],
            begun=number,
        )
        self.picture.claims.append(life)
        claim = _Open(life, "batch", number, len(fields["pages"]), lane is not None)
        self._open[life.number] = claim
        self._count(claim, claim.pages)
        fact = f"{_where(fields)}from {_origin(fields)}, at position {fields['position']}"
        fact += f", {_pages(claim.pages)}{_dropped(fields)}"
        life.events.append((number, "reserved", fact))

    def _grown(self, number: int, fields: Mapping[str, Any]) -> None:
        claim = self._open[fields["claim"]]
        taken = len(fields["pages"])
        self._count(claim, taken)
        claim.pages += taken
        claim.life.events.append((number, "grown", f"by {_pages(taken)}"))

    def _kept(self, number: int, fields: Mapping[str, Any]) -> None:
        claim = self._open[fields["claim"]]
        if fields["owner"] not in OWNERS:
            raise KeyError(fields["owner"])
        returned = len(fields["returned_pages"])
        self._count(claim, -returned)
        claim.pages -= returned
        holder = str(fields["to"])
        if holder.startswith("session:"):
            claim.life.session = claim.life.session or holder.removeprefix("session:")
        self._become(claim, fields["owner"], number)
        verb = "committed" if fields["owner"] == "session" else "admitted"
        fact = f"as {holder}@{fields['version']}, at position {fields['position']}"
        claim.life.events.append((number, verb, fact))

    def _drained(self, number: int, fields: Mapping[str, Any]) -> None:
        claim = self._open[fields["claim"]]
        self._become(claim, "draining", number)
        fact = f"nobody's; {fields['pins']} copies out of it are under way"
        claim.life.events.append((number, "draining", fact))

    def _ended(self, number: int, fields: Mapping[str, Any], how: str) -> None:
        claim = self._open.pop(fields["claim"])
        self._count(claim, -claim.pages)
        freed = len(fields["returned_pages"])
        self._counts[FROZEN] -= freed - claim.pages
        self._close_span(claim, number)
        claim.life.ended = number
        if not claim.has_slot:
            self._free_lanes.append(claim.life.lane)
        claim.life.events.append((number, how, f"gave back {_pages(freed)}"))

    def _launched(self, number: int, fields: Mapping[str, Any]) -> None:
        flight = _Flight(list(fields["claims"]), number, fields["step"])
        self._flights[fields["lease"]] = flight
        for each in flight.claims:
            claim = self._open[each]
            claim.lease = fields["lease"]
            claim.life.events.append((number, "launched", f"in step {fields['step']}"))

    def _landed(self, number: int, fields: Mapping[str, Any]) -> None:
        is_ok = fields["outcome"] == "ok"
        flight = self._flights.pop(fields["lease"])
        self._close_step(fields["lease"], flight, number, is_ok=is_ok)
        for row in fields["rows"]:
            claim = self._open[row["claim"]]
            claim.lease = None
            runs = [*row.get("earlier", ()), row]
            frozen = sum(len(run["frozen"]) for run in runs)
            self._count(claim, -frozen)
            claim.pages -= frozen
            self._counts[FROZEN] += frozen
            if claim.owner == "quarantined":
                self._become(claim, "batch", number)
            fact = f"at position {row['position']}" if is_ok else f"step {flight.step} failed"
            claim.life.events.append((number, "landed" if is_ok else "failed", fact))

    def _quarantined(self, number: int, fields: Mapping[str, Any]) -> None:
        for each in fields["claims"]:
            claim = self._open[each]
            self._become(claim, "quarantined", number)
            fact = "its device has not answered"
            claim.life.events.append((number, "in quarantine", fact))

    def _turn_started(self, _number: int, fields: Mapping[str, Any]) -> None:
        self._sessions[str(fields["turn"])] = str(fields["session"])

    def _become(self, claim: _Open, owner: str, number: int) -> None:
        self._close_span(claim, number)
        self._count(claim, -claim.pages)
        claim.owner, claim.since = owner, number
        self._count(claim, claim.pages)

    def _close_span(self, claim: _Open, end: int) -> None:
        life, owner = claim.life, OWNERS.index(claim.owner)
        self.picture.spans.append((life.lane, claim.since, end, owner, life.number))

    def _close_step(self, lease: int, flight: _Flight, end: int, *, is_ok: bool) -> None:
        for each in flight.claims:
            claim = self._open.get(each)
            if claim is not None:
                row = (claim.life.lane, flight.since, end, lease, each, int(is_ok))
                self.picture.steps.append(row)

    def _count(self, claim: _Open, pages: int) -> None:
        self._counts[OWNERS.index(claim.owner)] += pages

    def _take_lane(self) -> int:
        if self._free_lanes:
            return self._free_lanes.pop()
        self.picture.lanes += 1
        return self.picture.lanes - 1


def _integer(told: object) -> int:
    if not isinstance(told, int):
        raise TypeError(told)
    return told


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"


def _where(fields: Mapping[str, Any]) -> str:
    """Where a claim lives, if not on the device."""
    place = fields.get("place", "device")
    return {"device": "", "host": "in host memory, ", "file": "into a file, "}.get(place, "")


def _origin(fields: Mapping[str, Any]) -> str:
    base, name = fields["base"], fields.get("base_name")
    if base is None:
        return "zeros"
    return f"a copy of claim {base} ({name})" if name else f"a copy of claim {base}, a working one"


def _dropped(fields: Mapping[str, Any]) -> str:
    first_page = fields.get("first_page", 0)
    return f" after {_pages(first_page)} that were dropped" if first_page else ""
