"""P19: check, then act; or a change of many steps that is not atomic."""

from ownership import CustodianId
from tests.kernel.pool import Pool
from tests.museum.exhibit import exhibit


@exhibit("M047", pattern="P19", guard="ledger", bug="one-copy-ends-every-pin")
def test_m047_an_end_gives_up_what_was_taken_and_no_more() -> None:
    """sgl-project/sglang#27038: a temporary lock was dropped without its boundary, to the root.

    The pin is part of the working claim. One reader comes and goes; the base is still the other's,
    also when it is closed meanwhile.
    """
    pool = Pool(slots=4)
    base = pool.rest("a", 10)
    reader = pool.reserve(12, base, turn="reader")
    passing = pool.reserve(12, base, turn="passing")
    found = pool.view.find_base(base)
    assert found is not None
    assert found.pinned == 2
    pool.port.rollback(passing)
    found = pool.view.find_base(base)
    assert found is not None
    assert found.pinned == 1

    state = pool.states.pop()
    pool.ledger.session_port(CustodianId("session:a")).close(state)
    assert (pool.view.draining_slots, pool.view.free_slots) == (1, 2)
    assert pool.ledger.audit().conserved
    pool.land([reader], 1)
    assert (pool.view.draining_slots, pool.view.free_slots) == (0, 3)
    pool.port.rollback(reader)
    assert pool.ledger.audit().at_rest


@exhibit("M048", pattern="P19", guard="ledger", bug="pin-needs-a-full-page")
def test_m048_what_is_unlocked_is_what_was_locked() -> None:
    """sgl-project/sglang#21379: a part that was absent at the lock was there at the unlock.

    A claim remembers the very state that it has pinned, with or without full pages, whatever its
    session commits in between.
    """
    pool = Pool(slots=4)
    first = pool.rest("a", 3)
    reader = pool.reserve(9, first, turn="reader")
    writer = pool.reserve(9, first, turn="writer")
    pool.land([writer], 5)
    session = CustodianId("session:a")
    port = pool.ledger.session_port(session)
    pool.ledger.move(writer, CustodianId("scheduler"), session, "test")
    state = pool.states.pop()
    pool.states.append(port.commit(writer, replaces=state))
    del state
    assert pool.view.find_base(first) is None
    assert pool.view.draining_slots == 1
    (newest,) = pool.view.resting()
    pool.land([reader], 2)
    assert pool.view.draining_slots == 0
    found = pool.view.find_base(newest)
    assert found is not None
    assert (found.position, found.pinned) == (8, 0)
    assert pool.ledger.audit().conserved
    pool.port.rollback(reader)
    port.close(pool.states.pop())
    assert pool.ledger.audit().at_rest
