"""Which part of a session's token log is which messages, and how a turn's messages get there.

What messages add to a log depends on how the turn before them ended, so they become tokens only
when their turn has its place: after the end of the one before, and before anything else happens.
The template isn't ours, so that is done at the edge, between two handlers; meanwhile the request
stands first in the session's queue.
"""

from array import array
from collections.abc import Sequence

import attrs

from kernel.chat import ChatFormat, ChatPrompt, Composition, Exchange, Prompt, as_chat_prompt
from kernel.errors import ValidationError

__all__ = ["Composing", "Conversation", "chat_in"]


@attrs.define(eq=False)
class Composing:
    """Messages of a request on their way to tokens."""

    prompt: ChatPrompt
    format: ChatFormat
    answers: bool
    """Something is to be generated after them."""
    composed: Composition | None = None
    log_len: int | None = None
    """Length of the log that they were composed for; ``None`` before."""

    @property
    def expected_tokens(self) -> int:
        """A guess for the door, which counts before anything is composed."""
        texts = [text for message in self.prompt.messages for text in message.values()]
        chars = sum(len(text) for text in texts if isinstance(text, str))
        return 8 * len(self.prompt.messages) + chars // 4

    @property
    def token_ids(self) -> tuple[int, ...]:
        """What they have become; empty before."""
        return () if self.composed is None else self.composed.token_ids

    def compose(self, conversation: "Conversation | None", log: Sequence[int]) -> Composition:
        """Ask the format what the messages add to a log. Foreign code runs here.

        Raises:
            ValidationError: the log holds text that is no message.
            TenureError: as the format says.
        """
        if conversation is None and len(log):
            raise _unknown_text()
        history = [] if conversation is None else conversation.history(log)
        self.composed = self.format.compose(history, self.prompt, answers=self.answers)
        self.log_len = len(log)
        return self.composed


@attrs.frozen
class _Latest:
    """The exchange that ends the log; its answer may still be cut, or go on."""

    prompt: ChatPrompt
    input: Composition
    answer_at: int
    is_answered: bool

    @property
    def start(self) -> int:
        """Length of the log before it."""
        return self.answer_at - len(self.input.token_ids)


@attrs.define(eq=False)
class Conversation:
    """The exchanges of one session. The log says what was answered; here stands where."""

    _over: list[Exchange] = attrs.field(factory=list[Exchange])
    _latest: _Latest | None = None
    _other_text_at: int | None = None
    """Where in the log the first text begins that is no message."""

    def copy(self) -> "Conversation":
        """For a fork, whose log is a copy too."""
        return Conversation(list(self._over), self._latest, self._other_text_at)

    def history(self, log: Sequence[int]) -> list[Exchange]:
        """All exchanges that a log holds.

        Raises:
            ValidationError: it holds text that is no message as well.
        """
        if self._other_text_at is not None:
            raise _unknown_text()
        return [*self._over, *self._closed(log)]

    def add(self, composing: Composing, log: "array[int]") -> None:
        """A turn of messages ends: its input comes next in the log, then its answer."""
        if composing.composed is not None:
            self.record(composing.prompt, composing.composed, log, answers=composing.answers)

    def record(
        self, prompt: ChatPrompt, composed: Composition, log: "array[int]", *, answers: bool
    ) -> None:
        """Messages come next in the log, as these tokens; then their answer, if there is to be."""
        self._over += self._closed(log)
        start = len(log) + len(composed.token_ids)
        self._latest = _Latest(prompt, composed, start, answers)

    def add_text(self, length: int) -> None:
        """A turn of text or token ids ends, which began at this length of the log."""
        if self._other_text_at is None:
            self._other_text_at = length

    def cut(self, length: int) -> None:
        """The log was shortened: exchanges beyond it never were, the last one left may go on."""
        if self._other_text_at is not None and self._other_text_at >= length:
            self._other_text_at = None
        if self._latest is not None and self._latest.start >= length:
            self._latest = None
        if self._latest is not None:
            return
        start = sum(len(one.input.token_ids) + len(one.answer_ids) for one in self._over)
        while self._over and self._latest is None:
            last = self._over.pop()
            start -= len(last.input.token_ids) + len(last.answer_ids)
            if start < length:
                answer_at = start + len(last.input.token_ids)
                self._latest = _Latest(last.prompt, last.input, answer_at, last.is_answered)

    def _closed(self, log: Sequence[int]) -> list[Exchange]:
        latest = self._latest
        if latest is None:
            return []
        answer = tuple(log[latest.answer_at :])
        return [Exchange(latest.prompt, latest.input, answer, latest.is_answered)]


def chat_in(prompt: Prompt, format: ChatFormat | None) -> ChatPrompt | None:  # noqa: A002  as a field
    """The messages of a prompt; ``None`` when it is text or token ids.

    Raises:
        ValidationError: there are messages, and the model has no chat template.
    """
    chat = as_chat_prompt(prompt)
    if chat is not None and format is None:
        raise ValidationError(
            parameter="prompt",
            value=f"{len(chat.messages)} messages",
            why="the model has no chat template; give text or token ids",
        )
    return chat


def _unknown_text() -> ValidationError:
    return ValidationError(
        parameter="prompt",
        value="messages",
        why=(
            "the session's log holds text or token ids that are no message, so no template can go"
            " on from it; use one kind in a session"
        ),
    )
