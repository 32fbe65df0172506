"""P4: a sentinel, a null or a padding index is treated as a real slot."""

from typing import Any

import pytest

from adapters.fake_device import FakeDevice
from kernel.step import DeviceStep
from ownership import DEVICE, NO_SLOT, ZEROS, Capacity, CustodianId, Ledger, Need, Refused
from tests.kernel.loopless import Loopless
from tests.kernel.pool import Pool
from tests.museum.acts import greedy, held, judge, one_shot, prompt, talk, working
from tests.museum.exhibit import exhibit


@exhibit("M010", pattern="P4", guard="ledger", bug="absent-slot-is-given-back")
@pytest.mark.parametrize("ends_by", ["close", "cancel"])
def test_m010_what_was_never_taken_is_not_given_back(ends_by: str) -> None:
    """sgl-project/sglang#40044: the places of a bundle that were not taken yet were freed as well.

    A part that is not there has a type of its own: a claim without a slot gives no slot back.
    """
    device = FakeDevice(mode="manual", eos_token_ids=(), uses_slots=False)
    world = Loopless.open(device=device, num_pages=12)
    session = world.session("s")
    first = world.start(session, prompt(5), greedy(3))
    world.finish(first)
    (claim,) = held(world, session)
    assert claim.slot is NO_SLOT
    assert session.state.checkpoint is None
    turn = world.start(session, prompt(2, 1), greedy(9))
    world.step(2)
    if ends_by == "cancel":
        world.cancel(session, turn)
    world.close(session)
    while world.device.waiting:
        world.step()
    world.assert_all_free()
    assert world.free == (0, 12)

    ledger = Ledger(Capacity(slots=8, pages=0, page_size=1))
    port = ledger.batch_port(CustodianId("s"))
    taken = [port.reserve(Need(1), ZEROS, turn=f"turn-{number}") for number in range(8)]
    claims = [each for each in taken if not isinstance(each, Refused)]
    assert {ledger.view.slot_of(each) for each in claims} == set(range(8))
    assert port.reserve(Need(1), ZEROS, turn="ninth") == Refused("room", 1, 0)
    for each in claims:
        port.rollback(each)
    assert ledger.view.free_slots == 8


@exhibit("M013", pattern="P4", guard="type", bug="types:rollback_of_nothing_and_of_integers")
@pytest.mark.parametrize("sentinel", [None, -1, 0, NO_SLOT])
def test_m013_no_sentinel_reaches_the_pool(sentinel: Any) -> None:
    """sgl-project/sglang#38836: one caller of many filtered the sentinel; the allocator did not.

    Every caller passes the port, and the port takes handles.
    """
    pool = Pool(slots=2)
    mine = pool.reserve(2)
    verbs: list[Any] = [pool.port.rollback, pool.ledger.session_port(CustodianId("x")).close]
    for verb in verbs:
        with pytest.raises(TypeError, match="takes a"):
            verb(sentinel)
    assert pool.view.free_slots == 1
    other = pool.reserve(2)
    assert {pool.view.slot_of(mine), pool.view.slot_of(other)} == {0, 1}
    assert pool.ledger.audit().conserved
    pool.port.rollback(mine)
    pool.port.rollback(other)


@exhibit("M037", pattern="P4", guard="type", bug="types:rollback_of_a_refusal")
def test_m037_what_may_be_absent_has_to_be_looked_at_first() -> None:
    """sgl-project/sglang#34786: the index of a buffer that was still to be taken was used.

    ``reserve`` answers with a handle or with a refusal, which no verb takes for one.
    """
    pool = Pool(slots=1)
    first = pool.reserve(2)
    refused = pool.port.reserve(Need(2), ZEROS, turn="late")
    assert isinstance(refused, Refused)
    absent: Any = refused
    assert refused.slots_short == 1
    with pytest.raises(TypeError, match="not Refused"):
        pool.port.launch([first, absent], step=1)
    with pytest.raises(TypeError, match="not Refused"):
        pool.port.grow(absent, Need(5))
    with pytest.raises(TypeError, match="not Refused"):
        pool.port.rollback(absent)
    pool.land([first], 2)
    assert pool.view.position(first) == 2
    assert pool.ledger.audit().conserved
    pool.port.rollback(first)


