"""P6: what is found in the prefix cache has been written."""

import pytest

from kernel.errors import RequestAborted
from tests.kernel.loopless import Loopless, error_of
from tests.museum.acts import finish, judge, one_shot, prompt
from tests.museum.exhibit import exhibit


@exhibit("M155", pattern="P6", guard="ledger", bug="dropped-turn-leaves-its-state")
@pytest.mark.parametrize("moment", ["queued", "launched", "failed", "between"])
def test_m155_a_prompt_that_was_planned_and_dropped_is_not_found(moment: str) -> None:
    """huggingface/text-generation-inference#2489: unfilled blocks of a dropped plan were reused.

    A turn's pages are in the cache only as part of a state, and that is there from the landing of
    the step that wrote it on. So the same prompt finds what has been computed, and no more.
    """
    world = Loopless.open(
        num_slots=6,
        num_pages=60,
        max_num_seqs=1,
        max_num_batched_tokens=8,
        enable_prefix_caching=True,
        prefix_cache_block=8,
    )
    blocker = one_shot(world, "blocker", prompt(2, 7), 2) if moment == "queued" else None
    session = world.session("s")
    turn = world.start(session, prompt(21))
    if moment == "between":
        world.step()
    if moment == "failed":
        world.device.fail()
        world.run()
    else:
        world.cancel(session, turn)
    assert moment == "failed" or isinstance(error_of(turn), RequestAborted)
    if blocker is not None:
        finish(world, blocker)

    for name in ("first", "second"):
        retry = one_shot(world, name, prompt(21), 3)
        finish(world, retry)
        judge([], prompt(21), retry)
        found = 8 if moment == "between" else 0
        assert retry.output.cached_tokens == (found if name == "first" else 20)
    assert not world.device.poison_reads
    world.close(session)
    world.core.clear_cache()
    world.run()
    world.assert_all_free()
