"""Token ids to text, piece by piece: no half characters, and stop strings that may span tokens.

Decoding token by token is wrong twice: the bytes of one character may lie in several tokens, and
some tokenizers treat the first token specially. Decoding everything at each token is quadratic. So
a short window of the last tokens is decoded, and what it adds to the text already known is new.

    tokens   … 17 208 │ 61 150 224       window: from the last but one clean boundary
    text     … done   │ "a " + U+FFFD    a trailing U+FFFD may be half a character: unstable
    undelivered       = held back for a stop string + unstable

Each undelivered character knows the token in which it begins and the one in which it ended, so
that a stop string can be cut at a token boundary.
"""

from collections.abc import Sequence

import attrs

from kernel.step import Tokenizer

__all__ = ["IncrementalDetokenizer", "StopHit"]

_REPLACEMENT = "\ufffd"
_UNSTABLE_MAX = 3
"""Most trailing U+FFFD that may still become one character: all but one of its four bytes."""
_WINDOW_MAX = 64
"""Tokens in the window before it is cut even without a clean boundary (only garbage is so long)."""
_WINDOW_KEPT = 16
"""Tokens kept by such a cut; UTF-8 finds its boundaries again within four bytes."""


@attrs.frozen
class StopHit:
    """A stop string was generated.

    The text ends where the stop string begins, whatever the token boundaries. The tokens end
    before the one in which it begins; or after that one, if part of its text belongs to the
    output. Neither depends on how the text was delivered.
    """

    stop: str
    kept_tokens: int
    """Tokens that stay in the log: generated tokens whose text, at least in part, is output."""
    text: str
    """The whole text of the turn."""