def _check_rows(world: Loopless, step: DeviceStep) -> None:
    """Every row of a step names a slot and pages of a claim that is lent to it, each once."""
    lent = {claim.slot: claim for claim in world.core.ledger.view.held_by(DEVICE)}
    slots = [row.slot for row in step.rows]
    assert len(set(slots)) == len(slots) == len(lent)
    for row in step.rows:
        assert tuple(row.pages) == lent[row.slot].pages
        assert row.position == lent[row.slot].position


@exhibit("M081", pattern="P4", guard="protocol", bug="ended-turn-stays-in-the-roster")
def test_m081_the_row_of_a_finished_turn_is_in_no_step() -> None:
    """vllm-project/vllm#37728: a dummy row still pointed to the block of a finished request.

    A step's rows are made out of its lease alone: whoever has ended is in none, however the batch
    shrinks, and whoever has the slot next has it alone.
    """
    world = Loopless.open(num_slots=3, num_pages=40)
    requests = [one_shot(world, f"r{n}", prompt(3 + n, n), 2 + 3 * n) for n in range(3)]
    late = None
    while any(request.output.end is None for request in requests):
        for step in world.device.waiting:
            _check_rows(world, step)
        world.step()
        if late is None and requests[0].output.end is not None:
            late = one_shot(world, "late", prompt(4, 8), 3)
    assert late is not None
    world.finish(late)
    for number, request in enumerate(requests):
        judge([], prompt(3 + number, number), request)
    judge([], prompt(4, 8), late)
    assert not world.device.poison_reads
    world.assert_all_free()


@exhibit("M082", pattern="P4", guard="protocol", bug="cancelled-chunk-goes-on")
def test_m082_nothing_of_a_former_turn_stands_in_the_next_batch() -> None:
    """vllm-project/vllm#41841: a request that ended in its prompt turned padded rows into prefills.

    A row is a value made for one step; there are no per-row tables to neutralise.
    """
    world = Loopless.open(num_slots=4, num_pages=40, max_num_batched_tokens=8)
    decoding = [one_shot(world, f"d{n}", prompt(2, n), 8) for n in range(2)]
    world.step()
    session = world.session("s")
    long = world.start(session, prompt(30, 5), greedy(2))
    world.step(2)
    mine = working(world, long)
    assert mine is not None
    assert 0 < mine.position < 30
    world.cancel(session, long)
    world.step()

    (step,) = world.device.waiting
    assert [len(row.tokens) for row in step.rows] == [1, 1]
    assert all(row.sampling is not None for row in step.rows)
    assert mine.slot not in {row.slot for row in step.rows}
    for number, request in enumerate(decoding):
        world.finish(request)
        judge([], prompt(2, number), request)
    log: list[int] = []
    talk(world, session, log, prompt(30, 5), 2)
    world.close(session)
    world.assert_all_free()


@exhibit("M083", pattern="P4", guard="ledger", bug="slotless-claim-names-slot-zero")
@pytest.mark.parametrize("uses_slots", [True, False])
def test_m083_no_two_turns_share_a_null_slot(uses_slots: bool) -> None:
    """vllm-project/vllm#33937: zero meant "nothing here" to the cache, and a slot to the kernels.

    "No slot" is a value of its own that reaches the device as such; a slot has one writer.
    """
    device = FakeDevice(mode="manual", eos_token_ids=(), uses_slots=uses_slots)
    world = Loopless.open(device=device, num_pages=24)
    requests = [one_shot(world, f"r{n}", prompt(4, n), 4 + n) for n in range(2)]
    world.step()
    while all(request.output.end is None for request in requests):
        slots = [row.slot for step in world.device.waiting for row in step.rows]
        if uses_slots:
            assert len(set(slots)) == 2
            assert NO_SLOT not in slots
        else:
            assert slots == [NO_SLOT, NO_SLOT]
        world.step()
    for number, request in enumerate(requests):
        world.finish(request)
        if uses_slots:
            judge([], prompt(4, number), request)
    world.assert_all_free()
