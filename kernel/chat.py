"""A conversation in messages, as values; what writes them as tokens is the model's chat format.

The kernel knows no template. It keeps which part of a session's token log belongs to which
messages, and asks the format for the tokens that a turn's messages add to that log.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import attrs

from kernel import checks
from kernel.errors import ValidationError

__all__ = [
    "ChatFormat",
    "ChatPrompt",
    "Composition",
    "Exchange",
    "Message",
    "Prompt",
    "as_chat_prompt",
]

Message = Mapping[str, object]
"""``{"role": ..., "content": ...}`` and whatever else the model's template reads."""

_DEEPEST = 64
"""Levels of lists and mappings within a message; schemas of tools have a dozen."""


def _as_messages(value: object) -> tuple[Message, ...]:
    messages = checks.items("messages", value)
    for message in messages:
        if not isinstance(message, Mapping):
            why = f"each must be a mapping with a role and a content, not {type(message).__name__}"
            raise ValidationError(parameter="messages", value=message, why=why)
        role = cast("Message", message).get("role")
        if not isinstance(role, str) or not role:
            raise ValidationError(parameter="messages", value=role, why="its role must be a str")
        for text in cast("Message", message).values():
            if isinstance(text, str):
                checks.encodable("messages", text)
    return tuple(cast("Message", _own("messages", message)) for message in messages)


def _own(parameter: str, value: object, depth: int = 0) -> object:
    """A copy as deep as JSON goes: the log remembers what was said, whatever becomes of a dict."""
    if depth > _DEEPEST:
        why = f"it is nested more than {_DEEPEST} deep, or holds itself"
        raise ValidationError(parameter=parameter, value=type(value).__name__, why=why)
    if isinstance(value, bytes | bytearray):
        raise ValidationError(parameter=parameter, value=value, why="decode it: texts are str")
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key: _own(parameter, item, depth + 1) for key, item in items}
    if isinstance(value, list):
        return [_own(parameter, item, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)
        return tuple(_own(parameter, item, depth + 1) for item in parts)
    return value


def _own_tools(value: Sequence[object] | None) -> Sequence[object] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        raise ValidationError(parameter="tools", value=value, why="it must be a list of tools")
    return [_own("tools", tool) for tool in checks.items("tools", value)]


def _own_variables(value: Mapping[str, object]) -> Mapping[str, object]:
    return cast("Mapping[str, object]", _own("variables", value))


@attrs.frozen
class ChatPrompt:
    """The messages of one turn, or of one request; only what is new.

    A plain sequence of messages is taken for one of these with nothing else said.
    """

    messages: tuple[Message, ...] = attrs.field(converter=_as_messages)
    tools: Sequence[object] | None = attrs.field(default=None, kw_only=True, converter=_own_tools)
    """JSON schemas of what the model may call; ``None``: those of the turn before."""
    variables: Mapping[str, object] = attrs.field(
        factory=dict[str, object], kw_only=True, converter=_own_variables
    )
    """More that the template reads (``enable_thinking``); what a turn doesn't say stays."""
    continue_final: bool = attrs.field(default=False, kw_only=True)
    """Let the answer go on from the last message, which is the assistant's own beginning."""

    def __attrs_post_init__(self) -> None:
        checks.truth("continue_final", self.continue_final)
        checks.instance("variables", self.variables, Mapping)
        if not self.messages:
            raise ValidationError(parameter="messages", value=[], why="give at least one")
        if self.continue_final and not isinstance(self.messages[-1].get("content"), str):
            why = "there is no text in the last message that the answer could go on from"
            raise ValidationError(parameter="continue_final", value=True, why=why)


Prompt = str | Sequence[int] | Sequence[Message] | ChatPrompt
"""Text, token ids, or messages."""


def as_chat_prompt(prompt: object) -> ChatPrompt | None:
    """Messages as one value; ``None`` when the prompt is text or token ids."""
    if isinstance(prompt, ChatPrompt):
        return prompt
    if isinstance(prompt, str | bytes | bytearray) or not isinstance(prompt, Sequence):
        return None
    items = cast("Sequence[object]", prompt)
    # The first one decides: a long prompt of token ids isn't looked through for messages.
    if not items or not isinstance(items[0], Mapping):
        return None
    return ChatPrompt(items)


@attrs.frozen
class Composition:
    """The tokens that messages add to a log."""

    token_ids: tuple[int, ...]
    text: str
    """What they say, as the template wrote it."""
    history_differs: bool = False
    """The template, asked now, would write the history otherwise than the log holds it: it drops
    earlier thoughts, or tells another date. Spaces don't count. The log stands."""


@attrs.frozen(eq=False)
class Exchange:
    """Messages that are in a session's log, and what was generated after them."""

    prompt: ChatPrompt
    input: Composition
    answer_ids: Sequence[int]
    """What was generated and kept, with the token that ended it, if one did."""
    is_answered: bool
    """False: the messages were appended, and nothing was to be generated."""
    notes: dict[str, str] = attrs.field(factory=dict[str, str])
    """Where the format may note what it would else work out again at every turn."""


class ChatFormat(Protocol):
    """How a model writes messages. Called outside of actors' handlers, on the engine's thread."""

    def compose(
        self, history: Sequence[Exchange], prompt: ChatPrompt, /, *, answers: bool
    ) -> Composition:
        """What ``prompt`` adds to a log that holds ``history`` and nothing else.

        Args:
            history: earlier exchanges of the same session, oldest first. All but the last are
                over: they are the same objects at the next turn.
            prompt: the new messages.
            answers: end with what an answer begins with.

        Raises:
            TenureError: the template is damaged or refuses the messages.
        """
        ...