@attrs.define(eq=False)
class IncrementalDetokenizer:
    """Turns one turn's generated tokens into text; O(1) a token, amortised.

    The pieces of ``push`` and ``finish`` together are ``tokenizer.decode`` of all the ids, for
    byte-level tokenizers exactly, cut at the first stop string. Not thread-safe.
    """

    tokenizer: Tokenizer
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    """Let the text end after the stop string instead of before it."""
    min_tokens: int = 0
    """A stop string that is complete within the first so many tokens does not count."""
    stop_hit: StopHit | None = attrs.field(default=None, init=False)
    num_tokens: int = attrs.field(default=0, init=False)
    """Tokens taken in, up to the one that completed a stop string."""
    _window: list[int] = attrs.field(factory=list[int], init=False)
    _known: str = attrs.field(default="", init=False)
    """Text of the window."""
    _clean: int = attrs.field(default=0, init=False)
    """Tokens of the window up to its last clean boundary."""
    _undelivered: str = attrs.field(default="", init=False)
    _unstable: int = attrs.field(default=0, init=False)
    """Characters at the end of ``_undelivered`` that may still change."""
    _begins: list[int] = attrs.field(factory=list[int], init=False)
    """By undelivered character: the token (from 0) in which it begins."""
    _ends: list[int] = attrs.field(factory=list[int], init=False)
    """By undelivered character: the last token that may have contributed to it."""
    _delivered_from: int = attrs.field(default=0, init=False)
    """Tokens up to the last that may have contributed to what was delivered."""
    _pieces: list[str] = attrs.field(factory=list[str], init=False)
    _beginnings: tuple[str, ...] = attrs.field(init=False)
    """What a stop string may begin with, the longest first, so that ``endswith`` finds it."""

    def __attrs_post_init__(self) -> None:
        found = {stop[:size] for stop in self.stop for size in range(1, len(stop))}
        self._beginnings = tuple(sorted(found, key=len, reverse=True))

    @property
    def text(self) -> str:
        """All that was delivered so far."""
        return "".join(self._pieces)

    @property
    def delivered_tokens(self) -> int:
        """Tokens whose text was delivered whole; after a stop string, those that it leaves."""
        if self.stop_hit is not None:
            return self.stop_hit.kept_tokens
        return self._begins[0] if self._begins else self.num_tokens

    def push(self, ids: Sequence[int]) -> str:
        """Take in generated tokens; returns the text that became safe to deliver.

        Safe is what no later token can change and what can't be the beginning of a stop string.
        After a hit (see ``stop_hit``) tokens are ignored and nothing is returned.
        """
        already = len(self._pieces)
        for token in ids:
            if self.stop_hit is not None:
                break
            before = len(self._undelivered) - self._unstable
            self._take_in(token)
            self.num_tokens += 1
            if not self.stop:
                self._deliver(len(self._undelivered) - self._unstable)
            elif not self._find_stop(before):
                self._deliver(len(self._undelivered) - self._unstable - self._held_back())
        return "".join(self._pieces[already:])

    def finish(self) -> str:
        """End the turn; returns what was held back, half characters as U+FFFD."""
        if self.stop_hit is not None:
            return ""
        self._unstable = 0
        return self._deliver(len(self._undelivered))

    def _take_in(self, token: int) -> None:
        """Decode the window with one more token and append what is new to the undelivered text."""
        decode = self.tokenizer.decode
        self._window.append(token)
        text = decode(self._window)
        # A first token without text may be the space that is stripped from a first word: what
        # comes next looks different with it.
        may_lead = not text and len(self._window) <= _WINDOW_KEPT
        if text == self._known and not decode((token,)) and not may_lead:
            self._window.pop()  # a special token: no text, and of no help to the next one
            return
        kept = len(self._known) - self._unstable
        self._replace_unstable(text[kept:])
        self._known = text
        if not self._unstable:
            # Start at the last boundary but one: some tokenizers strip a first token's space.
            self._cut_window(self._clean, decode(self._window[self._clean :]))
            self._clean = len(self._window)
        elif len(self._window) >= _WINDOW_MAX:
            start = len(self._window) - _WINDOW_KEPT
            self._cut_window(start, decode(self._window[start:]))
            self._clean = 0

    def _cut_window(self, start: int, text: str) -> None:
        # The rest must show all that may still change, or new text could not be told from old.
        if len(text) > self._unstable:
            del self._window[:start]
            self._known = text

    def _replace_unstable(self, fresh: str) -> None:
        """Put ``fresh`` where the unstable characters are; those it leaves keep their token."""
        number = self.num_tokens
        stable = len(self._undelivered) - self._unstable
        if self._unstable:
            # Whatever it turned into, this token decided the last one.
            self._ends[-1] = number
        self._undelivered = self._undelivered[:stable] + fresh
        length = len(self._undelivered)
        new = length - len(self._begins)
        if new >= 0:
            self._begins += [number] * new
            self._ends += [number] * new
        else:
            del self._begins[length:], self._ends[length:]
        self._unstable = _count_unstable(fresh)

    def _deliver(self, count: int) -> str:
        if count <= 0:
            return ""
        piece = self._undelivered[:count]
        self._pieces.append(piece)
        self._delivered_from = self._ends[count - 1] + 1
        self._undelivered = self._undelivered[count:]
        del self._begins[:count], self._ends[:count]
        return piece

    def _held_back(self) -> int:
        """Count the last stable characters that may be the beginning of a stop string."""
        stable = self._undelivered[: len(self._undelivered) - self._unstable]
        if not stable.endswith(self._beginnings):
            return 0
        return next(len(text) for text in self._beginnings if stable.endswith(text))

    def _find_stop(self, seen: int) -> bool:
        """Look for the stop string that is complete first, and end the text at it.

        Args:
            seen: stable characters that were there before this token; a stop string that lies
                within them was complete too early to count.
        """
        if self.num_tokens <= self.min_tokens:
            return False
        stable = self._undelivered[: len(self._undelivered) - self._unstable]
        found: list[tuple[int, int, str]] = []
        for stop in self.stop:
            start = stable.find(stop, max(0, seen - len(stop) + 1))
            if start >= 0:
                found.append((start + len(stop), start, stop))
        if not found:
            return False
        end, start, stop = min(found)
        self._end_at(stop, start, end)
        return True

    def _end_at(self, stop: str, start: int, end: int) -> None:
        if self.include_stop:
            kept = self._ends[end - 1] + 1
            self._deliver(end)
        else:
            first = self._begins[start]
            self._deliver(start)
            kept = max(first, self._delivered_from)
        self.stop_hit = StopHit(stop, kept, self.text)
        self._undelivered, self._unstable = "", 0
        self._begins.clear()
        self._ends.clear()


def _count_unstable(text: str) -> int:
    trailing = len(text) - len(text.rstrip(_REPLACEMENT))
    return min(trailing, _UNSTABLE_MAX)
