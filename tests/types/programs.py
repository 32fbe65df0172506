"""Small programs, and which of their lines a type checker must reject.

A line that ends in ``# rejected`` must have an error, every other line must have none.
"""

from typing import Final

PROLOGUE: Final = """\
from collections.abc import Sequence

from ownership import (
    ZEROS,
    Absorbed,
    BaseName,
    BatchOwned,
    BatchPort,
    CacheOwned,
    CachePort,
    Capacity,
    Consume,
    CustodianId,
    Lease,
    Ledger,
    Need,
    Owns,
    Refused,
    SessionOwned,
    SessionPort,
    SlotIndex,
    StepFailed,
)

__all__ = [
    "ZEROS", "Absorbed", "BaseName", "BatchOwned", "BatchPort", "CacheOwned", "CachePort",
    "Capacity", "Consume", "CustodianId", "Lease", "Ledger", "Need", "Owns", "Refused",
    "Sequence", "SessionOwned", "SessionPort", "SlotIndex", "StepFailed",
]

"""

REJECTED: Final = {
    "rollback_of_a_sessions_state_by_the_scheduler": """\
def the_seeds_bug(port: BatchPort, state: SessionOwned) -> None:
    port.rollback(state)  # rejected
""",
    "rollback_of_a_sessions_state_by_the_session": """\
def the_seeds_bug(port: SessionPort, state: SessionOwned) -> None:
    port.rollback(state)  # rejected
""",
    "rollback_of_a_sessions_state_by_the_cache": """\
def the_seeds_bug(port: CachePort, state: SessionOwned) -> None:
    port.rollback(state)  # rejected
""",
    "rollback_of_what_may_be_a_sessions_state": """\
def guess(port: BatchPort, handle: BatchOwned | SessionOwned) -> None:
    port.rollback(handle)  # rejected
""",
    "rollback_of_a_cached_state": """\
def give_back(port: CachePort, state: CacheOwned) -> None:
    port.rollback(state)  # rejected
""",
    "rollback_of_a_lease": """\
def give_back(port: BatchPort, lease: Lease) -> None:
    port.rollback(lease)  # rejected
""",
    "rollback_of_a_refusal": """\
def give_back(port: BatchPort) -> None:
    claim = port.reserve(Need(1), ZEROS, turn="turn")
    port.rollback(claim)  # rejected
""",
    "rollback_of_nothing_and_of_integers": """\
def give_back(port: BatchPort, slot: SlotIndex) -> None:
    port.rollback(None)  # rejected
    port.rollback(-1)  # rejected
    port.rollback(slot)  # rejected
""",
    "close_of_a_working_claim": """\
def close(port: SessionPort, claim: BatchOwned) -> None:
    port.close(claim)  # rejected
""",
    "evict_of_a_sessions_state": """\
def evict(port: CachePort, state: SessionOwned) -> None:
    port.evict(state)  # rejected
""",
    "admit_of_a_sessions_state": """\
def publish(port: CachePort, state: SessionOwned) -> None:
    port.admit(state)  # rejected
""",
    "launch_of_a_sessions_state": """\
def launch(port: BatchPort, claim: BatchOwned, state: SessionOwned) -> None:
    port.launch([claim, state], step=1)  # rejected
""",
    "commit_of_a_sessions_state": """\
def commit(port: SessionPort, claim: BatchOwned, state: SessionOwned) -> None:
    port.commit(state, replaces=None)  # rejected
    port.commit(claim, replaces=claim)  # rejected
""",
    "commit_that_does_not_say_what_it_replaces": """\
def commit(port: SessionPort, claim: BatchOwned) -> None:
    port.commit(claim)  # rejected
""",
    "land_of_a_claim": """\
def land(port: BatchPort, claim: BatchOwned) -> None:
    port.land(claim, StepFailed("no"))  # rejected
""",
    "verbs_that_a_port_does_not_have": """\
def borrow_a_verb(batch: BatchPort, session: SessionPort, state: SessionOwned) -> None:
    batch.close(state)  # rejected
    session.evict(state)  # rejected
    session.free(state)  # rejected
""",
    "move_of_a_lease": """\
def post(ledger: Ledger, lease: Lease) -> None:
    ledger.move(lease, CustodianId("a"), CustodianId("b"), "post")  # rejected
""",
    "bare_strings_are_not_custodians": """\
def bind(ledger: Ledger) -> None:
    ledger.batch_port("scheduler")  # rejected
""",
    "building_a_handle": """\
BatchOwned()  # rejected
SessionOwned(None, None)  # rejected
CacheOwned(1)  # rejected
Lease()  # rejected
""",
    "subclassing_a_handle": """\
class MyBatch(BatchOwned):  # rejected
    pass


class MySession(SessionOwned):  # rejected
    pass


class MyCache(CacheOwned):  # rejected
    pass


class MyLease(Lease):  # rejected
    pass
""",
    "subclassing_a_port": """\
class MyBatchPort(BatchPort):  # rejected
    pass


class MySessionPort(SessionPort):  # rejected
    pass


class MyCachePort(CachePort):  # rejected
    pass
""",
    "one_handle_for_another": """\
def keep(claim: BatchOwned, cached: CacheOwned) -> SessionOwned:
    state: SessionOwned = claim  # rejected
    other: BatchOwned = cached  # rejected
    print(other)
    return state
""",
    "a_mark_checks_what_it_marks": """\
def give_back(claim: Consume[BatchOwned]) -> None: ...


def confuse(state: SessionOwned, claims: Owns[dict[str, BatchOwned]]) -> None:
    give_back(state)  # rejected
    claims["turn"] = state  # rejected
""",
    "options_that_the_blocking_door_does_not_have": """\
from kernel import BlockingEngine

with BlockingEngine(progres=print) as engine:  # rejected
    engine.complete("hello", timeout=5)  # rejected
    engine.map(["hello"], concurency=2)  # rejected
    with engine.stream("hello", priority="high"):  # rejected
        pass
    with engine.session(sesion_id="a") as session:  # rejected
        session.append("hello", timeout_s="5")  # rejected
        session.complete("hello", wait_s=1)  # rejected
        with session.turn("hello", on_exit="drop"):  # rejected
            pass
        with session.fork(resume=True):  # rejected
            pass
""",
}

