"""Going back in a session: to an earlier turn, or to a mark.

Only while it rests: what a turn has started from must stay, so a running or waiting turn is never
disturbed by it. Setting and dropping marks is always possible; they stand where the log ends now.
"""

from collections.abc import Mapping
from typing import Final

from kernel.errors import CheckpointNotFound, SessionBusy, ValidationError
from kernel.ids import SessionId, TurnId
from kernel.messages import DropMark, HistoryMessage, RestoreMark, Rewind, SetMark
from kernel.sessions.kept_states import NO_STATE, Mark
from kernel.sessions.state import SessionState

__all__ = ["MOST_MARKS", "change_history", "check_history", "history_after", "marks_within"]

MOST_MARKS: Final = 256
"""Of one session: a mark without a state is small, and not nothing."""


def check_history(
    session_id: SessionId, message: HistoryMessage, state: SessionState, open_turn: TurnId | None
) -> None:
    """Raise if the message asks for what can't be done.

    Args:
        session_id: for errors.
        message: what is asked.
        state: what it would be done to.
        open_turn: a turn that runs or waits.

    Raises:
        SessionBusy: there is one, and the log was to be cut.
        CheckpointNotFound: there is no such mark.
        ValidationError: there are too few turns, or too many marks.
    """
    if isinstance(message, Rewind | RestoreMark) and open_turn is not None:
        raise SessionBusy(session_id=session_id, turn_id=open_turn, can_wait=False)
    match message:
        case Rewind():
            _turns_kept(message.to, state.turns)
        case RestoreMark() | DropMark():
            _check_mark(session_id, message.name, state)
        case SetMark():
            _check_room(message.name, state)


def change_history(message: HistoryMessage, state: SessionState) -> None:
    """Do what was checked, and answer."""
    match message:
        case Rewind():
            state.rewind(_turns_kept(message.to, state.turns))
        case RestoreMark():
            state.restore(message.name)
        case SetMark():
            state.mark(message.name)
        case DropMark():
            state.drop_mark(message.name)
    message.reply.answer(state.turns)


def history_after(message: HistoryMessage, state: SessionState) -> tuple[int, dict[str, Mark]]:
    """Length of the log and marks, as they will be when what was checked is done."""
    length, marks = len(state.log), dict(state.states.marks)
    match message:
        case Rewind():
            turns = _turns_kept(message.to, state.turns)
            length = state.turn_starts[turns] if turns < state.turns else length
        case RestoreMark():
            length = marks[message.name].length
        case SetMark():
            marks[message.name] = Mark(length, state.turns, state.absorbed, NO_STATE)
        case DropMark():
            del marks[message.name]
    return length, marks_within(marks, length)


def marks_within(marks: Mapping[str, Mark], length: int) -> dict[str, Mark]:
    """Those that a log of this length leaves."""
    return {name: mark for name, mark in marks.items() if mark.length <= length}


def _turns_kept(to: int, turns: int) -> int:
    if not -turns <= to <= turns:
        ways = f"keep 0 to {turns}, or go 1 to {turns} back by -n" if turns else "keep 0"
        why = f"the session has {turns} turns; {ways}"
        raise ValidationError(parameter="to", value=to, why=why)
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
