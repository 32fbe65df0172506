"""The constraint of one turn: which tokens may follow those that it has generated."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from adapters.structured.matcher import Matcher

__all__ = ["DeadEnd", "GrammarConstraint"]


class DeadEnd(ValueError):
    """No token may follow, and the output isn't complete."""


class GrammarConstraint:
    """A :class:`kernel.requests.logit_rules.TokenConstraint` over the library's matcher.

    What it says is a function of the tokens that it is asked about. The matcher follows them: it
    usually has to take one more; where they turn out fewer or others, it goes back first. It is
    called from one thread at a time; what it changes, it changes so that an error in the midst of
    it leaves it unchanged, or starting over.

    The ends of an output: where the grammar may end, the tokens that end the turn (``stop_ids``)
    may follow; elsewhere they may not, though they be text of the grammar. So an output that a
    token has ended is complete. Before ``min_tokens`` they may not follow anywhere. Both hold as
    long as anything else may follow: to end goes before having nothing to draw.

    Args:
        start: the matcher at the grammar's start; not changed.
        renew: gives another one, of the same grammar, in place of one that is used up.
        stop_ids: what ends the turn: end-of-sequence ids, unless ignored, and the caller's.
        never: ids that the library allows and this turn can't draw as text: the library's end mark,
            and what ends sequences although the tokenizer has it as text.
        min_tokens: tokens to generate before ``stop_ids`` may follow.
    """

    def __init__(
        self,
        start: Matcher,
        renew: Callable[[Matcher], Matcher],
        *,
        stop_ids: frozenset[int],
        never: frozenset[int],
        min_tokens: int,
    ) -> None:
        self._start = start
        self._renew = renew
        self._stop_ids = stop_ids
        self._never = never
        self._min_tokens = min_tokens
        self._matcher = start.deep_copy()
        self._followed: list[int] = []

    def fill(self, generated: Sequence[int], into: Tensor, /) -> None:
        """Leave set the bits of the tokens that may follow. into: int32 [ceil(vocabulary / 32)].

        Raises:
            DeadEnd: none may.
        """
        allowed, may_end = self._after(generated)
        size = 4 * into.shape[0]
        allowed = allowed[:size].ljust(size, b"\0")
        text = bytes(allowed)
        _clear(allowed, self._stop_ids)
        if may_end and len(generated) >= self._min_tokens:
            _set(allowed, self._stop_ids)
        if _is_empty(allowed):
            allowed = bytearray(text)
            _set(allowed, self._stop_ids if may_end else frozenset())
        if _is_empty(allowed):
            raise DeadEnd("no token can go on from here in the form that was asked for")
        into.copy_(torch.frombuffer(allowed, dtype=torch.int32))

    def is_complete(self, generated: Sequence[int], /) -> bool:
        """Whether nothing may follow, and no token could say so."""
        if self._stop_ids:
            return False
        allowed, may_end = self._after(generated)
        return may_end and _is_empty(allowed)

    def _after(self, generated: Sequence[int]) -> tuple[bytearray, bool]:
        """The tokens whose text may follow, a bit each, and whether the output may end here."""
        tokens = list(generated)
        try:
            return self._try_after(tokens)
        except DeadEnd:
            # What the copies of a matcher share is bounded, and other turns may have used it up.
            self._start = self._renew(self._start)
            self._start_over()
            return self._try_after(tokens)

    def _try_after(self, tokens: list[int]) -> tuple[bytearray, bool]:
        self._follow(tokens)
        matcher = self._matcher
        allowed = bytearray(matcher.compute_bitmask())
        if matcher.is_error():
            why = " ".join(matcher.get_error().split())
            self._start_over()
            raise DeadEnd(f"the form that was asked for is too much for its library: {why}")
        _clear(allowed, self._never)
        return allowed, matcher.is_accepting()

    def _follow(self, tokens: list[int]) -> None:
        """Make the matcher one that has taken exactly these tokens."""
        followed = self._followed
        if tokens[: len(followed)] != followed:
            same = _common(tokens, followed)
            if self._matcher.rollback(len(followed) - same):
                self._followed = followed = tokens[:same]
            else:
                self._start_over()
                followed = self._followed
        rest = tokens[len(followed) :]
        if rest and self._matcher.try_consume_tokens(rest) != len(rest):
            self._start_over()
            raise DeadEnd("what was generated isn't in the form that was asked for")
        self._followed = tokens

    def _start_over(self) -> None:
        self._matcher = self._start.deep_copy()
        self._followed = []


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return at
    return min(len(left), len(right))


def _clear(bits: bytearray, tokens: frozenset[int]) -> None:
    for token in tokens:
        bits[token >> 3] &= ~(1 << (token & 7))


def _set(bits: bytearray, tokens: frozenset[int]) -> None:
    for token in tokens:
        bits[token >> 3] |= 1 << (token & 7)


def _is_empty(bits: bytearray) -> bool:
    return bits.count(0) == len(bits)