ACCEPTED: Final = {
    "options_that_the_blocking_door_has": """\
from kernel import BlockingEngine

with BlockingEngine(session_files=None) as engine:
    engine.complete("hello", timeout_s=5, tenant="me")
    engine.map(["hello"], concurrency=2)
    with engine.session(session_id="a", resume=True) as session:
        session.append("hello", wait=True)
        with session.turn("hello", on_exit="keep", request_id="b") as deltas:
            print([delta.text for delta in deltas])
        with session.fork(detached=True) as fork:
            print(fork.info.num_tokens)
""",
    "the_life_of_a_turn": """\
def turn(ledger: Ledger, scheduler: CustodianId, session: CustodianId) -> None:
    batch, port = ledger.batch_port(scheduler), ledger.session_port(session)
    claim = batch.reserve(Need(9), ZEROS, turn="turn-1")
    if isinstance(claim, Refused):
        print(claim.slots_short, claim.pages_short)
        return
    lease: Lease = batch.launch([claim], step=1)
    (claim,) = batch.land(lease, Absorbed((9,)))
    ledger.move(claim, scheduler, session, "Finished")
    state: SessionOwned = port.commit(claim, replaces=None)
    later = batch.reserve(Need(12), BaseName(session, port.version), turn="turn-2")
    if not isinstance(later, Refused):
        batch.rollback(later)
    port.close(state)
""",
    "commit_replaces_a_state": """\
def commit(port: SessionPort, claim: BatchOwned, state: SessionOwned | None) -> SessionOwned:
    return port.commit(claim, replaces=state)
""",
    "whoever_receives_a_claim_can_give_it_back": """\
def all_three(
    batch: BatchPort, session: SessionPort, cache: CachePort, claims: Sequence[BatchOwned]
) -> None:
    batch.rollback(claims[0])
    session.rollback(claims[1])
    cache.rollback(claims[2])
""",
    "the_cache_keeps_and_evicts": """\
def publish(port: CachePort, claim: BatchOwned) -> None:
    cached: CacheOwned = port.admit(claim)
    port.evict(cached)
""",
    "marks_are_erased": """\
def give_back(port: BatchPort, claim: Consume[BatchOwned]) -> None:
    port.rollback(claim)


class Keeper:
    claims: Owns[dict[str, BatchOwned]]

    def __init__(self) -> None:
        self.claims = {}

    def let_go(self, port: BatchPort, turn: str) -> None:
        give_back(port, self.claims.pop(turn))
""",
    "a_ledger_of_ones_own": """\
ledger = Ledger(Capacity(slots=4, pages=64, page_size=16))
print(ledger.view.free_slots, ledger.view.audit().conserved)
""",
}

PROGRAMS: Final = REJECTED | ACCEPTED


def rejected_lines(name: str) -> set[int]:
    """Lines of a program that must have an error."""
    lines = PROGRAMS[name].splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# rejected")}
