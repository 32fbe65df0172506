"""Writes the event log of an imaginary ledger, one call an event, right or wrong as asked."""

import json
from collections.abc import Sequence

from adapters.trace_audit import EngineAudit, TraceAudit, audit_lines

__all__ = ["LogWriter", "two_turns"]


class LogWriter:
    """A log of four slots and eight pages of four tokens, numbered by itself."""

    def __init__(self, engine: str = "engine-1", *, slots: int = 4, pages: int = 8) -> None:
        self.engine = engine
        self.lines: list[str] = []
        self.seq = 0
        self.slots: dict[int, int | None] = {}
        self.positions: dict[int, int] = {}
        self.generations: dict[int, int] = {}
        self.of_slot: dict[int, int] = {}
        self.write("ledger.opened", slots=slots, pages=pages, page_size=4)

    def write(self, event: str, **fields: object) -> None:
        """Append an event; those of the ledger get the next sequence number."""
        record = {"event": event, "engine": self.engine, **fields}
        if event.startswith(("ledger.", "claim.", "lease.")):
            record["seq"] = self.seq
            self.seq += 1
        self.lines.append(json.dumps(record))

    def next_generation(self, claim: int) -> int:
        """What the ledger would count for the claim's next handle."""
        slot = self.slots[claim]
        if slot is None:
            self.generations[claim] = self.generations.get(claim, 0) + 1
        else:
            self.generations[claim] = self.of_slot[slot] = self.of_slot.get(slot, 0) + 1
        return self.generations[claim]

    def reserve(
        self,
        claim: int,
        slot: int | None,
        pages: Sequence[int] = (),
        *,
        base: int | None = None,
        run: int | None = None,
        position: int = 0,
        base_name: str | None = None,
    ) -> None:
        self.slots[claim] = slot
        self.positions[claim] = position
        if base is not None and base_name is None:
            base_name = f"session-1@{base + 1}"
        self.write(
            "claim.reserved",
            claim=claim,
            slot=slot,
            generation=self.next_generation(claim),
            pages=list(pages),
            run=run,
            base=base,
            base_name=base_name,
            position=position,
            owner="batch",
            to="scheduler",
            turn=f"turn-{claim}",
        )

    def launch(self, lease: int, *claims: int) -> None:
        slots = [self.slots.get(claim) for claim in claims]
        self.write("lease.launched", lease=lease, step=lease, claims=list(claims), slots=slots)

    def land(
        self,
        lease: int,
        claim: int,
        position: int,
        *,
        frozen: Sequence[int] = (),
        run: int | None = None,
        parent: int | None = None,
        unpinned: Sequence[int] = (),
        outcome: str = "ok",
    ) -> None:
        self.positions[claim] = position
        row = {"claim": claim, "position": position, "frozen": frozen, "run": run, "parent": parent}
        self.write(
            "lease.landed",
            lease=lease,
            step=lease,
            outcome=outcome,
            rows=[row],
            unpinned=list(unpinned),
            to="scheduler",
        )

    def step(
        self,
        lease: int,
        claim: int,
        position: int,
        *,
        frozen: Sequence[int] = (),
        run: int | None = None,
        parent: int | None = None,
        unpinned: Sequence[int] = (),
    ) -> None:
        """Launch and land one claim."""
        self.launch(lease, claim)
        self.land(lease, claim, position, frozen=frozen, run=run, parent=parent, unpinned=unpinned)

    def fail(self, lease: int, claim: int, position: int) -> None:
        """Launch one claim and land it as failed."""
        self.launch(lease, claim)
        self.land(lease, claim, position, outcome="failed")

    def commit(
        self,
        claim: int,
        slot: int | None,
        position: int,
        version: int = 1,
        *,
        replaces: int | None = None,
        pages: Sequence[int] = (),
    ) -> None:
        self.write(
            "claim.committed",
            claim=claim,
            slot=slot,
            generation=self.next_generation(claim),
            owner="session",
            to="session-1",
            version=version,
            position=position,
            returned_pages=list(pages),
            replaces=replaces,
            turn=f"turn-{claim}",
        )

    def release(
        self,
        verb: str,
        claim: int,
        slot: int | None,
        pages: Sequence[int] = (),
        *,
        owner: str = "batch",
        runs: Sequence[int] = (),
        unpinned: int | None = None,
    ) -> None:
        self.write(
            f"claim.{verb}",
            claim=claim,
            slot=slot,
            generation=self.generations.get(claim, 1),
            owner=owner,
            turn=f"turn-{claim}",
            position=self.positions.get(claim, 0),
            returned_slot=slot,
            returned_pages=list(pages),
            dropped_runs=list(runs),
            unpinned=unpinned,
        )

    def close(
        self, claim: int, slot: int | None, pages: Sequence[int] = (), *, runs: Sequence[int] = ()
    ) -> None:
        self.release("closed", claim, slot, pages, owner="session", runs=runs)

    def events(self) -> list[tuple[str, dict[str, object]]]:
        """Name and fields of each event so far."""
        decoded: list[dict[str, object]] = [json.loads(line) for line in self.lines]
        return [(str(fields["event"]), fields) for fields in decoded]

    def audit(self) -> EngineAudit:
        """The verdict on what was written so far."""
        (engine,) = self.audit_all().engines
        return engine

    def audit_all(self) -> TraceAudit:
        return audit_lines(self.lines)


def two_turns(log: LogWriter) -> None:
    """A session's first turn over six tokens, and a second one to nine that replaces it."""
    log.reserve(0, 1, [10, 11])
    log.step(0, 0, 6, frozen=[10], run=100)
    log.commit(0, 1, 6)
    log.reserve(1, 2, [12, 13], base=0, run=100, position=6, base_name="session-1@1")
    log.step(1, 1, 9, frozen=[12], run=101, parent=100, unpinned=[0])
    log.commit(1, 2, 9, 2, replaces=0)
    log.close(0, 1, [11])
