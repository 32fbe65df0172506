"""P5: memory is given back while a launched step or a copy still uses it."""

from kernel.errors import EngineFault, SessionClosed
from kernel.step import DeviceStep
from ownership import DEVICE, Absorbed, CustodianId
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.pool import Pool
from tests.museum.acts import greedy, held, is_open, judge, one_shot, prompt, resting, talk, working
from tests.museum.exhibit import exhibit


@exhibit("M015", pattern="P5", guard="protocol", bug="close-lands-the-step-at-once")
def test_m015_a_close_while_decoding_waits_for_the_step_with_its_slot() -> None:
    """sgl-project/sglang#21875: close freed the slot that a forward step still wrote.

    The session is closed at once; the slot is the lease's until the step lands, and comes back
    exactly once.
    """
    world = Loopless.open(num_slots=1, num_pages=20)
    session = world.session("s")
    turn = world.start(session, prompt(5), greedy(9))
    world.step(2)
    mine = working(world, turn)
    assert mine is not None
    rollbacks = world.core.ledger.view.counters.rollbacks

    world.close(session)
    other = one_shot(world, "other", prompt(3, 1), 2)
    assert isinstance(error_of(turn), SessionClosed)
    assert world.free[0] == 0
    assert [claim.slot for claim in world.core.ledger.view.held_by(DEVICE)] == [mine.slot]
    assert working(world, other) is None
    world.step()
    assert world.core.ledger.view.counters.rollbacks == rollbacks + 1
    others = working(world, other)
    assert others is not None
    assert others.slot == mine.slot
    world.finish(other)
    judge([], prompt(3, 1), other)
    assert not world.device.poison_reads
    world.assert_all_free()


@exhibit("M030", pattern="P5", guard="deadline", bug="idle-clock-runs-on-in-a-turn")
def test_m030_a_session_is_not_idle_in_a_turn() -> None:
    """sgl-project/sglang#28140: idle time counted from the submit, so long turns were reaped.

    The idle clock stands while a turn is live and starts anew when one has ended, also one that
    came and went between two looks.
    """
    world = Loopless.open(num_slots=2, num_pages=20)
    session, log = world.session("s", idle_timeout_s=2.0), list[int]()
    turn = world.start(session, prompt(5), greedy(6))
    for _ in range(6):
        world.advance(1)
        assert is_open(session)
        world.step()
    judge(log, prompt(5), turn)
    world.advance(1.9)
    talk(world, session, log, prompt(2, 1), 1)  # Comes and goes at one moment.
    world.advance(1.9)
    assert is_open(session)
    assert held(world, session)
    world.advance(0.2)
    assert not is_open(session)
    world.assert_all_free()


def _slots(step: DeviceStep) -> set[object]:
    return {row.slot for row in step.rows}


@exhibit("M038", pattern="P5", guard="protocol", bug="ended-turn-stays-in-the-roster")
def test_m038_a_turn_that_its_result_ends_is_not_in_the_next_step() -> None:
    """sgl-project/sglang#28986: the next batch was planned before the result that ended a turn.

    A landing is judged before the next step is planned, and a plan is a lease on what it names.
    """
    world = Loopless.open(num_slots=3, num_pages=30)
    first = one_shot(world, "first", prompt(3), 3)
    other = one_shot(world, "other", prompt(4, 1), 7)
    world.step(2)
    mine = working(world, first)
    assert mine is not None
    assert mine.slot in _slots(world.device.waiting[0])
    world.step()
    assert first.output.end is not None
    assert working(world, first) is None
    (step,) = world.device.waiting
    assert mine.slot not in _slots(step)
    assert len(step.rows) == 1
    world.finish(other)
    judge([], prompt(3), first)
    judge([], prompt(4, 1), other)
    world.assert_all_free()


