"""Rules of one turn's draws that go beyond temperature, top-k and top-p.

Most turns have none. One object a turn holds them, so that a row of a step carries one reference.
Rules look at the turn's own tokens, which are lent to the device, and at nothing else.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

__all__ = ["NOTHING_KNOWN", "KnownTokens", "LogitRules", "LogitsProcessor", "TokenConstraint"]


@attrs.frozen(eq=False)
class KnownTokens:
    """The tokens of one turn, lent: one object a turn, so that a device may remember it weakly.

    What is read here is copied out. The tokens before a row's own draw never change while its
    turn is open; of a turn that was forgotten, with a step still on the device, nobody uses the
    draw.
    """

    history: Sequence[int]
    history_len: int
    """Tokens of ``history`` that were there at the turn's start."""
    new: Sequence[int]
    """The input, then what was generated."""
    input_len: int

    def prompt(self) -> list[int]:
        """The session's history, then the input."""
        return [*self.history[: self.history_len], *self.new[: self.input_len]]

    def generated(self, count: int, last: int | None = None) -> Sequence[int]:
        """The first ``count`` generated tokens; of these the ``last`` ones only, where given."""
        end = self.input_len + count
        start = self.input_len if last is None else max(self.input_len, end - last)
        return self.new[start:end]


NOTHING_KNOWN = KnownTokens((), 0, (), 0)


class TokenConstraint(Protocol):
    """Which tokens may come next, for structured output; one object a turn.

    It is called on the device's thread only, and what it says must be a function of the generated
    tokens alone. It may keep a matcher that is as far as its last call, and should: the next call
    usually has one token more. An error that it raises fails its own turn, no other one.
    """

    def fill(self, generated: Sequence[int], into: Any, /) -> None:
        """Mark what may follow ``generated`` (the turn's own tokens, without the prompt).

        Args:
            generated: all that the turn has generated, in order.
            into: a bit mask of ``ceil(vocabulary / 32)`` int32 words in the device's own kind of
                array on the CPU (torch: a contiguous one-dimensional tensor). Bit ``token % 32`` of
                word ``token // 32`` stands for a token; every bit is set. Clear those that are not
                allowed, ids beyond the tokenizer's included. Leave an end-of-sequence token set
                where the output may end.
        """
        ...

    def is_complete(self, generated: Sequence[int], /) -> bool:
        """Whether nothing may follow ``generated``, not even a token that ends the turn.

        Asked after each draw, with the token drawn. The turn then ends itself.
        """
        ...


@attrs.frozen
class LogitsProcessor:
    """A callable of the caller's own; it runs on the device's thread, once a draw of its turn.

    ``call(generated, logits)``, or ``call(prompt, generated, logits)`` if it takes three: lists of
    token ids, and the row's logits (torch: [vocabulary], its own to change). It returns the logits
    to go on with, of the same shape.
    """

    call: Callable[..., Any]
    takes_prompt: bool

    @classmethod
    def of(cls, call: Callable[..., Any]) -> "LogitsProcessor | None":
        """See how many arguments it takes; ``None``: neither two nor three."""
        try:
            signature = inspect.signature(call)
        except (TypeError, ValueError):
            return cls(call, takes_prompt=False)  # built in, without a signature
        for count in (2, 3):
            try:
                signature.bind(*range(count))
            except TypeError:
                continue
            return cls(call, takes_prompt=count == 3)
        return None


@attrs.frozen(eq=False, kw_only=True)
class LogitRules:
    """What is asked of all draws of one turn; every default changes nothing.

    In this order, then temperature and what limits the candidates: bias, processors, penalties
    (repetition, frequency, presence), and what is not allowed (bad words, allowed ids, banned ids,
    constraint).
    """

    known: KnownTokens = NOTHING_KNOWN
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of these ids."""
    processors: tuple[LogitsProcessor, ...] = ()
    repetition_penalty: float = 1.0
    """Divides positive logits and multiplies negative ones, of each id in prompt or output."""
    frequency_penalty: float = 0.0
    """Subtracted once for each time that an id was generated."""
    presence_penalty: float = 0.0
    """Subtracted once from each id that was generated."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """The last id of each is banned where those before it were just generated."""
    allowed_token_ids: tuple[int, ...] | None = None
    constraint: TokenConstraint | None = None
    min_p: float = 0.0
    """Keep ids at least this likely, relative to the likeliest."""
    typical_p: float = 1.0
    """Keep the ids nearest to the expected surprise whose probability reaches this."""
    logprobs: int | None = None
    """Report the token drawn and so many of the likeliest; -1: all."""

    @property
    def asks(self) -> bool:
        """Whether anything at all is asked."""
        limits = self.min_p > 0 or self.typical_p < 1
        return self.changes_logits or limits or self.logprobs is not None

    @property
    def changes_logits(self) -> bool:
        """Whether more is asked than to limit the candidates and to report."""
        return bool(
            self.logit_bias
            or self.processors
            or self.repetition_penalty != 1
            or self.frequency_penalty
            or self.presence_penalty
            or self.bad_words
            or self.allowed_token_ids is not None
            or self.constraint is not None
        )
