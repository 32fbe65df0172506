"""Messages to token ids, for a whole conversation or for what a turn adds to it.

A session's log is never written anew, so a turn needs the end of the template's rendering alone:
everything after the last answer. Where that begins can't be found by comparing texts, for many
templates write an answer differently once it is history (trimmed, without its thoughts). So the
last answer is rendered as a placeholder:

    <|im_start|>user Hi<|im_end|> <|im_start|>assistant PLACEHOLDER<|im_end|> <|im_start|>user ...
    head: what the log holds, as the template sees it now          tail: what the turn adds

The tail begins with what closes an answer. If the model itself has closed it, that token is in the
log, and is left out of the tail; after a cut it isn't, and the tail brings it.
"""

from collections.abc import Mapping, Sequence
from secrets import token_hex

import attrs

from adapters.text.answers import answer_text, closed_by, ends_special, without_spaces
from adapters.text.errors import ChatTemplateError
from adapters.text.template import ChatTemplate
from adapters.text.template_files import DEFAULT, TOOL_USE
from adapters.text.tokenizer import HubTokenizer
from kernel import checks
from kernel.chat import ChatPrompt, Composition, Exchange, Message

__all__ = ["TemplateChatFormat"]

_PLACEHOLDER = f"tenure-answer-{token_hex(8)}"
"""Stands for the last answer: without spaces, so that trimming leaves it alone, and nobody's to
guess, so that no message holds it."""
_END_MARK = f"tenure-goes-on-{token_hex(8)}"
"""Marks the end of a message that the answer goes on from."""


@attrs.frozen
class _Asked:
    """All that one rendering is asked for."""

    past: Sequence[Message]
    prompt: ChatPrompt | None
    answers: bool
    tools: Sequence[object] | None
    variables: Mapping[str, object]


@attrs.frozen
class TemplateChatFormat:
    """A model's chat templates over its tokenizer, as :class:`kernel.chat.ChatFormat`."""

    templates: Mapping[str, ChatTemplate]
    tokenizer: HubTokenizer

    def compose(
        self, history: Sequence[Exchange], prompt: ChatPrompt, /, *, answers: bool
    ) -> Composition:
        """What the new messages add to a log that holds the history and nothing else.

        Raises:
            ChatTemplateError: the template refuses the messages, doesn't show the last answer, or
                writes messages that were appended differently once others follow.
            TemplateError: the template itself is damaged.
        """
        if not history:
            text = self._write(_asked([], (), prompt, answers))
            return Composition(tuple(self.tokenizer.encode(text)), text)
        answered = [number for number, each in enumerate(history) if each.is_answered]
        since = answered[-1] + 1 if answered else 0
        past = self._past(history, since)
        head, tail = _split(self._write(_asked(past, history, prompt, answers)), bool(answered))
        if since < len(history):
            _, held = _split(self._write(_asked(past, history, None, False)), bool(answered))
            ids, text = self._after_appended(held, tail)
            is_stray = False
        else:
            ids, text = self._after_answer(history[-1], tail)
            is_stray = text == tail and ends_special(self.tokenizer, history[-1].answer_ids)
        differs = history[-1].input.history_differs or is_stray
        return Composition(tuple(ids), text, differs or self._differs(history[:since], head))

    def render(
        self,
        messages: Sequence[Message] | ChatPrompt,
        *,
        answers: bool = True,
    ) -> str:
        """A whole conversation as text; for looking at it."""
        prompt = messages if isinstance(messages, ChatPrompt) else ChatPrompt(messages)
        return self._write(_asked([], (), prompt, answers))

    def _past(self, history: Sequence[Exchange], since: int) -> list[Message]:
        """The messages of the history, the last answer as the placeholder."""
        found: list[Message] = []
        for number, each in enumerate(history):
            if not each.is_answered:
                found += each.prompt.messages
            elif number == since - 1:
                found += _with_answer(each, _PLACEHOLDER)
            else:
                found += _with_answer(each, answer_text(self.tokenizer, each))
        return found

    def _write(self, asked: _Asked) -> str:
        new = () if asked.prompt is None else asked.prompt.messages
        messages: list[Mapping[str, object]] = [*asked.past, *new]
        goes_on = asked.answers and asked.prompt is not None and asked.prompt.continue_final
        begun = str(messages[-1]["content"]) if goes_on else ""
        if goes_on:
            messages[-1] = {**messages[-1], "content": f"{begun}{_END_MARK} "}
        text = self._template(has_tools=asked.tools is not None).render(
            messages,
            tools=asked.tools,
            variables=asked.variables,
            add_generation_prompt=asked.answers and not goes_on,
        )
        checks.encodable("messages", text)
        return _up_to_the_end_of(begun, text) if goes_on else text

    def _template(self, *, has_tools: bool) -> ChatTemplate:
        if has_tools and TOOL_USE in self.templates:
            return self.templates[TOOL_USE]
        if DEFAULT in self.templates:
            return self.templates[DEFAULT]
        names = ", ".join(self.templates)
        raise ChatTemplateError(why=f"the model has the templates {names}, and no default")

    def _after_answer(self, last: Exchange, tail: str) -> tuple[list[int], str]:
        """The tail's tokens and text, less what closes the answer where the log has it already."""
        ids = self.tokenizer.encode_after_text(tail)
        end = closed_by(self.tokenizer, last.answer_ids, ids)
        if end == 0:
            return ids, tail
        name = self.tokenizer.decode_with_special(ids[end - 1 : end])
        return ids[end:], tail.partition(name)[2]

    def _after_appended(self, held: str, tail: str) -> tuple[list[int], str]:
        """No answer stands between: the new text follows the old one, or nothing can be said."""
        if not tail.startswith(held):
            why = (
                "the template writes the messages that were appended before differently when these"
                " follow; give them all in one turn"
            )
            raise ChatTemplateError(why=why)
        new = tail[len(held) :]
        start, whole = self.tokenizer.encode(held), self.tokenizer.encode(tail)
        if whole[: len(start)] == start:
            return whole[len(start) :], new
        return self.tokenizer.encode_after_text(new), new

    def _differs(self, history: Sequence[Exchange], head: str) -> bool:
        """Whether the log, up to the last answer, says other words than the template's head."""
        pieces: list[str] = []
        for each in history:
            pieces += each.input.text, answer_text(self.tokenizer, each, with_end=True)
        return without_spaces("".join(pieces[:-1])) != without_spaces(head)