@exhibit("M045", pattern="P5", guard="protocol", bug="chunk-gives-up-its-room")
def test_m045_a_chunked_turn_keeps_its_slot_and_its_pages() -> None:
    """sgl-project/sglang#17850: the row went back after each chunk; another request got it.

    Room is taken once, for the whole prompt, and is the turn's until it ends.
    """
    world = Loopless.open(num_slots=2, num_pages=20, max_num_batched_tokens=4)
    long = one_shot(world, "long", prompt(15), 2)
    mine = working(world, long)
    assert mine is not None
    other = one_shot(world, "other", prompt(3, 1), 2)
    chunks = 0
    while not long.output.tokens:
        claim = working(world, long)
        assert claim is not None
        assert (claim.slot, claim.pages[:4], claim.generation) == (
            mine.slot,
            mine.pages[:4],
            mine.generation,
        )
        others = working(world, other)
        assert others is None or others.slot != mine.slot
        world.step()
        chunks += 1
    assert chunks == 4
    for request, tokens in ((long, prompt(15)), (other, prompt(3, 1))):
        world.finish(request)
        judge([], tokens, request)
    assert not world.device.poison_reads
    world.assert_all_free()


@exhibit("M062", pattern="P5", guard="ledger", bug="dead-pool-lands-its-leases")
def test_m062_what_may_still_be_written_is_nobodys() -> None:
    """sgl-project/sglang#37077: the receiver freed its pages while the sender still wrote.

    A step that is given up keeps its slot and pages in quarantine until it is proven quiet; the
    next client gets others, and what is written late hurts nobody.
    """
    world = Loopless.open(num_slots=2, num_pages=20, step_timeout_s=10.0)
    world.device.hang_next()
    lost = one_shot(world, "lost", prompt(9), 4)
    mine = working(world, lost)
    assert mine is not None
    world.advance(11)
    assert isinstance(error_of(lost), EngineFault)
    audit = world.core.ledger.audit()
    assert (audit.quarantined_slots, audit.quarantined_pages) == (1, 3)

    other = one_shot(world, "other", prompt(9, 1), 4)
    others = working(world, other)
    assert others is not None
    assert others.slot != mine.slot
    assert not {*others.pages} & {*mine.pages}
    world.step(2)
    world.device.unhang()
    world.device.complete()
    world.run()
    assert world.core.ledger.audit().quarantined_slots == 0
    world.finish(other)
    judge([], prompt(9, 1), other)
    world.assert_all_free()


@exhibit("M063", pattern="P5", guard="ledger", bug="first-copy-ends-the-drain")
def test_m063_a_drain_ends_with_the_last_of_its_readers() -> None:
    """sgl-project/sglang#38961: one target was stored for an acknowledgement that two wanted.

    Each working claim is its own pin on the base: a closed base stays until both copies have
    landed, in whatever order, and nobody has to be told.
    """
    pool = Pool(slots=4)
    holder = CustodianId("session:a")
    base = pool.rest("a", 6)
    claims = [pool.reserve(8, base, turn=f"reader-{number}") for number in range(2)]
    state = pool.states.pop()
    source = pool.view.slot_of(state)
    pool.ledger.session_port(holder).close(state)
    del state
    leases = [pool.port.launch([claim], step=2 + n) for n, claim in enumerate(claims)]
    for lease in leases:
        (place,) = pool.view.placements(lease)
        assert getattr(place.initial, "slot", None) == source
    assert (pool.view.draining_slots, pool.view.free_slots) == (1, 1)
    (second,) = pool.port.land(leases[1], Absorbed((1,)))
    assert (pool.view.draining_slots, pool.view.free_slots) == (1, 1)
    assert pool.ledger.audit().conserved
    (first,) = pool.port.land(leases[0], Absorbed((1,)))
    assert (pool.view.draining_slots, pool.view.free_slots) == (0, 2)
    pool.port.rollback(first)
    pool.port.rollback(second)
    assert pool.ledger.audit().at_rest


@exhibit("M064", pattern="P5", guard="protocol", bug="cancelled-row-keeps-its-claim")
def test_m064_a_late_result_ends_its_lease_once() -> None:
    """sgl-project/sglang#36926: the result of a chunk came after the abort, and had no owner.

    The lease brings every claim back, wanted or not, and the row of a cancelled turn is given back
    right there.
    """
    world = Loopless.open(num_slots=3, num_pages=30, max_num_batched_tokens=4)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    base, free = resting(session), world.free
    turn = world.start(session, prompt(11, 1), greedy(3))
    world.step()
    world.cancel(session, turn)
    assert world.core.ledger.view.held_by(DEVICE)
    assert world.free != free
    world.step()
    assert world.free == free
    assert working(world, turn) is None
    assert resting(session) == base
    assert not world.device.waiting
    talk(world, session, log, prompt(3, 2), 3)
    world.close(session)
    world.assert_all_free()
