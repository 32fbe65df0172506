"""What an answer in a token log says, and whether it is closed there."""

from collections.abc import Sequence

from adapters.text.tokenizer import HubTokenizer
from kernel.chat import Exchange

__all__ = ["answer_text", "closed_by", "ends_special", "without_spaces"]

_BEFORE = 8
"""Tokens before an answer that it is decoded with: its first space may depend on them."""


def answer_text(tokenizer: HubTokenizer, exchange: Exchange, *, with_end: bool = False) -> str:
    """An answer's text as it stands in the log.

    Args:
        tokenizer: the model's.
        exchange: noted in it, so that a long conversation is decoded once.
        with_end: leave the special token that ended it, by name.
    """
    note = "text with its end" if with_end else "text"
    if note not in exchange.notes:
        ids = list(exchange.answer_ids)
        if not with_end and ends_special(tokenizer, ids):
            ids.pop()
        exchange.notes[note] = _text_after(tokenizer, exchange.input.token_ids[-_BEFORE:], ids)
    return exchange.notes[note]


def _text_after(tokenizer: HubTokenizer, before: Sequence[int], ids: Sequence[int]) -> str:
    start, whole = (
        tokenizer.decode_with_special(before),
        tokenizer.decode_with_special([*before, *ids]),
    )
    return whole[len(start) :] if whole.startswith(start) else tokenizer.decode_with_special(ids)


def closed_by(tokenizer: HubTokenizer, answer: Sequence[int], tail: Sequence[int]) -> int:
    """How many of the tail's first tokens stand at the end of the answer already.

    The token that ended the answer may come after spaces in the tail, which a template puts there
    and the model didn't write. 0: the answer was cut, or ended by a token that closes nothing.
    """
    if not answer or answer[-1] not in tail:
        return 0
    end = tail.index(answer[-1])
    if tokenizer.decode_with_special(tail[:end]).strip():
        return 0
    closes = _is_special(tokenizer, answer[-1]) or not tokenizer.decode(answer[-1:]).strip()
    return end + 1 if closes else 0


def ends_special(tokenizer: HubTokenizer, answer: Sequence[int]) -> bool:
    """Whether the model has ended the answer by a special token."""
    return bool(answer) and _is_special(tokenizer, answer[-1])


def without_spaces(text: str) -> str:
    """The text's words run together: templates trim and pad as they like."""
    return "".join(text.split())


def _is_special(tokenizer: HubTokenizer, token: int) -> bool:
    """Whether a token has a name and no text."""
    return not tokenizer.decode([token]) and bool(tokenizer.decode_with_special([token]))
