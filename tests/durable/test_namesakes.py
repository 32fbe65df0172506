"""A session takes nothing for its own that its predecessor of the same name has asked for."""

import pytest

from tests.durable.worlds import Durable
from tests.kernel.loopless import error_of


@pytest.mark.parametrize("fault", [False, True])
def test_a_turn_is_not_told_by_what_became_of_a_namesakes_turn(fault: bool) -> None:
    """That one was closed while its first turn was on its way to a slow disk."""
    world = Durable.on()
    old = world.session("a")
    world.start(old, [1, 2, 3])
    while not world.disk.waiting:
        world.step()
    world.close(old)
    jobs_of_the_old_one = 2
    turn = world.start(world.session("a"), [7, 8])
    while world.device.waiting:
        world.step()

    if fault:
        world.disk.fail_next.append("failed")
    world.work(jobs_of_the_old_one)
    assert turn.output.end is None
    world.work()
    assert error_of(turn) is None
    assert world.disk.log_of("a") == [7, 8, *turn.output.tokens]
