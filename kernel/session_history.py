"""Going back in a session: to an earlier turn, or to a mark.

Only while it rests: what a turn has started from must stay, so a running or waiting turn is never
disturbed by it. Setting and dropping marks is always possible; they stand where the log ends now.
"""

from typing import Final

from kernel.errors import CheckpointNotFound, SessionBusy, TenureError, ValidationError
from kernel.ids import SessionId, TurnId
from kernel.messages import DropMark, HistoryMessage, RestoreMark, Rewind, SetMark
from kernel.session_state import SessionState

__all__ = ["MOST_MARKS", "change_history"]

MOST_MARKS: Final = 256
"""Of one session: a mark without a state is small, and not nothing."""


def change_history(
    session_id: SessionId, message: HistoryMessage, state: SessionState, open_turn: TurnId | None
) -> None:
    """Do what the message asks for, or nothing; answer it.

    Args:
        session_id: for errors.
        message: what is asked.
        state: what it is done to.
        open_turn: a turn that runs or waits.
    """
    try:
        if isinstance(message, Rewind | RestoreMark) and open_turn is not None:
            raise SessionBusy(session_id=session_id, turn_id=open_turn, can_wait=False)
        match message:
            case Rewind():
                state.rewind(_turns_kept(message.to, state.turns))
            case RestoreMark():
                _check_mark(session_id, message.name, state)
                state.restore(message.name)
            case SetMark():
                _check_room(message.name, state)
                state.mark(message.name)
            case DropMark():
                _check_mark(session_id, message.name, state)
                state.drop_mark(message.name)
    except TenureError as error:
        message.reply.fail(error)
        return
    message.reply.answer(state.turns)


def _turns_kept(to: int, turns: int) -> int:
    if not -turns <= to <= turns:
        raise ValidationError(
            parameter="to",
            value=to,
            why=f"the session has {turns} turns; keep 0 to {turns}, or go 1 to {turns} back by -n",
        )
    return to if to >= 0 else turns + to


def _check_mark(session_id: SessionId, name: str, state: SessionState) -> None:
    if name not in state.states.marks:
        raise CheckpointNotFound(session_id=session_id, name=name)


def _check_room(name: str, state: SessionState) -> None:
    marks = state.states.marks
    if len(marks) >= MOST_MARKS and name not in marks:
        raise ValidationError(
            parameter="name", value=name, why=f"the session has {len(marks)} checkpoints; drop one"
        )
