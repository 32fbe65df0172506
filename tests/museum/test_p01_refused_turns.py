"""P1: something is taken before admission, and a refused or dropped turn keeps it or frees more."""

import pytest

from kernel.errors import QueueFull, QueueTimeout, RequestAborted
from kernel.ids import SessionId, TurnId
from ownership import ZEROS, Absorbed, BaseName, Capacity, CustodianId, Ledger, Need, Refused
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.pool import Pool
from tests.museum.acts import (
    greedy,
    held,
    hop_by_hop,
    judge,
    one_shot,
    prompt,
    resting,
    talk,
    working,
)
from tests.museum.exhibit import exhibit


@exhibit("M001", pattern="P1", guard="protocol", bug="refusal-keeps-a-slot")
def test_m001_a_refused_turn_takes_nothing() -> None:
    """sgl-project/sglang#21404: the state was copied into a slot before admission said no.

    Match, pin and reserve are one step here, which changes nothing when it refuses.
    """
    world = Loopless.open(num_slots=3, num_pages=8)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    filler = one_shot(world, "filler", prompt(16, 1), 8)
    world.step()
    free = world.free
    turn = world.start(session, prompt(12, 2), greedy(2))

    assert world.free == free == (1, 1)
    while filler.output.end is None:
        assert working(world, turn) is None
        assert world.free[0] == 1
        assert [claim.pinned for claim in held(world, session)] == [0]
        world.step()
    world.finish(turn)
    judge(log, prompt(12, 2), turn)
    world.close(session)
    world.assert_all_free()

    ledger = Ledger(Capacity(slots=2, pages=4, page_size=4))
    batch, cache = ledger.batch_port(CustodianId("s")), ledger.cache_port(CustodianId("c"))
    claim = batch.reserve(Need(6), ZEROS, turn="writer")
    assert not isinstance(claim, Refused)
    (claim,) = batch.land(batch.launch([claim], step=1), Absorbed((6,)))
    ledger.move(claim, CustodianId("s"), CustodianId("c"), "publish")
    cached = cache.admit(claim)
    refused = batch.reserve(Need(20), BaseName(CustodianId("c"), 1), turn="reader")
    assert refused == Refused("room", 0, 2)
    assert (ledger.view.free_slots, ledger.view.describe(cached).pinned) == (1, 0)
    assert ledger.audit().conserved


@exhibit(
    "M002",
    pattern="P1",
    guard="type",
    bug="types:rollback_of_a_sessions_state_by_the_scheduler",
)
def test_m002_a_refused_turn_gives_back_nothing_of_its_session() -> None:
    """sgl-project/sglang#23327: the undo freed the slot that the session had since turn 1.

    The scheduler has no handle of a session's, and its port would not take one.
    """
    world = Loopless.open(num_slots=3, num_pages=8)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    (owned,) = held(world, session)
    filler = one_shot(world, "filler", prompt(16, 1), 8)
    world.step()
    turn = world.start(session, prompt(12, 2), greedy(2))
    other = one_shot(world, "other", prompt(3, 3), 2)

    for _ in range(3):
        assert held(world, session) == (owned,)
        world.step()
    world.cancel(world.core.sessions[SessionId("filler")], filler)
    world.step()
    mine, others = working(world, turn), working(world, other)
    assert mine is not None
    assert others is not None
    assert len({owned.slot, mine.slot, others.slot}) == 3
    assert [claim.slot for claim in held(world, session)] == [owned.slot]
    world.finish(turn)
    world.finish(other)
    judge(log, prompt(12, 2), turn)
    judge([], prompt(3, 3), other)

    state = session.state.state
    assert state is not None
    pool = Pool(slots=1)
    with pytest.raises(TypeError, match="SessionPort.close"):
        pool.port.rollback(state)  # type: ignore[arg-type]
    world.close(session)
    world.assert_all_free()


