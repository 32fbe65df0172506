"""The worlds that prove this kernel: every order of everything in them, nothing broken."""

import pytest

from kernel.testing.explorer import World, explore
from kernel.testing.explorer.large_worlds import LARGE, WORLDS
from kernel.testing.explorer.worlds import CI

WANTED = {
    "refused later turn",
    "refused first turn",
    "cancel in flight",
    "close in flight",
    "preempt then cancel",
    "interrupt below a chunk",
    "interrupt above a chunk",
    "kill between two posts",
    "quarantine and late completion",
    "late claim rolled back",
    "checkpoint dropped",
    "fork of a parent that gave up",
    "a park landed",
    "a park lost to a commit",
    "a park of the closed",
    "preempted to host memory",
    "cancel in host memory",
    "interrupt on the way to host memory",
    "a state comes back from host memory",
    "a transfer lands as failed",
    "a cached state is used",
    "a turn is kept",
    "close while the turn is being kept",
    "a session goes dormant",
    "a dormant session is woken",
    "a turn starts from a snapshot",
}
WANTED_OF_ALL = {
    "a cached state is evicted",
    "a cached state is evicted while pinned",
    "cancel between match and launch",
    "the scheduler dies with cached states",
    "a turn is refused by the store",
    "a change of the log is refused by the store",
    "a snapshot is refused",
    "the store dies with a change under way",
    "a session that died is taken up again",
}
"""The same, over all worlds."""

"""What must be seen at least once over the set."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", CI, ids=lambda world: world.name)
def test_nothing_is_broken_in_any_order_of_events(world: World) -> None:
    """Every interleaving of a small world is walked, and each state is asked everything."""
    found = explore(world)

    assert [str(failure) for failure in found.failures] == []
    assert found.unmet == ()
    assert found.is_complete


def test_the_worlds_of_the_suite_expect_to_see_what_they_are_there_for() -> None:
    """An expectation that no world has would never be missed."""
    expected = {name for world in CI for name in world.expects}

    assert expected >= WANTED
    assert {name for world in LARGE for name in world.expects} >= WANTED | WANTED_OF_ALL


def test_every_fault_and_move_is_in_some_world_on_both_slot_counts() -> None:
    """The product of all is cut into worlds; nothing may fall between them."""
    for slots in (1, 2):
        worlds = [world for world in LARGE if world.config.num_slots == slots]
        moves = {move for world in worlds for move in world.moves}
        faults = {fault for world in worlds for fault in world.faults}

        assert moves >= {"cancel", "interrupt", "close", "shutdown"}
        assert faults >= {"crash", "kill", "step fails", "device lost", "overdue"}


def test_each_world_has_a_name_of_its_own() -> None:
    """The command line finds them by it."""
    assert len(WORLDS) == len(LARGE)
