"""The turns of a session's log: where each begins, and what is to be known of it again.

The same list is what a store or a file keeps of a session, turn by turn, and what a session is
made of again when it is read. Values only; tokens are in the log.
"""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast, final

import attrs

from kernel.chat import ChatPrompt, Composition, Message
from kernel.errors import ValidationError
from kernel.requests.conversation import Composing, Conversation
from kernel.session_store import StoredTurn

__all__ = ["LoggedTurn", "LoggedTurns", "check_kept_as_json", "logged_turn", "read_exchange"]

_NO_FACTS: Mapping[str, object] = {}
_CHAT = "chat"


@attrs.frozen
class LoggedTurn:
    """One turn of a log, without its tokens."""

    start: int
    """Length of the log before it."""
    input_len: int
    kind: Literal["generate", "append"]
    facts: Mapping[str, object] = _NO_FACTS
    """Its messages, if it had any; JSON values."""


def logged_turn(
    start: int,
    input_len: int,
    kind: Literal["generate", "append"],
    composing: Composing | None,
) -> LoggedTurn:
    """A turn as its log remembers it."""
    composed = None if composing is None else composing.composed
    if composing is None or composed is None:
        return LoggedTurn(start, input_len, kind)
    prompt = composing.prompt
    chat: dict[str, object] = {
        "messages": prompt.messages,
        "text": composed.text,
        "answers": composing.answers,
    }
    said_rarely = {
        "tools": prompt.tools,
        "variables": prompt.variables,
        "continue_final": prompt.continue_final,
        "history_differs": composed.history_differs,
    }
    chat.update((name, value) for name, value in said_rarely.items() if value)
    return LoggedTurn(start, input_len, kind, {_CHAT: chat})


def check_kept_as_json(composing: Composing) -> None:
    """Refuse messages that could not be read back.

    Raises:
        ValidationError: a value in them is none of JSON's.
    """
    prompt = composing.prompt
    try:
        json.dumps([prompt.messages, prompt.tools, prompt.variables], allow_nan=False)
    except (TypeError, ValueError) as error:
        why = f"the session is kept on disk, so its messages must be JSON values: {error}"
        raise ValidationError(parameter="messages", value="messages", why=why) from error


def read_exchange(
    conversation: Conversation | None, turn: StoredTurn, log: "array[int]"
) -> Conversation | None:
    """Add what a turn says to a conversation; ``log`` ends where the turn begins.

    Raises:
        KeyError: as TypeError and ValidationError: the facts aren't what :func:`logged_turn` wrote.
    """
    chat = cast("Mapping[str, object] | None", turn.facts.get(_CHAT))
    if chat is not None:
        conversation = conversation or Conversation()
        prompt = ChatPrompt(
            cast("Sequence[Message]", chat["messages"]),
            tools=cast("Sequence[object] | None", chat.get("tools")),
            variables=cast("Mapping[str, object]", chat.get("variables", {})),
            continue_final=bool(chat.get("continue_final")),
        )
        tokens = tuple(turn.tokens[: turn.input_len])
        composed = Composition(tokens, str(chat["text"]), bool(chat.get("history_differs")))
        conversation.record(prompt, composed, log, answers=bool(chat["answers"]))
    elif turn.input_len and conversation is not None:
        conversation.add_text(len(log))
    return conversation


@final
class LoggedTurns:
    """All turns of one log, oldest first; they join."""

    __slots__ = ("_turns",)

    def __init__(self, turns: Iterable[LoggedTurn] = ()) -> None:
        self._turns = list(turns)

    def __len__(self) -> int:
        return len(self._turns)

    def copy(self) -> "LoggedTurns":
        """For a fork, whose log is a copy too."""
        return LoggedTurns(self._turns)

    def add(self, turn: LoggedTurn) -> None:
        """A turn was appended to the log."""
        self._turns.append(turn)

    def cut(self, length: int) -> None:
        """The log was shortened: turns beyond it never were."""
        while self._turns and self._turns[-1].start >= length:
            self._turns.pop()

    def begin_of(self, length: int, log_len: int) -> int:
        """Where the turn begins that a log of this length would cut through; else the length."""
        begin = 0
        for turn in self._turns:
            if turn.start > length:
                return begin
            begin = turn.start
        return length if length == log_len else begin

    def stored(self, log: "array[int]", *, since: int = 0) -> tuple[StoredTurn, ...]:
        """With their tokens, as a store or a file keeps them. O(their tokens).

        Args:
            log: whose turns these are.
            since: those that begin there, or later.
        """
        ends = [*(turn.start for turn in self._turns), len(log)][1:]
        return tuple(
            StoredTurn(
                turn.start, turn.input_len, log[turn.start : end], turn.kind, dict(turn.facts)
            )
            for turn, end in zip(self._turns, ends, strict=True)
            if turn.start >= since
        )
