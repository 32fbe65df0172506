"""P6: a state is published before it is written, or without ever being written."""

from collections.abc import Callable

import pytest

from kernel.errors import RequestAborted
from ownership import DEVICE, Absorbed, BatchOwned, CustodianId, LedgerError, StaleHandle
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.pool import Pool
from tests.museum.acts import greedy, held, judge, one_shot, prompt, resting, working
from tests.museum.exhibit import exhibit


@exhibit("M032", pattern="P6", guard="ledger", bug="unwritten-state-is-published")
def test_m032_a_state_can_be_kept_only_when_its_step_has_landed() -> None:
    """sgl-project/sglang#24221: a snapshot was taken before the step had written it.

    Before the launch the claim is not valid, during it the device has it; the landing alone makes
    it something that can be published or committed.
    """
    world = Loopless.open(num_slots=3, num_pages=30, max_num_batched_tokens=4)
    session, log = world.session("s"), list[int]()
    turn = world.start(session, prompt(11), greedy(2))
    while turn.output.end is None:
        assert world.core.ledger.view.resting() == ()
        world.step()
    judge(log, prompt(11), turn)
    assert [claim.position for claim in held(world, session)] == [12]
    world.close(session)
    world.assert_all_free()

    pool = Pool(slots=3)
    base = pool.rest("a", 6)
    claim = pool.reserve(8, base)
    me = CustodianId("scheduler")
    kept: list[Callable[[BatchOwned], object]] = [
        pool.ledger.cache_port(me).admit,
        lambda handle: pool.ledger.session_port(me).commit(handle, replaces=None),
    ]
    for keep in kept:
        with pytest.raises(LedgerError, match="not valid"):
            keep(claim)
    lease = pool.port.launch([claim], step=7)
    for keep in kept:
        with pytest.raises(StaleHandle, match="on the device"):
            keep(claim)
    pool.port.land(lease, Absorbed((1,)))
    cached = pool.ledger.cache_port(me).admit(claim)
    assert pool.view.position(cached) == 7
    assert pool.ledger.audit().conserved
    pool.ledger.cache_port(me).evict(cached)


@exhibit("M034", pattern="P6", guard="position check", bug="rows-share-one-length")
def test_m034_a_landing_books_what_its_own_row_absorbed() -> None:
    """sgl-project/sglang#29792: the result of one batch read a length that the next had moved.

    What each row absorbs is fixed at the launch, and the landing adds exactly that: a page is
    frozen by the turn that has filled it.
    """
    world = Loopless.open(num_slots=3, num_pages=40, max_num_batched_tokens=7)
    requests = [one_shot(world, f"r{n}", prompt(6 + 5 * n, n), 6) for n in range(3)]
    view = world.core.ledger.view
    while any(request.output.end is None for request in requests):
        (step,) = world.device.waiting
        expected = {row.slot: row.position + len(row.tokens) for row in step.rows}
        assert {claim.slot for claim in view.held_by(DEVICE)} == expected.keys()
        slots = {claim.slot: request for request in requests if (claim := working(world, request))}
        world.step()
        for slot, request in slots.items():
            claim = working(world, request)
            if slot in expected and claim is not None:
                assert claim.position == expected[slot]
                assert len(claim.pages) - claim.exclusive == claim.position // 4
    for number, request in enumerate(requests):
        judge([], prompt(6 + 5 * number, number), request)
    world.assert_all_free()


@exhibit("M080", pattern="P6", guard="protocol", bug="prompt-in-the-log-at-once")
@pytest.mark.parametrize("moment", ["queued", "launched", "between", "last"])
def test_m080_a_prefill_that_was_cancelled_leaves_nothing_to_hit(moment: str) -> None:
    """vllm-project/vllm#56525: the key was published when planned; the retry hit what never was.

    The log grows and the state is named in the commit alone, so the retry of a cancelled prefill is
    the cold run, wherever the cancel struck.
    """
    world = Loopless.open(num_slots=1, num_pages=40, max_num_batched_tokens=4)
    session, log = world.session("s"), list[int]()
    blocker = one_shot(world, "blocker", prompt(2, 7), 2) if moment == "queued" else None
    turn = world.start(session, prompt(13), greedy(3))
    if moment in ("between", "last"):
        world.step(1 if moment == "between" else 3)
    world.cancel(session, turn)
    assert isinstance(error_of(turn), RequestAborted)
    assert world.core.ledger.view.resting() == ()
    assert session.state.log.tolist() == []
    retry = world.start(session, prompt(13), greedy(3))
    if blocker is not None:
        world.finish(blocker)
    world.finish(retry)
    judge(log, prompt(13), retry)
    assert retry.output.prompt_tokens == 13
    assert retry.output.cached_tokens == 0
    assert resting(session).version == 1
    assert not world.device.poison_reads
    world.close(session)
    world.assert_all_free()
