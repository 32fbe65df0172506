"""The replay and the real ledger, which share no code, agree on every log that a ledger writes."""

import json
import random
from collections.abc import Mapping

import pytest

from adapters.trace_audit import audit_lines
from ownership import (
    ZEROS,
    Absorbed,
    Base,
    BaseName,
    BatchOwned,
    Capacity,
    CustodianId,
    Grown,
    Lease,
    Ledger,
    Need,
    Owns,
    Refused,
    SessionOwned,
    StepFailed,
)
from tests.ownership.choosers import Seeded
from tests.ownership.machine import Machine

SCHEDULER = CustodianId("scheduler")
SESSION = CustodianId("session:1")


class Log:
    """Keeps events as JSON lines, as the probe would write them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def record(self, event: str, fields: Mapping[str, object], /) -> None:
        self.lines.append(json.dumps({"event": event, "engine": "e", **fields}))


class Traffic:
    """Random verbs, in any order that the ledger allows."""

    fresh: Owns[list[BatchOwned]]
    landed: Owns[list[BatchOwned]]
    broken: Owns[list[BatchOwned]]
    states: Owns[dict[int, SessionOwned]]

    def __init__(self, seed: int, capacity: Capacity) -> None:
        self.draw = random.Random(seed)
        self.log = Log()
        self.ledger = Ledger(capacity, observer=self.log)
        self.batch = self.ledger.batch_port(SCHEDULER)
        self.session = self.ledger.session_port(SESSION)
        self.fresh = []
        self.landed = []
        self.broken = []
        self.leases: list[Lease] = []
        self.lost: list[Lease] = []
        self.states = {}
        self.step = 0

    def run(self, verbs: int) -> None:
        for _ in range(verbs):
            self.draw.choice(
                [self.reserve, self.launch, self.land, self.land, self.commit, self.end, self.close]
            )()

    def reserve(self) -> None:
        base: Base = ZEROS
        if self.states and self.draw.random() < 0.7:
            base = BaseName(SESSION, self.draw.choice(list(self.states)))
        claim = self.batch.reserve(Need(self.draw.randint(1, 20)), base, turn="t")
        if not isinstance(claim, Refused):
            self.fresh.append(claim)

    def launch(self) -> None:
        most = self.draw.randint(1, 4)
        rows: list[BatchOwned] = []
        for claims in (self.fresh, self.landed):
            stay: list[BatchOwned] = []
            while claims:
                claim = claims.pop(self.draw.randrange(len(claims)))
                if len(rows) < most and self.draw.random() < 0.5 and self.room(claim):
                    rows.append(claim)
                else:
                    stay.append(claim)
            claims.extend(stay)
        if rows:
            self.step += 1
            self.leases.append(self.batch.launch(rows, step=self.step))

    def room(self, claim: BatchOwned) -> bool:
        position = self.ledger.view.position(claim)
        return isinstance(self.batch.grow(claim, Need(position + 5)), Grown)

    def land(self) -> None:
        if not self.leases:
            return
        lease = self.leases.pop(self.draw.randrange(len(self.leases)))
        rows = len(self.ledger.view.placements(lease))
        if self.draw.random() < 0.03:
            self.ledger.quarantine(lease)
            self.lost.append(lease)
        elif self.draw.random() < 0.15:
            self.broken.extend(self.batch.land(lease, StepFailed("planted")))
        else:
            tokens = tuple(self.draw.randint(1, 5) for _ in range(rows))
            self.landed.extend(self.batch.land(lease, Absorbed(tokens)))

    def commit(self) -> None:
        if not self.landed:
            return
        working = self.landed.pop(self.draw.randrange(len(self.landed)))
        self.ledger.move(working, SCHEDULER, SESSION, "test")
        state = self.session.commit(working, replaces=None)
        self.states[self.session.version] = state

    def end(self) -> None:
        for claims in (self.broken, self.fresh, self.landed):
            if claims and self.draw.random() < 0.4:
                self.batch.rollback(claims.pop(self.draw.randrange(len(claims))))

    def close(self) -> None:
        if self.states:
            version = self.draw.choice(list(self.states))
            self.session.close(self.states.pop(version))

    def finish(self) -> None:
        """Give everything back, and let what is in quarantine land as failed."""
        while self.leases:
            self.land()
        for lease in self.lost:
            self.broken.extend(self.batch.land(lease, StepFailed("its device ended")))
        self.lost.clear()
        for claims in (self.broken, self.fresh, self.landed):
            while claims:
                self.batch.rollback(claims.pop())
        while self.states:
            self.session.close(self.states.popitem()[1])


CAPACITIES = [Capacity(6, 24, 4), Capacity(0, 24, 4), Capacity(6, 0, 4)]


@pytest.mark.parametrize("capacity", CAPACITIES, ids=["both", "pages only", "slots only"])
@pytest.mark.parametrize("seed", range(10))
def test_the_replay_follows_the_ledger(seed: int, capacity: Capacity) -> None:
    """Half-way and at the end: no problem, the same free slots and pages, the same quarantine."""
    traffic = Traffic(seed, capacity)

    traffic.run(300)
    half = traffic.ledger.view.audit()
    (replayed,) = audit_lines(traffic.log.lines).engines

    assert replayed.problems == (), f"seed {seed}"
    assert half.conserved
    assert (replayed.free_slots, replayed.free_pages) == (half.free_slots, half.free_pages)
    assert replayed.quarantined == half.quarantined

    traffic.finish()
    traffic.ledger.view.audit()
    traffic.log.record("engine.closed", {})
    (replayed,) = audit_lines(traffic.log.lines).engines

    assert replayed.problems == (), f"seed {seed}"
    assert (replayed.still_owned, replayed.leaked, replayed.quarantined) == (0, 0, 0)
    assert (replayed.free_slots, replayed.free_pages) == (capacity.slots, capacity.pages)


@pytest.mark.parametrize("seed", range(20))
def test_the_replay_follows_claims_through_all_places(seed: int) -> None:
    """Parks, files, forks of working claims and dropped pages, in any order; and at the end."""
    machine = Machine(Seeded(random.Random(seed)))
    for _ in range(120):
        machine.step()
    half, log = machine.ledger.view.audit(), Log()
    for event, fields in machine.replay.events:
        log.record(event, fields)
    (replayed,) = audit_lines(log.lines).engines

    assert replayed.problems == (), f"seed {seed}"
    assert (replayed.free_slots, replayed.free_pages) == (half.free_slots, half.free_pages)
    assert replayed.host_free_slots == half.host_free_slots
    assert replayed.host_free_pages == half.host_free_pages
    assert replayed.quarantined == half.quarantined
    machine.end()


@pytest.mark.parametrize("seed", range(5))
def test_every_lost_event_is_noticed(seed: int) -> None:
    """A log with a hole is never called conserved, whichever event is missing."""
    traffic = Traffic(seed, CAPACITIES[0])
    traffic.run(60)
    traffic.finish()
    traffic.log.record("engine.closed", {})
    lines = traffic.log.lines

    missed = [
        number
        for number in range(len(lines) - 2)
        if audit_lines([*lines[:number], *lines[number + 1 :]]).conserved
    ]

    assert missed == [], f"seed {seed}"
