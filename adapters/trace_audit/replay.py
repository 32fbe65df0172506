"""The events of one ledger, replayed by the rules of conservation: one handler an event."""

from collections import Counter
from collections.abc import Callable

from adapters.trace_audit.books import Books, Claim, Lease
from adapters.trace_audit.chain import Chain, Link
from adapters.trace_audit.event import Event, MalformedEvent
from adapters.trace_audit.facts import Facts
from adapters.trace_audit.places import DEVICE, Places
from adapters.trace_audit.report import EngineAudit
from adapters.trace_audit.seal import subject_of

__all__ = ["Replay"]

ENDS_BY = {"claim.rolled_back": "batch", "claim.closed": "session", "claim.evicted": "cache"}
"""The verb of an event says who must have owned the claim."""


class Replay:
    """Takes the events of one engine in order; ``finish`` gives the verdict.

    Args:
        engine: the id in the events' field ``engine``, for the report.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._books = Books()
        self._findings = self._books.findings
        self._chain = Chain()
        self._facts = Facts(self._books)
        self._newest_claim = -1
        self._next_seq = 0
        self._counts: Counter[str] = Counter()
        self._closed = False
        self._handlers: dict[str, Callable[[Event], None]] = {
            "ledger.opened": self._opened,
            "ledger.audited": self._audited,
            "claim.reserved": self._reserved,
            "claim.grown": self._grown,
            "claim.committed": self._retyped,
            "claim.admitted": self._retyped,
            "claim.rolled_back": self._released,
            "claim.closed": self._released,
            "claim.evicted": self._released,
            "claim.reclaimed": self._released,
            "claim.drained": self._drained,
            "claim.drain_ended": self._drain_ended,
            "lease.launched": self._launched,
            "lease.landed": self._landed,
            "lease.quarantined": self._quarantined,
        }

    @property
    def saw_ledger(self) -> bool:
        """True once an event of the ledger was fed."""
        return bool(self._counts)

    def begins_anew(self, event: Event) -> bool:
        """Whether the event is the first of another ledger, in a log that was appended to."""
        return event.name == "ledger.opened" and self._chain.is_another_ledgers(event)

    def feed(self, event: Event) -> None:
        """Replay one event; events of other families only pass by."""
        for link in self._chain.feed(event):
            self._take(link)

    def _take(self, link: Link) -> None:
        if link.doubt is not None:
            self._findings.seq = self._next_seq
            text = f"{link.doubt.about}: {link.doubt.text}"
            self._findings.add(link.doubt.kind, text, about=link.doubt.about)
        if link.event is not None:
            self._replay(link.event)

    def _replay(self, event: Event) -> None:
        if event.name == "engine.closed":
            self._closed = True
        handler = self._handlers.get(event.name)
        if handler is None:
            return
        self._counts[event.name] += 1
        self._findings.about = subject_of(event)
        try:
            self._check_seq(event.integer("seq"))
            self._facts.before(event)
            handler(event)
        except MalformedEvent as error:
            self._findings.add("malformed", f"{event.name}: {error}")

    def finish(self) -> EngineAudit:
        """Judge what is still owned, and report."""
        for link in self._chain.finish():
            self._take(link)
        books = self._books
        kept = books.quarantined()
        owned = [claim for number, claim in books.claims.items() if number not in kept]
        for claim in owned:
            if claim.owner == "draining" and claim.pins == 0:
                text = f"claim {claim.number} has no pin any more but never came back"
                self._findings.leak(claim.held, text, about=f"claim {claim.number}")
            elif self._closed:
                text = f"claim {claim.number} is {claim.owner}'s although the engine is closed"
                self._findings.leak(claim.held, text, about=f"claim {claim.number}")
        return EngineAudit(
            engine=self._engine,
            problems=tuple(self._findings.problems),
            num_problems=self._findings.kinds.total(),
            leaked=self._findings.leaked,
            double_frees=self._findings.kinds["double free"],
            reclaimed=self._counts["claim.reclaimed"],
            quarantined=len(kept),
            still_owned=len(owned),
            **self._free(),
            counts=dict(self._counts),
            closed=self._closed,
        )

    def _check_seq(self, seq: int) -> None:
        self._findings.seq = seq
        if seq != self._next_seq and not self._chain.is_sealed:
            self._findings.add("gap", f"expected event {self._next_seq}, found {seq}")
        self._next_seq = seq + 1

    def _owned(self, event: Event, owner: str) -> Claim | None:
        number = event.integer("claim")
        claim = self._books.claims.get(number)
        if claim is None:
            self._findings.add("order", f"{event.name}: nobody owns claim {number}")
        elif claim.owner != owner:
            text = f"{event.name}: claim {number} is {claim.owner}'s, not {owner}'s"
            self._findings.add("order", text)
        else:
            return claim
        return None

    def _opened(self, event: Event) -> None:
        # Logs of earlier releases know of no place but the device.
        places = self._books.places = Places(
            event.integer("slots"),
            event.integer("pages"),
            event.integer_or_none("host_slots") or 0,
            event.integer_or_none("host_pages") or 0,
        )
        self._books.slots.capacity = places.slots + places.host_slots
        self._books.pages.capacity = places.pages + places.host_pages
        self._books.page_size = max(1, event.integer("page_size"))

    def _reserved(self, event: Event) -> None:
        claim = Claim(
            number=event.integer("claim"),
            owner="batch",
            slot=event.integer_or_none("slot"),
            generation=event.integer("generation"),
            position=event.integer("position"),
            pages=[],
            run=event.integer_or_none("run"),
            base=event.integer_or_none("base"),
            turn=event.fields.get("turn"),
            place=event.text_or_none("place") or DEVICE,
            first_page=event.integer_or_none("first_page") or 0,
        )
        self._facts.reserved(claim, event)
        if claim.number <= self._newest_claim:
            self._findings.add("order", f"the number of claim {claim.number} was used before")
        self._newest_claim = max(claim.number, self._newest_claim)
        self._books.claims[claim.number] = claim
        if claim.slot is not None:
            self._findings.add("alias", self._books.slots.take(claim.slot, claim.holder))
        self._books.take_pages(claim, event.integers("pages"))
        self._books.start_from(claim, event.text_or_none("base_name"))

    def _grown(self, event: Event) -> None:
        claim = self._owned(event, "batch")
        if claim is not None:
            self._facts.told_again(claim, event)
            self._books.take_pages(claim, event.integers("pages"))

    def _launched(self, event: Event) -> None:
        number, claims = event.integer("lease"), event.integers("claims")
        if number in self._books.leases:
            self._findings.add("order", f"lease {number} was launched twice")
        self._books.leases[number] = Lease(claims, event.fields.get("step"))
        self._facts.launched(number, claims, event)
        for each in claims:
            claim = self._books.claims.get(each)
            if claim is None or claim.owner != "batch":
                self._findings.add("order", f"lease {number} took {each}, not the batch's")
            elif claim.lease is not None:
                self._findings.add("alias", f"claim {each} is in leases {claim.lease} and {number}")
            else:
                claim.lease = number
                if claim.failed or claim.pins:
                    self._findings.add("order", f"claim {each} was launched, failed or pinned")

    def _landed(self, event: Event) -> None:
        number, rows = event.integer("lease"), event.rows("rows")
        lease = self._books.leases.pop(number, None)
        if lease is None:
            self._findings.add("order", f"lease {number} landed but wasn't launched")
            return
        landed = tuple(row.integer("claim") for row in rows)
        if landed != lease.claims:
            text = f"lease {number} took claims {lease.claims} and gave back {landed}"
            self._findings.add("mismatch", text)
        failed = event.text("outcome") != "ok"
        if lease.quarantined and not failed:
            self._findings.add("order", f"lease {number} landed well after its quarantine")
        self._facts.of_lease(lease, event)
        bases = [self._land_row(row, number, failed=failed) for row in rows]
        unpinned = {base for base in bases if base is not None}
        if unpinned != set(event.integers("unpinned")):
            text = f"lease {number} unpinned {sorted(unpinned)}, the event differs"
            self._findings.add("mismatch", text)

    def _land_row(self, row: Event, lease: int, *, failed: bool) -> int | None:
        claim = self._books.claims.get(row.integer("claim"))
        if claim is not None:
            self._facts.row(claim, row, failed=failed)
        return self._books.land_row(row, lease, failed=failed)

    def _quarantined(self, event: Event) -> None:
        lease = self._books.leases.get(event.integer("lease"))
        if lease is None:
            self._findings.add("order", "quarantine of a lease that wasn't launched")
        else:
            self._facts.of_lease(lease, event)
            if lease.quarantined:
                self._findings.add("order", "a lease is put in quarantine once")
            lease.quarantined = True

    def _retyped(self, event: Event) -> None:
        claim = self._owned(event, "batch")
        if claim is None:
            return
        valid = claim.base is None and claim.position > 0 and not claim.failed
        if not valid or claim.lease is not None:
            text = f"{event.name}: claim {claim.number} holds no valid state at rest"
            self._findings.add("order", text)
        if claim.position != event.integer("position"):
            text = f"{event.name}: claim {claim.number} is at {claim.position}"
            self._findings.add("mismatch", text)
        self._facts.kept(claim, event)
        claim.owner = event.text("owner")
        claim.generation = event.integer("generation")
        claim.name = f"{event.text('to')}@{event.integer('version')}"
        for page in event.integers("returned_pages"):
            self._findings.add("double free", self._books.pages.give(page, claim.holder))
            if page in claim.pages:
                claim.pages.remove(page)
        held = self._books.runs.length(claim.run) + len(claim.pages)
        needed = -(-claim.position // self._books.page_size) - claim.first_page
        if self._books.pages.capacity and held != needed:
            text = f"{event.name}: claim {claim.number} keeps {held} pages for {needed}"
            self._findings.leak(max(0, held - needed), text)

    def _released(self, event: Event) -> None:
        claim = self._owned(event, ENDS_BY.get(event.name) or event.text("owner"))
        if claim is None:
            self._books.give_back_wrongly(event)
            return
        self._facts.told_again(claim, event)
        if claim.pins or claim.lease is not None:
            text = f"{event.name}: claim {claim.number} is pinned or in a lease"
            self._findings.add("double free", text)
        unpinned = self._books.unpin(claim)
        if unpinned != event.integer_or_none("unpinned"):
            self._findings.add("mismatch", f"{event.name} unpins {unpinned}, the event differs")
        self._books.give_back(claim, event)

    def _drained(self, event: Event) -> None:
        claim = self._owned(event, event.text("owner"))
        if claim is None:
            return
        self._facts.told_again(claim, event)
        if claim.pins == 0 or claim.pins != event.integer("pins"):
            text = f"claim {claim.number} drains with {claim.pins} pins"
            self._findings.add("mismatch", text)
        claim.owner = "draining"

    def _drain_ended(self, event: Event) -> None:
        claim = self._owned(event, "draining")
        if claim is None:
            self._books.give_back_wrongly(event)
            return
        if claim.pins:
            text = f"claim {claim.number} ended its drain with {claim.pins} pins"
            self._findings.add("double free", text)
        self._books.give_back(claim, event)

    def _audited(self, event: Event) -> None:
        self._facts.audited(event)
        for field, free in self._free().items():
            told = event.integer(field) if field in event.fields else free
            text = f"the ledger counts {told} {field.replace('_', ' ')}, the log {free}"
            if told < free:
                self._findings.leak(free - told, text)
            elif told > free:
                self._findings.add("mismatch", text)

    def _free(self) -> dict[str, int]:
        """What nobody holds, by the name that the ledger counts it under."""
        slots, pages, places = self._books.slots, self._books.pages, self._books.places
        free_slots, free_pages = slots.free, pages.free
        if places.has_host:
            free_slots, free_pages = slots.free_below(places.slots), pages.free_below(places.pages)
        return {
            "free_slots": free_slots,
            "free_pages": free_pages,
            "host_free_slots": slots.free - free_slots,
            "host_free_pages": pages.free - free_pages,
        }
