"""What an event says of its claim or lease, against what the log has said before.

Conservation needs few of an event's fields. The others are told again and again, so that a reader
need not look back; here each is compared with what was told first. Absent fields are not judged.
"""

from collections.abc import Iterable, Mapping

import attrs

from adapters.trace_audit.books import Books, Claim, Lease, runs_of
from adapters.trace_audit.event import Event

__all__ = ["Facts"]

MAX_HOLDERS_KEPT = 10_000
"""Memory stays bounded however many sessions a log tells of; of those beyond it less is checked."""

KEPT_BY = {"claim.committed": "session", "claim.admitted": "cache"}


@attrs.define(eq=False)
class Facts:
    """Compares the fields of events with the books, and keeps the counters that only they show."""

    books: Books
    _generations: dict[int, int] = attrs.field(factory=dict[int, int])
    _versions: dict[str, int] = attrs.field(factory=dict[str, int])
    _named: int = 0
    """States that were committed or admitted."""
    _newest_run: int = -1
    _next_lease: int = 0
    _to_end: int | None = None
    """The claim that the last commit replaced: the next event has to end it."""

    def before(self, event: Event) -> None:
        """Each ledger event: is it the one that a commit before it has announced?"""
        due, self._to_end = self._to_end, None
        if due is None:
            return
        ends = event.name in {"claim.closed", "claim.drained"}
        if not ends or event.fields.get("claim") != due:
            self._wrong(f"claim {due} was replaced, but no end of it follows", f"claim {due}")

    def reserved(self, claim: Claim, event: Event) -> None:
        generation = 1 if claim.slot is None else self._next_generation(claim.slot)
        self._known(event, {"owner": "batch", "generation": generation})
        base = None if claim.base is None else self.books.claims.get(claim.base)
        # The scheduler may also go on in a copy of a working claim, which has no name.
        has_name = claim.base is not None and (base is None or base.owner != "batch")
        if has_name != (event.text_or_none("base_name") is not None):
            self._wrong(f"claim {claim.number} has a base without a name, or a name without a base")

    def told_again(self, claim: Claim, event: Event, *, owner: str | None = None) -> None:
        """An event repeats what its claim is."""
        known = {
            "slot": claim.slot,
            "generation": claim.generation,
            "turn": claim.turn,
            "position": claim.position,
            "owner": owner or claim.owner,
        }
        self._known(event, known)

    def kept(self, claim: Claim, event: Event) -> None:
        """A commit or an admit: the next generation of the slot, the next version of the holder."""
        holder, version = event.text("to"), event.integer("version")
        slot = claim.slot
        known = {
            "slot": slot,
            "turn": claim.turn,
            "owner": KEPT_BY[event.name],
            "generation": claim.generation + 1 if slot is None else self._next_generation(slot),
            "from": holder,
        }
        self._known(event, known)
        newest = self._versions.get(holder, 0)
        self._named += 1
        self._to_end = event.integer_or_none("replaces")
        replaced = None if self._to_end is None else self.books.claims.get(self._to_end)
        if replaced is not None and replaced.name != claim.origin:
            text = f"claim {claim.number} replaces {replaced.name}, but started from {claim.origin}"
            self._wrong(text)
        if replaced is not None and _is_moved(claim, replaced):
            if f"{holder}@{version}" != replaced.name:
                self._wrong(f"claim {claim.number} is {replaced.name}, moved, and has another name")
            return
        # A holder of a name that was used before begins above every version that was ever given.
        if not newest < version <= max(newest + 1, self._named):
            self._wrong(f"{holder} is at version {newest}, its next is not {version}")
        self._versions[holder] = version
        if len(self._versions) > MAX_HOLDERS_KEPT:
            del self._versions[next(iter(self._versions))]

    def launched(self, lease: int, claims: Iterable[int], event: Event) -> None:
        known = [self.books.claims.get(number) for number in claims]
        slots = [None if claim is None else claim.slot for claim in known]
        self._known(event, {"slots": slots, "lease": self._next_lease})
        self._next_lease = lease + 1

    def of_lease(self, lease: Lease, event: Event) -> None:
        """A landing or a quarantine repeats the step, and who is in it."""
        self._known(event, {"step": lease.step, "claims": list(lease.claims)})

    def row(self, claim: Claim, row: Event, *, failed: bool) -> None:
        """A row of a landing, before it is replayed."""
        if failed:
            known: dict[str, object] = {"position": claim.position, "run": None}
            known |= {"frozen": list[int](), "earlier": list[int]()}
            self._known(row, known)
        first = 0
        for each in runs_of(row):
            self._frozen(claim, each, first)
            first += len(each.integers("frozen"))

    def _frozen(self, claim: Claim, row: Event, first: int) -> None:
        frozen, run = row.integers("frozen"), row.integer_or_none("run")
        if list(frozen) != claim.pages[first : first + len(frozen)]:
            self._wrong(f"claim {claim.number} froze {list(frozen)}, not its first pages")
        if (run is None) != (not frozen) or (run is None and row.fields.get("parent") is not None):
            self._wrong(f"claim {claim.number} froze pages without a run, or a run without pages")
        if run is not None:
            if run <= self._newest_run:
                self._wrong(f"run {run} of claim {claim.number} is not a new one")
            self._newest_run = max(run, self._newest_run)

    def audited(self, event: Event) -> None:
        """The ledger's own count, column by column."""
        lost = self.books.quarantined()
        owners = [claim.owner for number, claim in self.books.claims.items() if number not in lost]
        known: dict[str, object] = {
            owner: owners.count(owner) for owner in ("batch", "session", "cache", "draining")
        }
        device = self.books.places.slots
        claims = [claim for number, claim in self.books.claims.items() if number in lost]
        slots = [claim.slot for claim in claims if claim.slot is not None]
        known["quarantined_slots"] = sum(slot < device for slot in slots)
        known["host_quarantined_slots"] = sum(slot >= device for slot in slots)
        known["conserved"] = True
        self._known(event, known)

    def _next_generation(self, slot: int) -> int:
        number = self._generations[slot] = self._generations.get(slot, 0) + 1
        return number

    def _known(self, event: Event, known: Mapping[str, object]) -> None:
        for field, value in known.items():
            if field in event.fields and event.fields[field] != value:
                told = event.fields[field]
                self._wrong(f"{event.name}: {field} is {told!r} here, by the log {value!r}")

    def _wrong(self, text: str, about: str | None = None) -> None:
        self.books.findings.add("mismatch", text, about=about)


def _is_moved(claim: Claim, replaced: Claim) -> bool:
    """Whether a claim is the state that it replaces, unchanged, in another place."""
    return (claim.position, claim.first_page) == (
        replaced.position,
        replaced.first_page,
    ) and claim.place != replaced.place