def _asked(
    past: Sequence[Message],
    history: Sequence[Exchange],
    prompt: ChatPrompt | None,
    answers: bool,
) -> _Asked:
    """Tools and variables hold from one turn to the next, until they are said anew."""
    tools: Sequence[object] | None = None
    variables: dict[str, object] = {}
    for each in (*(exchange.prompt for exchange in history), *([prompt] if prompt else [])):
        tools = tools if each.tools is None else each.tools
        variables.update(each.variables)
    return _Asked(past, prompt, answers, tools, variables)


def _with_answer(exchange: Exchange, answer: str) -> list[Message]:
    """An exchange's messages and its answer; what the answer went on from belongs to it."""
    messages = list(exchange.prompt.messages)
    if not exchange.prompt.continue_final:
        return [*messages, {"role": "assistant", "content": answer}]
    begun = messages.pop()
    return [*messages, {**begun, "content": f"{begun['content']}{answer}"}]


def _split(text: str, has_answer: bool) -> tuple[str, str]:
    """Head and tail; all is tail where nothing was answered yet."""
    if not has_answer:
        return "", text
    shown = text.count(_PLACEHOLDER)
    if shown != 1:
        why = (
            f"the template shows the last answer {shown} times, so what follows it can't be told;"
            " give the whole conversation to engine.complete instead"
        )
        raise ChatTemplateError(why=why)
    head, _, tail = text.partition(_PLACEHOLDER)
    return head, tail


def _up_to_the_end_of(begun: str, text: str) -> str:
    """The text up to where the last message ends, as far as the template shows it."""
    at = text.rfind(_END_MARK)
    if at < 0 or begun.strip() not in text:
        why = "the template doesn't show the last message as it is, so no answer can go on from it"
        raise ChatTemplateError(why=why)
    keeps_spaces = text[at + len(_END_MARK) :].startswith(" ")
    return text[:at] if keeps_spaces else text[:at].rstrip()
