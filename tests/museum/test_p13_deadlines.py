"""P13: a wake-up or a clean-up rides on a signal or on traffic, and has no deadline of its own."""

import anyio
import pytest

from kernel.actors.reply import Reply
from kernel.errors import PromptTooLong, SessionBusy
from kernel.messages import StartTurn
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.toys import CALLER
from tests.kernel.turns import make_request
from tests.museum.acts import finish, greedy, is_open, judge, prompt, talk
from tests.museum.exhibit import exhibit


@exhibit("M014", pattern="P13", guard="protocol", bug="answer-before-the-wait-is-lost")
async def test_m014_an_answer_may_come_before_anybody_waits_for_it() -> None:
    """sgl-project/sglang#21875: a fast worker answered before the waiter had been registered.

    The reply port is made before the request is posted and keeps what it is given; a second answer
    is ignored.
    """
    world = Loopless.open(num_slots=2, num_pages=20)
    session = world.session("s")
    request = make_request("turn", prompt(3))
    world.core.door.enter(request.id, 3)
    session.mailbox.post(StartTurn(request), CALLER)
    world.run()
    assert request.accepted.is_settled
    with anyio.fail_after(1):
        await request.accepted.wait()
    refused = world.start(session, prompt(2, 1))
    with anyio.fail_after(1), pytest.raises(SessionBusy):
        await refused.accepted.wait()

    reply: Reply[int] = Reply()
    reply.answer(1)
    reply.answer(2)
    reply.fail(RuntimeError("late"))
    with anyio.fail_after(1):
        assert await reply.wait() == 1
    finish(world, request)
    world.close(session)
    world.assert_all_free()


@exhibit("M029", pattern="P13", guard="deadline", bug="refused-turn-renews-the-lease")
def test_m029_only_accepted_work_keeps_a_session_alive() -> None:
    """sgl-project/sglang#39035: a client that sent invalid turns kept its idle session for ever.

    The idle clock stops when a turn has been accepted, and a refused one is none.
    """
    world = Loopless.open(num_slots=2, num_pages=8)
    session, log = world.session("s", idle_timeout_s=10.0), list[int]()
    talk(world, session, log, prompt(4), 2)
    world.advance(9)
    turn = world.start(session, prompt(40, 1), greedy(4))
    assert isinstance(error_of(turn), PromptTooLong)
    assert is_open(session)
    world.advance(2)
    assert not is_open(session)
    world.assert_all_free()

    other, log = world.session("t", idle_timeout_s=10.0), list[int]()
    world.advance(9)
    accepted = world.start(other, prompt(4, 1), greedy(2))
    finish(world, accepted)
    judge(log, prompt(4, 1), accepted)
    world.advance(9)
    assert is_open(other)
    world.advance(1)
    assert not is_open(other)
    world.assert_all_free()
