"""What ownership costs: a handle's way through a mailbox, and a lease of 64 rows."""

import time
from typing import ClassVar

import attrs

from adapters.cli.bench.clock import best_of
from kernel.actors.mailbox import Mailbox
from ownership import (
    ZEROS,
    Absorbed,
    BatchOwned,
    BatchPort,
    Capacity,
    CustodianId,
    Ledger,
    Need,
    Refused,
)

__all__ = ["lease_us", "ledger_ns"]

ROWS = 64
SCHEDULER = CustodianId("scheduler")
SESSION = CustodianId("session:bench")


@attrs.frozen
class _Finished:
    carries: ClassVar[tuple[str, ...]] = ("claim",)
    claim: BatchOwned


def ledger_ns(*, batches: int = 200, repeats: int = 9) -> float:
    """Nanoseconds of one handle through post, take and one verb, checks on, no observer."""
    ledger = Ledger(Capacity(ROWS, 4 * ROWS, 16))
    batch = ledger.batch_port(SCHEDULER)
    session = ledger.session_port(SESSION)
    mailbox = Mailbox[_Finished](SESSION, ledger, bound=ROWS, ready=_nothing)
    post, take, rollback = mailbox.post, mailbox.take, session.rollback

    def measure() -> float:
        total = 0.0
        for _ in range(batches):
            messages = [_Finished(claim) for claim in _reserve(batch)]
            started = time.perf_counter()
            for message in messages:
                if (left := post(message, SCHEDULER)) is not None:
                    batch.rollback(left.claim)
            for _ in range(ROWS):
                rollback(take().claim)
            total += time.perf_counter() - started
            mailbox.queued = False
        return total / (batches * ROWS)

    return round(best_of(repeats, measure) * 1e9, 1)


def lease_us(*, steps: int = 200, repeats: int = 9) -> float:
    """Microseconds of launching and landing a decode step of 64 rows."""
    ledger = Ledger(Capacity(ROWS, 64 * ROWS, 16))
    batch = ledger.batch_port(SCHEDULER)
    outcome = Absorbed((1,) * ROWS)

    def measure() -> float:
        claims = _reserve(batch, positions=16 * 32)
        started = time.perf_counter()
        for step in range(steps):
            batch.land(batch.launch(claims, step=step), outcome)
        spent = time.perf_counter() - started
        for claim in claims:
            batch.rollback(claim)
        return spent / steps

    return round(best_of(repeats, measure) * 1e6, 2)


def _reserve(batch: BatchPort, positions: int = 16) -> list[BatchOwned]:
    claims = [batch.reserve(Need(positions), ZEROS, turn="bench") for _ in range(ROWS)]
    return [claim for claim in claims if not isinstance(claim, Refused)]


def _nothing(_mailbox: Mailbox[_Finished]) -> None:
    """The bench takes from the mailbox itself."""
