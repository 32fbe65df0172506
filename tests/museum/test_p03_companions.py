"""P3, from M086 on: all parts of a state go together, and each of them once."""

from collections.abc import Callable

from kernel.messages import CloseSession
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from tests.kernel.loopless import Loopless, error_of
from tests.museum.exhibit import exhibit
from tests.museum.support import name_held_by
from tests.ownership.support import CACHE, open_desk
from tests.scenarios.inputs import greedy, prompt


@exhibit("M142", pattern="P3", guard="protocol", bug="close-forgets-the-checkpoint")
def test_m142_checkpoints_do_not_pile_up_and_go_with_their_session() -> None:
    """ggml-org/llama.cpp#25437: checkpoints were kept beyond their number, and beyond a clear.

    A session keeps one at most, paid for out of the same pool before anything is copied; a close
    drops it together with the state.
    """
    world = Loopless.open(num_slots=3, num_pages=60)
    session = world.session("a")
    for salt in range(8):
        turn = world.start(session, prompt(9, salt), greedy(4))
        world.finish(turn)
        assert world.held_by(session) <= 2
    assert world.held_by(session) == 2, "the state, and the one that the last turn started from"
    world.close(session)
    world.assert_all_free()


@exhibit("M174", pattern="P3", guard="ledger", bug="landing-keeps-the-base")
def test_m174_a_pin_ends_once_by_the_landing_or_by_the_rollback() -> None:
    """LMCache/LMCache#3381: two layers unpinned one lookup, and the count went below zero.

    Two claims copy out of one base. The first lands and is rolled back after that; the second
    still reads, so the evicted base must drain until it has landed.
    """
    desk = open_desk()
    cached = desk.cache.admit(desk.hand(desk.working(6), CACHE))
    name = name_held_by(desk, CACHE)
    first, second = desk.reserve(8, name), desk.reserve(8, name)
    desk.step([first], 2)
    desk.batch.rollback(first)
    assert desk.ledger.view.held_by(CACHE)[0].pinned == 1
    desk.cache.evict(cached)
    assert desk.ledger.audit().draining == 1
    desk.check()

    desk.step([second], 2)
    assert desk.ledger.audit().draining == 0
    desk.batch.rollback(second)
    assert desk.is_empty()


Ending = Callable[[Loopless, SessionActor, TurnRequest], None]


def _abort(world: Loopless, session: SessionActor, turn: TurnRequest) -> None:
    world.cancel(session, turn)
    world.step()


def _close(world: Loopless, session: SessionActor, turn: TurnRequest) -> None:
    world.post(session, CloseSession())
    world.step()


def _time_out(world: Loopless, session: SessionActor, turn: TurnRequest) -> None:
    world.advance(20)
    world.step()


def _fail(world: Loopless, session: SessionActor, turn: TurnRequest) -> None:
    world.device.fail()
    world.run()


def _crash(world: Loopless, session: SessionActor, turn: TurnRequest) -> None:
    world.core.dispatcher.kill(session.name, RuntimeError("planted"))
    world.run()
    world.step()


def _interrupt(world: Loopless, session: SessionActor, turn: TurnRequest) -> None:
    world.interrupt(session, 0, turn)
    world.step()
    assert error_of(turn) is None


@exhibit("M188", pattern="P3", guard="ledger", bug="slot-forgotten-beside-pages")
def test_m188_every_way_to_cancel_gives_back_slot_and_pages() -> None:
    """kekzl/imp#1632: six internal ways to cancel freed the cache, and none the state's slot.

    Here slot, tail and pages are one claim with one ending; each way in is run, and counted.
    """
    for end in (_abort, _close, _time_out, _fail, _crash, _interrupt):
        for turns_before in (0, 1):
            world = Loopless.open(num_slots=3, num_pages=20)
            session = world.session("a", is_one_shot=False)
            for salt in range(turns_before):
                world.finish(world.start(session, prompt(5, salt)))
            resting = world.held_by(session)
            turn = world.start(session, prompt(6, 9), greedy(8), timeout_s=10.0)
            world.step(2)
            end(world, session, turn)

            assert turn.output.end is not None, end
            view = world.core.ledger.view
            if session.is_closed:
                assert world.free == (3, 20), (end, turns_before)
            elif end is not _interrupt:
                assert world.held_by(session) == resting, (end, turns_before)
                assert view.free_slots == 3 - resting, (end, turns_before)
            if not session.is_closed:
                world.close(session)
            assert view.counters.violations == 0
            assert world.free == (3, 20), (end, turns_before)
