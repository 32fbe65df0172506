"""P6, from M086 on: nothing is a state before the step that wrote it has landed."""

import pytest

from kernel.step import CopyOf
from ownership import Absorbed, LedgerError
from tests.kernel.loopless import Loopless
from tests.museum.exhibit import exhibit
from tests.museum.support import assert_solo, history_of, live_rows, name_held_by
from tests.ownership.support import CACHE, open_desk
from tests.scenarios.inputs import greedy, prompt


@exhibit("M091", pattern="P6", guard="ledger", bug="copied-at-every-step")
def test_m091_copy_on_write_is_one_command_of_the_one_that_knows_the_slot() -> None:
    """vllm-project/vllm#51766: planner and worker each guessed if a block was new or to be copied.

    A later turn starts in the middle of a page and registers its tail there. Its first row says to
    copy slot and tail, from where and to where; every row after that says that they are its own.
    """
    world = Loopless.open(num_slots=3, num_pages=40, max_num_batched_tokens=6)
    session = world.session("a")
    world.finish(world.start(session, prompt(6), greedy(4)))
    before = history_of(session)
    (base,) = world.core.ledger.view.held_by(session.name)
    assert base.position % 4, "in the middle of a page"
    turn = world.start(session, prompt(14, 1), greedy(4))

    (first,) = live_rows(world)
    assert first.initial == CopyOf(base.slot)  # type: ignore[arg-type]
    assert first.tail_copy is not None
    full = base.position // 4
    assert first.tail_copy.source == base.pages[full]
    assert first.tail_copy.target == first.pages[full] not in base.pages
    world.step()
    while turn.output.end is None:
        (row,) = live_rows(world)
        assert (row.slot, row.initial, row.tail_copy) == (first.slot, "kept", None)
        world.step()
    assert_solo(before, turn)
    assert not world.device.poison_reads
    world.close(session)
    world.assert_all_free()


@exhibit("M118", pattern="P6", guard="ledger", bug="unwritten-state-is-published")
def test_m118_only_a_state_that_was_written_is_published_and_at_its_own_position() -> None:
    """vllm-project/vllm#53084: a store kept blocks that held no true state at their position.

    The cache takes a claim whose step has landed, and nothing else: no zeros, no copy to come, no
    rest of a failed step. What it has is found at exactly the position that was written.
    """
    desk = open_desk(pages=40)
    cached = desk.cache.admit(desk.hand(desk.working(6), CACHE))
    name = name_held_by(desk, CACHE)
    zeros, copy, failed = desk.reserve(8), desk.reserve(8, name), desk.reserve(8)
    desk.fail(failed)
    for claim in (zeros, copy, failed):
        desk.hand(claim, CACHE)
        with pytest.raises(LedgerError, match="not valid"):
            desk.cache.admit(claim)
        desk.cache.rollback(claim)

    resumed = desk.reserve(11, name)
    assert desk.ledger.view.position(resumed) == 6
    lease = desk.batch.launch([resumed], step=2)
    (place,) = desk.ledger.view.placements(lease)
    assert place.position == 6
    desk.batch.land(lease, Absorbed((5,)))
    desk.batch.rollback(resumed)
    desk.cache.evict(cached)
    assert desk.is_empty()