@exhibit("M003", pattern="P1", guard="ledger", bug="preempted-keeps-its-claim")
def test_m003_whatever_waits_is_in_a_named_column() -> None:
    """sgl-project/sglang#16067: a slot of a turn that waits stood in nobody's books.

    A waiting turn holds nothing, the preempted one included; the count is right after every message
    and not only at rest.
    """
    world = Loopless.open(num_slots=3, num_pages=7)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(3), 2)
    senior = one_shot(world, "senior", prompt(8, 1), 13)
    junior = one_shot(world, "junior", prompt(8, 2), 6)
    world.step(3)
    waiting = world.start(session, prompt(14, 3), greedy(2))

    seen = 0
    while senior.output.end is None:
        world.device.complete()
        hop_by_hop(world)
        audit = world.core.ledger.audit()
        assert audit.free_slots + audit.batch + audit.session == 3
        if working(world, junior) is None and junior.output.end is None:
            seen += 1
            assert audit.batch == 1
    assert seen
    assert junior.output.preemptions
    for request in (junior, waiting):
        world.finish(request)
    judge([], prompt(8, 1), senior)
    judge([], prompt(8, 2), junior)
    judge(log, prompt(14, 3), waiting)
    world.close(session)
    world.assert_all_free()


@exhibit("M005", pattern="P1", guard="protocol", bug="door-not-left")
@pytest.mark.parametrize("why", ["limit", "timeout", "cancel"])
def test_m005_a_waiting_turn_that_is_dropped_leaves_nothing(why: str) -> None:
    """sgl-project/sglang#20182: three ways to drop a waiting turn skipped the clean-up.

    There is one way for a turn to end, whatever the reason.
    """
    world = Loopless.open(num_slots=2, num_pages=32, max_num_seqs=1, max_num_queued_reqs=1)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    running = one_shot(world, "running", prompt(4, 1), 6)
    world.step()
    tokens = prompt(4, 2)
    turn = world.start(session, tokens, greedy(2), queue_timeout_s=5.0)
    assert session.phase == "queued"
    assert world.core.door.queued_reqs == 1
    if why == "limit":
        with pytest.raises(QueueFull):
            world.core.door.enter(TurnId("late"), 2)
        world.cancel(session, turn)
    elif why == "timeout":
        world.advance(5)
        assert isinstance(error_of(turn), QueueTimeout)
    else:
        world.cancel(session, turn)
        assert isinstance(error_of(turn), RequestAborted)

    assert world.core.door.queued_reqs == 0
    assert [claim.pinned for claim in held(world, session)] == [0]
    assert resting(session).version == 1
    world.finish(running)
    talk(world, session, log, tokens, 2)
    world.close(session)
    world.assert_all_free()


@exhibit("M017", pattern="P1", guard="protocol", bug="second-admission-forgets-the-base")
@pytest.mark.parametrize("ends_by", ["finish", "close"])
def test_m017_a_turn_may_start_from_its_session_as_often_as_it_must(ends_by: str) -> None:
    """sgl-project/sglang#20476: the first lending destroyed the record that the second one needed.

    A turn names its base; a chunked prompt that loses its row starts from the same base again, and
    nothing stays pinned.
    """
    world = Loopless.open(
        num_slots=4,
        num_pages=40,
        max_num_seqs=1,
        max_num_batched_tokens=4,
        scheduling_policy="priority",
    )
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    base = resting(session)
    tokens = prompt(12, 2)
    turn = world.start(session, tokens, greedy(3))
    for chunks in range(3):
        world.step(chunks)
        urgent = one_shot(world, f"urgent-{chunks}", prompt(2, chunks), 2, priority=-9)
        world.step()
        assert working(world, turn) is None
        assert resting(session) == base
        assert [claim.pinned for claim in held(world, session)] == [0]
        world.finish(urgent)
        again = working(world, turn)
        assert again is not None
        assert again.position == 7, "it starts from its base again"
    if ends_by == "finish":
        world.finish(turn)
        judge(log, tokens, turn)
        assert turn.output.preemptions == 3
        talk(world, session, log, prompt(2, 9), 2)
    world.close(session)
    while world.device.waiting:
        world.step()
    world.assert_all_free()
