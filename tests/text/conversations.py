"""Conversations as a session would hold them, without an engine: turns, ends, and the log."""

from array import array
from collections.abc import Sequence

import attrs

from adapters.text.chat_format import TemplateChatFormat
from adapters.text.template import ChatTemplate
from adapters.text.tokenizer import HubTokenizer
from kernel.chat import ChatPrompt, Composition, Message
from kernel.requests.conversation import Composing, Conversation
from tests.text.templates import Shape

__all__ = ["Talk", "format_of", "said"]


def format_of(shape: Shape, tokenizer: HubTokenizer) -> TemplateChatFormat:
    special = {"bos_token": shape.bos, "eos_token": shape.end}
    return TemplateChatFormat({"default": ChatTemplate(shape.source, "it", special)}, tokenizer)


def said(role: str, content: object, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


@attrs.define(eq=False)
class Talk:
    """A session's log and conversation, moved on by hand as its actor does it."""

    format: TemplateChatFormat
    log: "array[int]" = attrs.field(factory=lambda: array("I"))
    conversation: Conversation | None = None
    messages: list[Message] = attrs.field(factory=list[Message])
    """What was said so far, answers as the log holds them."""

    @property
    def tokenizer(self) -> HubTokenizer:
        return self.format.tokenizer

    @property
    def text(self) -> str:
        return self.tokenizer.decode_with_special(self.log.tolist())

    def ask(self, messages: Sequence[Message] | ChatPrompt, *, answers: bool = True) -> Composition:
        """Append messages, as a turn's input."""
        prompt = messages if isinstance(messages, ChatPrompt) else ChatPrompt(messages)
        composing = Composing(prompt, self.format, answers)
        composed = composing.compose(self.conversation, self.log)
        if self.conversation is None:
            self.conversation = Conversation()
        self.conversation.add(composing, self.log)
        self.log.extend(composed.token_ids)
        self.messages += prompt.messages
        return composed

    def answer(self, text: str, *, end: str | None, keep: int | None = None) -> str:
        """Append an answer: closed by a token, or cut after so many of its own tokens."""
        ids = self.tokenizer.encode_after_text(text)[:keep]
        before = self.text
        self.log.extend(ids)
        kept = self.text[len(before) :]
        if end is not None:
            self.log.extend(self.tokenizer.encode(end))
        self.messages.append(said("assistant", kept))
        return kept

    def rendered(self, *, answers: bool = True) -> str:
        """The whole conversation, as the template writes it at once."""
        return self.format.render(self.messages, answers=answers)
