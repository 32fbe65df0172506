"""A session as a record, and back: its turns, its marks, and what it was opened with."""

from array import array
from collections.abc import Mapping
from typing import Final, cast

import attrs

from kernel.requests.conversation import Conversation
from kernel.session_store import SessionRecord, StoredTurn
from kernel.sessions.kept_states import NO_STATE, Mark
from kernel.sessions.logged_turns import LoggedTurn, read_exchange
from kernel.sessions.state import SessionState

__all__ = ["DamagedRecord", "SessionFacts", "bring_back", "facts_of", "read_facts"]

_BIRTH: Final = "birth"
_MARKS: Final = "marks"
_DETACHED: Final = "detached"
_IDLE_TIMEOUT: Final = "idle_timeout_s"
_SLIDES: Final = "slides"
_SALT: Final = "cache_salt"


class DamagedRecord(ValueError):
    """A record doesn't say what a record says; it was written by something else."""


@attrs.frozen
class SessionFacts:
    """What is kept of a session beside its log."""

    birth: str = ""
    is_detached: bool = False
    idle_timeout_s: float | None = None
    slides: bool = False
    cache_salt: str = ""
    marks: Mapping[str, Mark] = attrs.field(factory=dict[str, Mark])
    """Without their states."""


def facts_of(
    *,
    birth: str,
    is_detached: bool,
    idle_timeout_s: float | None,
    state: SessionState,
    marks: Mapping[str, Mark] | None = None,
) -> dict[str, object]:
    """As JSON values; ``marks`` are those that will be, where that is something else."""
    marks = state.states.marks if marks is None else marks
    return {
        _BIRTH: birth,
        _DETACHED: is_detached,
        _IDLE_TIMEOUT: idle_timeout_s,
        _SLIDES: state.slides,
        _SALT: state.cache_salt,
        _MARKS: {name: [mark.length, mark.turns, mark.absorbed] for name, mark in marks.items()},
    }


def read_facts(record: SessionRecord) -> SessionFacts:
    """What :func:`facts_of` wrote; what isn't there has its default.

    Raises:
        DamagedRecord: something else is there.
    """
    facts = record.facts
    try:
        marks = {
            name: Mark(int(length), int(turns), int(absorbed), NO_STATE)
            for name, (length, turns, absorbed) in cast(
                "Mapping[str, tuple[int, int, int]]", facts.get(_MARKS, {})
            ).items()
            if int(length) <= record.log_len
        }
        idle = cast("float | None", facts.get(_IDLE_TIMEOUT))
        return SessionFacts(
            str(facts.get(_BIRTH, "")),
            bool(facts.get(_DETACHED)),
            None if idle is None else float(idle),
            bool(facts.get(_SLIDES)),
            str(facts.get(_SALT, "")),
            marks,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedRecord(f"the facts of session {record.session_id!r}: {error!r}") from error


def bring_back(state: SessionState, record: SessionRecord) -> None:
    """Give a new session the log, the turns and the conversation of a record.

    Raises:
        DamagedRecord: its turns don't join, or their messages can't be read.
    """
    log = array("I")
    conversation: Conversation | None = None
    for turn in record.turns:
        if turn.start != len(log):
            raise DamagedRecord(
                f"a turn of session {record.session_id!r} begins at {turn.start}, where the log"
                f" has {len(log)} tokens"
            )
        conversation = _bring_back_turn(state, turn, log, conversation)
    state.log = log
    state.conversation = conversation
    state.is_woken = True
    position = record.state_position
    state.absorbed = max(0, len(log) - 1) if position is None else position


def _bring_back_turn(
    state: SessionState, turn: StoredTurn, log: "array[int]", conversation: Conversation | None
) -> Conversation | None:
    try:
        conversation = read_exchange(conversation, turn, log)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedRecord(f"the messages of a turn at {turn.start}: {error!r}") from error
    if len(turn.tokens):
        state.logged.add(LoggedTurn(turn.start, turn.input_len, turn.kind, turn.facts))
        if turn.kind == "generate":
            state.turn_starts.append(turn.start)
    log.extend(turn.tokens)
    return conversation
