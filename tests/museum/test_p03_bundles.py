"""P3: a bundle of resources with one part forgotten, or two layers that both give it back."""

from collections.abc import Callable

import pytest

from kernel.errors import PromptTooLong
from kernel.messages import CancelTurn, TurnFinished
from ownership import BatchOwned, Need, StaleHandle
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.pool import Pool
from tests.kernel.toys import CALLER
from tests.museum.acts import greedy, held, judge, one_shot, prompt, talk
from tests.museum.exhibit import exhibit


@exhibit("M008", pattern="P3", guard="ledger", bug="release-forgets-the-tail")
def test_m008_a_close_gives_back_every_part() -> None:
    """sgl-project/sglang#23496: close freed the pages and the row, and no state slot.

    A claim is one handle for its slot, its tail, its pages and its run, and ends whole.
    """
    world = Loopless.open(num_slots=3, num_pages=12)
    base = world.free
    for number in range(20):
        session, log = world.session(f"s{number}"), list[int]()
        talk(world, session, log, prompt(6, number), 4)
        talk(world, session, log, prompt(2, number), 2)
        assert world.free != base
        world.close(session)
        assert world.free == base, f"after {number + 1} sessions"
    world.assert_all_free()


@exhibit("M009", pattern="P3", guard="ledger", bug="spent-handle-stays-live")
def test_m009_nothing_that_was_given_back_can_be_used_again() -> None:
    """sgl-project/sglang#26941: released buffers stayed on the request and were used by its retry.

    A verb consumes its handle; whoever keeps the old one is told so, and the slot's new owner
    never notices.
    """
    world = Loopless.open(num_slots=2, num_pages=16)
    session, log = world.session("s"), list[int]()
    first = world.start(session, prompt(5), greedy(4))
    world.step(2)
    world.cancel(session, first)
    other = one_shot(world, "other", prompt(4, 1), 3)
    retry = world.start(session, prompt(5), greedy(4))
    world.finish(other)
    world.finish(retry)
    judge([], prompt(4, 1), other)
    judge(log, prompt(5), retry)
    world.close(session)
    world.assert_all_free()

    pool = Pool(slots=1)
    kept = pool.reserve(3, turn="first")
    pool.land([kept], 2)
    slot = pool.view.slot_of(kept)
    pool.port.rollback(kept)
    new = pool.reserve(3, turn="second")
    assert pool.view.slot_of(new) == slot
    uses: list[Callable[[BatchOwned], object]] = [
        pool.port.rollback,
        lambda handle: pool.port.grow(handle, Need(9)),
        lambda handle: pool.port.launch([handle], step=9),
    ]
    for use in uses:
        with pytest.raises(StaleHandle, match="rollback"):
            use(kept)
    assert pool.view.describe(new).turn == "second"
    assert pool.ledger.audit().conserved
    pool.port.rollback(new)


@exhibit("M054", pattern="P3", guard="ledger", bug="late-claim-goes-back-twice")
def test_m054_of_two_layers_that_could_give_it_back_one_does() -> None:
    """sgl-project/sglang#13483: an inner step and its caller both freed the unread rest.

    A claim crosses with the cancel of its turn: whoever receives it gives it back, once.
    """
    world = Loopless.open(num_slots=2, num_pages=16)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(3), 2)
    before = held(world, session)
    turn = world.start(session, prompt(4, 1), greedy(1))
    rollbacks = world.core.ledger.view.counters.rollbacks
    world.device.complete()
    dispatcher = world.core.dispatcher
    dispatcher.run(1)  # The pool has passed it on; the scheduler is next.
    session.mailbox.post(CancelTurn(turn.id, "abort"), CALLER)
    dispatcher.run(1)
    assert [type(mail) for mail in session.mailbox] == [CancelTurn, TurnFinished]
    world.run()

    assert error_of(turn) is not None
    assert world.core.ledger.view.counters.rollbacks == rollbacks + 1
    assert held(world, session) == before
    assert world.core.dispatcher.deaths == 0
    talk(world, session, log, prompt(4, 1), 2)
    world.close(session)
    world.assert_all_free()


@exhibit("M055", pattern="P3", guard="protocol", bug="refused-turn-stays-counted")
def test_m055_a_place_in_the_queue_is_given_back_on_the_unhappy_path_too() -> None:
    """sgl-project/sglang#9927: four entries that failed early filled a limit of four for ever.

    What a turn counts for ends with the turn, however early it fails.
    """
    world = Loopless.open(num_slots=1, num_pages=8, max_num_queued_reqs=4)
    session, log = world.session("s"), list[int]()
    for number in range(4):
        turn = world.start(session, prompt(40, number), greedy(4))
        assert isinstance(error_of(turn), PromptTooLong)
    assert world.core.door.queued_reqs == 0
    assert world.core.door.queued_tokens == 0

    talk(world, session, log, prompt(3), 2)
    world.close(session)
    world.assert_all_free()
