"""The replayed tables and the rules that several events share."""

import attrs

from adapters.trace_audit.event import Event
from adapters.trace_audit.findings import Findings
from adapters.trace_audit.places import DEVICE, FILE, Places
from adapters.trace_audit.pool import Holder, Pool
from adapters.trace_audit.runs import Runs

__all__ = ["Books", "Claim", "Lease", "runs_of"]


def runs_of(row: Event) -> tuple[Event, ...]:
    """What a row of a landing has frozen: runs that were copied, and the one that was filled."""
    earlier = row.rows("earlier") if "earlier" in row.fields else ()
    return (*earlier, row)


@attrs.define(eq=False)
class Claim:
    """What the log has told about a claim that is owned or drains."""

    number: int
    owner: str
    """``batch``, ``session``, ``cache`` or ``draining``."""
    slot: int | None
    generation: int
    position: int
    pages: list[int]
    """Exclusive pages; frozen ones belong to runs."""
    run: int | None
    base: int | None
    """The claim that this one pins until its first step has landed."""
    turn: object = None
    name: str | None = None
    """``holder@version`` of a committed claim."""
    pins: int = 0
    lease: int | None = None
    failed: bool = False
    """Its last step failed, or it was read into a file: only a rollback is left."""
    place: str = DEVICE
    first_page: int = 0
    """Pages that were dropped before its first one."""
    landed: bool = False
    origin: str | None = None
    """The name that it started from, itself or by way of other working claims."""

    @property
    def holder(self) -> Holder:
        return ("claim", self.number)

    @property
    def held(self) -> int:
        """How many slots and exclusive pages it holds."""
        return len(self.pages) + (self.slot is not None)


@attrs.define(eq=False)
class Lease:
    """The claims of one launched step."""

    claims: tuple[int, ...]
    step: object = None
    quarantined: bool = False


