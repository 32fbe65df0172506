"""What an interrupt means, by where its session stands.

The turn that runs ends when its claim lands; one that waits will end when its place in the log has
come; the one that ended last is cut where it stands in the log.
"""

import attrs

from kernel.actors.reply import Reply
from kernel.errors import TooLate, TurnNotFound, ValidationError
from kernel.ids import SessionId, TurnId
from kernel.messages import Interrupt, InterruptTurn
from kernel.sessions.active_turn import ActiveTurn
from kernel.sessions.state import SessionState, keep_error
from kernel.sessions.turn_queue import TurnQueue

__all__ = ["LateCut", "interrupt"]


@attrs.frozen
class LateCut:
    """The turn that ended last is to be cut, and the interrupt answered after that."""

    keep: int
    length: int
    """Of the log that is left."""


def interrupt(
    session_id: SessionId,
    message: InterruptTurn,
    active: ActiveTurn | None,
    waiting: TurnQueue,
    state: SessionState,
) -> Interrupt | LateCut | None:
    """Accept or refuse an interrupt; it is answered here, or with the end of its turn.

    Returns:
        What the scheduler is to be told, or what is to be done to the log.
    """
    turn, keep, reply = message.turn, message.keep, message.reply
    last = state.last
    if message.is_leaving and last is not None and last.id == turn:
        return None
    if turn is None and active is None and waiting.first is not None:
        turn = waiting.first.id  # what runs next is composed
    if active is not None and turn in (None, active.id):
        return _of_active(active, keep, reply)
    if last is not None and active is None and turn in (None, last.id):
        return _late(state, keep, reply)
    if (request := waiting.find(turn)) is not None:
        # It ends when its place in the log has come; there is nothing but its input to keep.
        if keep:
            reply.fail(keep_error(keep, 0))
        else:
            request.interrupts.append(reply)
    else:
        has_gone_on = active is not None or last is not None or state.turns > 0
        reply.fail(_not_there(session_id, turn, has_gone_on=has_gone_on))
    return None


def _of_active(active: ActiveTurn, keep: int | None, reply: Reply[int]) -> Interrupt | None:
    received = active.request.output.delivered
    if keep is not None and not 0 <= keep <= received:
        reply.fail(keep_error(keep, received))
        return None
    active.accept_interrupt(keep, reply)
    return Interrupt(active.id, keep, "interrupt")


def _late(state: SessionState, keep: int | None, reply: Reply[int]) -> LateCut | None:
    try:
        kept, length = state.late_cut(keep)
    except ValidationError as error:
        reply.fail(error)
        return None
    if length is not None:
        return LateCut(kept, length)
    reply.answer(kept)
    return None


def _not_there(
    session_id: SessionId, turn: TurnId | None, *, has_gone_on: bool
) -> TooLate | TurnNotFound:
    if turn is None or not has_gone_on:
        return TurnNotFound(session_id=session_id, turn_id=turn)
    why = "the session has accepted another turn"
    return TooLate(session_id=session_id, turn_id=turn, why=why)
