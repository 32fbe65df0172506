"""Moves that many scenarios make on an engine without an event loop, and how they are judged."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from kernel.ids import SCHEDULER, SessionId, session_custodian
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from ownership import DEVICE, BaseName, ClaimView
from tests.kernel.loopless import Loopless, tokens_of
from tests.scenarios.inputs import greedy, prompt

__all__ = [
    "cold",
    "finish",
    "greedy",
    "held",
    "hop_by_hop",
    "is_open",
    "judge",
    "one_shot",
    "prompt",
    "resting",
    "talk",
    "working",
]


def one_shot(
    world: Loopless, name: str, tokens: Sequence[int], count: int, **fields: Any
) -> TurnRequest:
    """Submit a request of another client, who has no session."""
    session = world.session(name, is_one_shot=True)
    return world.start(session, tokens, greedy(count), **fields)


@cache
def _cold(context: tuple[int, ...], count: int) -> tuple[int, ...]:
    world = Loopless.open(num_slots=1, num_pages=256, max_num_seqs=1)
    request = one_shot(world, "cold", context, count)
    finish(world, request)
    return tuple(tokens_of(request))


def cold(context: Sequence[int], count: int) -> list[int]:
    """What a cold, solo, greedy run generates after a context."""
    return list(_cold(tuple(context), count)) if count else []


def judge(log: list[int], tokens: Sequence[int], request: TurnRequest) -> list[int]:
    """A turn's answer is that of a cold run over its whole history, which grows by it here."""
    answer = tokens_of(request)
    context = [*log, *tokens]
    assert answer == cold(context, len(answer)), f"after {context}"
    log[:] = [*context, *answer]
    return answer


def talk(
    world: Loopless, session: SessionActor, log: list[int], tokens: Sequence[int], count: int
) -> list[int]:
    """A whole turn, judged."""
    request = world.start(session, tokens, greedy(count))
    finish(world, request)
    assert session.state.log.tolist()[: len(log)] == log
    answer = judge(log, tokens, request)
    assert session.state.log.tolist() == log
    return answer


def held(world: Loopless, session: SessionActor) -> tuple[ClaimView, ...]:
    """What a session holds, the oldest first."""
    return world.core.ledger.view.held_by(session_custodian(SessionId(session.session_id)))


def finish(world: Loopless, *requests: TurnRequest) -> None:
    """Complete steps until all these turns have ended; each must have a way to its end."""
    while any(request.output.end is None for request in requests):
        assert world.device.waiting, "turns are open and nothing runs"
        world.step()
    for request in requests:
        request.output.delivered = len(request.output.tokens)


def is_open(session: SessionActor) -> bool:
    """Whether a session lives, asked anew."""
    return not session.is_closed


def resting(session: SessionActor) -> BaseName:
    """The name of a session's committed state."""
    base = session.state.base
    assert isinstance(base, BaseName)
    return base


def working(world: Loopless, request: TurnRequest) -> ClaimView | None:
    """A turn's working claim, if it has one."""
    view = world.core.ledger.view
    claims = (*view.held_by(SCHEDULER), *view.held_by(DEVICE))
    return next((claim for claim in claims if claim.turn == request.id), None)


def hop_by_hop(world: Loopless) -> None:
    """Serve all mail, one message at a time, and count who owns what after each."""
    while world.core.dispatcher.run(1):
        world.check()
    world.check()