@attrs.define(eq=False)
class Books:
    """Everything that one engine's log says is owned at this moment."""

    findings: Findings = attrs.field(factory=Findings)
    slots: Pool = attrs.field(factory=lambda: Pool("slot"))
    pages: Pool = attrs.field(factory=lambda: Pool("page"))
    places: Places = attrs.field(factory=Places)
    page_size: int = 1
    runs: Runs = attrs.field(factory=Runs)
    claims: dict[int, Claim] = attrs.field(factory=dict[int, Claim])
    leases: dict[int, Lease] = attrs.field(factory=dict[int, Lease])

    def quarantined(self) -> set[int]:
        """Claims that nobody but a device that never answered holds, or still copies out of."""
        lost = {c for lease in self.leases.values() if lease.quarantined for c in lease.claims}
        needed = {claim.base for number, claim in self.claims.items() if number not in lost}
        drains = {
            number
            for number, claim in self.claims.items()
            if claim.owner == "draining" and claim.pins and number not in needed
        }
        return lost | drains

    def take_pages(self, claim: Claim, pages: tuple[int, ...]) -> None:
        """The claim takes pages for itself."""
        wrong = self.places.misplaced(claim.place, claim.slot, pages)
        if wrong is not None:
            what, number = wrong
            text = f"claim {claim.number} is in {claim.place} memory, its {what} {number} is not"
            self.findings.add("mismatch", text)
        for page in pages:
            self.findings.add("alias", self.pages.take(page, claim.holder))
            claim.pages.append(page)

    def start_from(self, claim: Claim, base_name: str | None) -> None:
        """Pin the claim's base and share its run, as a reserve does."""
        if claim.run is not None:
            if claim.run in self.runs:
                self.runs.share(claim.run)
            else:
                self.findings.add("run count", f"run {claim.run} is shared but nobody keeps it")
        if claim.base is None:
            if claim.position or claim.run is not None:
                self.findings.add("mismatch", f"claim {claim.number} has no base but a history")
            return
        base = self.claims.get(claim.base)
        if base is None or base.owner == "draining":
            self.findings.add("order", f"claim {claim.number} starts from {claim.base}, given up")
            return
        base.pins += 1
        claim.origin = base.name or base.origin
        if base.owner == "batch" and (base.failed or base.lease is not None or not base.landed):
            text = f"claim {claim.number} starts from {base.number}, which has no state to copy"
            self.findings.add("order", text)
        if base_name is not None and base.name != base_name:
            self.findings.add("mismatch", f"claim {base.number} is {base.name}, not {base_name}")
        # What it may have in common with its base where both are, or as far as copies are there.
        run = None
        if claim.place != FILE and claim.first_page == base.first_page:
            run = base.run if claim.place == base.place else self.runs.twin_of(base.run)
        is_cut = claim.first_page < base.first_page
        if (base.position, run) != (claim.position, claim.run) or is_cut:
            self.findings.add(
                "mismatch", f"claim {claim.number} differs from its base {base.number}"
            )

    def unpin(self, claim: Claim) -> int | None:
        """End the claim's pin on its base; returns the base, or None if there was no pin."""
        number, claim.base = claim.base, None
        base = None if number is None else self.claims.get(number)
        if base is not None:
            base.pins -= 1
        return number

    def land_row(self, row: Event, lease: int, *, failed: bool) -> int | None:
        """Land one row of a lease; returns the base that it unpinned."""
        claim = self.claims.get(row.integer("claim"))
        if claim is None or claim.lease != lease:
            self.findings.add("order", f"lease {lease} landed a claim that it didn't hold")
            return None
        base = None if claim.base is None else self.claims.get(claim.base)
        claim.lease = None
        claim.landed = True
        claim.failed = failed or claim.place == FILE
        unpinned = self.unpin(claim)
        if failed:
            return unpinned
        position = row.integer("position")
        if position < claim.position:
            self.findings.add("order", f"claim {claim.number} went back to {position}")
        if position != claim.position and claim.place == FILE:
            self.findings.add("order", f"claim {claim.number} is read out, and went to {position}")
        claim.position = position
        shared = self.runs.length(claim.run)
        frozen = [self._freeze(claim, one) for one in runs_of(row)]
        if base is not None and claim.place not in (base.place, FILE):
            self._pair(claim, base, shared, [run for run in frozen if run is not None])
        if self.pages.capacity and claim.place != FILE:
            self._check_pages(claim)
        return unpinned

    def _freeze(self, claim: Claim, row: Event) -> int | None:
        frozen, run = row.integers("frozen"), row.integer_or_none("run")
        if not frozen or run is None:
            return None
        if row.integer_or_none("parent") != claim.run:
            self.findings.add("run count", f"run {run} doesn't stand on tip {claim.run}")
        for page in frozen:
            wrong = self.pages.pass_on(page, claim.holder, ("run", run))
            self.findings.add("alias", wrong)
            if page in claim.pages:
                claim.pages.remove(page)
        self.runs.add(run, frozen, claim.run)
        claim.run = run
        return run

    def _pair(self, claim: Claim, base: Claim, shared: int, frozen: list[int]) -> None:
        """What was copied from another place is frozen run by run, each as long as there."""
        if claim.first_page != base.first_page:
            return
        sources = [(run, node) for run, node in self.runs.chain(base.run) if node.length > shared]
        lengths = [self.runs.length(run) for run in frozen[: len(sources)]]
        if lengths != [node.length for _, node in sources]:
            text = f"claim {claim.number} was copied from {base.number} in other runs"
            self.findings.add("run count", text)
            return
        for (run, _), copy in zip(sources, frozen, strict=False):
            self.runs.pair(run, copy)

    def _check_pages(self, claim: Claim) -> None:
        full = claim.first_page + self.runs.length(claim.run)
        if full != claim.position // self.page_size:
            text = f"claim {claim.number} at {claim.position} has {full} frozen pages"
            self.findings.add("run count", text)
        if claim.position > (full + len(claim.pages)) * self.page_size:
            self.findings.add("mismatch", f"claim {claim.number} outran its pages")

    def give_back(self, claim: Claim, event: Event) -> None:
        """End the claim; everything it held has to come back, and nothing else."""
        del self.claims[claim.number]
        slot = event.integer_or_none("returned_slot")
        if slot is not None:
            self.findings.add("double free", self.slots.give(slot, claim.holder))
        if claim.slot is not None and slot != claim.slot:
            text = f"{event.name}: claim {claim.number} kept slot {claim.slot}"
            self.findings.leak(1, text)
        expected: dict[int, Holder] = dict.fromkeys(claim.pages, claim.holder)
        dropped = self.runs.drop(claim.run)
        for run, pages in dropped:
            expected.update(dict.fromkeys(pages, ("run", run)))
        told = set(event.integers("dropped_runs"))
        if told != {run for run, _ in dropped}:
            text = f"{event.name} drops runs {sorted(told)}, by count {[run for run, _ in dropped]}"
            self.findings.add("run count", text)
        for page in event.integers("returned_pages"):
            holder = expected.pop(page, claim.holder)
            self.findings.add("double free", self.pages.give(page, holder))
        if expected:
            text = f"{event.name}: claim {claim.number} kept pages {sorted(expected)}"
            self.findings.leak(len(expected), text)

    def give_back_wrongly(self, event: Event) -> None:
        """Something was given back by a verb that had no right to."""
        giver: Holder = ("claim", event.integer("claim"))
        slot = event.integer_or_none("returned_slot")
        if slot is not None:
            self.findings.add("double free", self.slots.give_wrongly(slot, giver))
        for page in event.integers("returned_pages"):
            self.findings.add("double free", self.pages.give_wrongly(page, giver))
