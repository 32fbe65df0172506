"""What a turn has produced, between the scheduler that appends and the caller who reads.

One growing buffer a turn, at most ``max_tokens`` long, so a slow reader never holds a turn up and
loses nothing: what it missed is merged into its next delta. Only values are in here. The session
writes the end, after it has decided what the end is.

Text is decoded at the edge: by the caller when it reads, or, when there are stop strings to find,
by the dispatcher between two handlers.
"""

from collections.abc import Callable, Sequence
from typing import final

import anyio
import attrs

from kernel.outputs import CacheMiss, Delta, FinishReason, TokenLogprobs, Usage
from kernel.requests.detokenizer import IncrementalDetokenizer, StopHit

__all__ = ["Receipt", "TurnEnd", "TurnOutput"]


@attrs.frozen
class TurnEnd:
    """How a turn ended, as decided by its session."""

    reason: FinishReason
    kept: int
    """Generated tokens that are in the log."""
    stop_reason: str | int | None = None
    error: BaseException | None = None
    """Raised to the caller instead of a result."""


@attrs.define(eq=False)
class Receipt:
    """How much of a turn its caller has received: what a session keeps of its last output."""

    tokens: int = 0


@final
class TurnOutput:
    """The output of one turn.

    Args:
        detokenizer: ``None`` when the caller wants ids only.
        decode_early: decode as tokens come, to look for stop strings.
        clock: seconds; used for the timings that the caller is told.
        on_end: called once, when the end has been written.
        watch_reader: note since when output lies unread, for a stall deadline.
        reports_logprobs: each token comes with log-probabilities.
    """

    def __init__(
        self,
        detokenizer: IncrementalDetokenizer | None,
        *,
        decode_early: bool,
        clock: Callable[[], float],
        on_end: Callable[[], None],
        watch_reader: bool = False,
        reports_logprobs: bool = False,
    ) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] | None = [] if reports_logprobs else None
        """One for each of ``tokens``."""
        self.prompt_logprobs: list[TokenLogprobs | None] = []
        """One for each token of the input that has been absorbed, where they were asked for."""
        self.decode_early = decode_early
        self.submitted_at = clock()
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None
        self.ended_at: float | None = None
        self.unread_since: float | None = None
        self.end: TurnEnd | None = None
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.cache_miss: CacheMiss | None = None
        self.recomputed_tokens = 0
        self.preemptions = 0
        self.receipt = Receipt()
        self.on_news: Callable[[], None] | None = None
        """Called with each token and with the end, by whoever writes them; must not raise."""
        self.hidden_tail = 0
        """1 when the last token is a stop token, whose text is not part of the answer."""
        self._detokenizer = detokenizer
        self._decoded = 0
        self._pieces: list[str] = []
        self._text: list[str] = []
        self._clock = clock
        self._on_end = on_end
        self._watch_reader = watch_reader
        self._waits_for_end = False
        self._delta_readers = 0
        self._event: anyio.Event | None = None
        self._final_delta_sent = False

    @property
    def delivered(self) -> int:
        """Tokens that the caller has received."""
        return self.receipt.tokens

    @delivered.setter
    def delivered(self, tokens: int) -> None:
        self.receipt.tokens = tokens

    # Written by the scheduler and the session

    def push(self, token: int, *, hidden: bool) -> None:
        """Append one generated token; ``hidden`` when it ended the turn and has no text."""
        if self.first_token_at is None:
            self.first_token_at = self._clock()
        if self._watch_reader and self.unread_since is None and not self._waits_for_end:
            self.unread_since = self._clock()
        self.tokens.append(token)
        self.hidden_tail = int(hidden)
        event = self._event
        if event is not None and self._delta_readers:
            event.set()
            self._event = None
        if self.on_news is not None:
            self.on_news()

    def push_scores(self, found: TokenLogprobs | None) -> None:
        """Append what was asked for of the token that is pushed next."""
        if self.logprobs is not None and found is not None:
            self.logprobs.append(found)

    def score_prompt(self, place: int, found: Sequence[TokenLogprobs]) -> None:
        """Take in log-probabilities of the input's tokens from ``place`` on; before it is a gap."""
        scored = self.prompt_logprobs
        scored.extend([None] * (place - len(scored)))
        scored.extend(found)

    def finish(self, end: TurnEnd) -> None:
        """Write the end; a second one is ignored."""
        if self.end is None:
            self.end = end
            self.ended_at = self._clock()
            self._on_end()
            if self._event is not None:
                self._event.set()
            if self.on_news is not None:
                self.on_news()

    # The edge: foreign code runs here

    def decode(self) -> StopHit | None:
        """Decode what is new; returns the stop string that ends the turn, once there is one.

        Raises whatever the tokenizer raises.
        """
        detokenizer = self._detokenizer
        if detokenizer is None:
            return None
        limit = len(self.tokens) - self.hidden_tail
        if detokenizer.stop_hit is None and limit > self._decoded:
            piece = detokenizer.push(self.tokens[self._decoded : limit])
            self._decoded = limit
            if piece:
                self._pieces.append(piece)
        return detokenizer.stop_hit

    @property
    def stop_hit(self) -> StopHit | None:
        return self._detokenizer.stop_hit if self._detokenizer is not None else None

    # The caller

    def final_text(self) -> str:
        """The whole text of a turn that has ended; decoded anew where an interrupt cut it."""
        detokenizer, end = self._detokenizer, self.end
        if detokenizer is None or end is None:
            return ""
        hit = self.decode()
        if hit is not None and hit.kept_tokens == end.kept:
            return hit.text
        visible = min(end.kept, len(self.tokens) - self.hidden_tail)
        if self._final_delta_sent and visible == self._decoded:
            return "".join(self._text)
        return detokenizer.tokenizer.decode(self.tokens[:visible])

    @property
    def usage(self) -> Usage:
        """Token counts; what is generated counts as far as it was kept."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=len(self.tokens) if self.end is None else self.end.kept,
            cached_tokens=self.cached_tokens,
            cache_miss=self.cache_miss,
            recomputed_tokens=self.recomputed_tokens,
        )

    async def wait_ended(self) -> TurnEnd:
        """Wait for the end without being woken by tokens. Cancel-safe."""
        self._waits_for_end = True
        self.unread_since = None
        try:
            while self.end is None:
                await self._wait(lambda: self.end is not None)
        finally:
            self._waits_for_end = False
        return self.end

    async def next_delta(self) -> Delta | None:
        """What came since the last call, merged; ``None`` after the delta that ends the turn.

        Cancel-safe: nothing is taken out of the buffer before this returns.

        Raises:
            TenureError: the turn failed, timed out or was aborted from elsewhere.
        """
        while True:
            delta = self.take()
            if delta is not None:
                return delta
            if self._final_delta_sent:
                return None
            self._delta_readers += 1
            try:
                await self._wait(self._has_news)
            finally:
                self._delta_readers -= 1

    def _has_news(self) -> bool:
        return self.end is not None or self._visible(None) > self.delivered

    async def _wait(self, ready: Callable[[], bool]) -> None:
        if ready():
            return
        # One event for all that read: whoever is cancelled must not take it from the others.
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    @property
    def is_read(self) -> bool:
        """Whether the delta that ends the turn, or its error, has been taken."""
        return self._final_delta_sent

    def take(self) -> Delta | None:
        """What came since the last call, if anything did; raises as :meth:`next_delta`."""
        if self._final_delta_sent:
            return None
        end = self.end
        if end is not None and end.error is not None:
            self._final_delta_sent = True
            raise end.error
        hit = self.decode()
        visible = self._visible(end)
        if end is not None:
            self._final_delta_sent = True
            return self._delta(max(visible, self.delivered), self._last_piece(end, hit), end.reason)
        if visible <= self.delivered:
            return None
        return self._delta(visible, "", None)

    def _visible(self, end: TurnEnd | None) -> int:
        if end is not None:
            return min(end.kept, len(self.tokens))
        if self.decode_early and self._detokenizer is not None:
            return self._detokenizer.delivered_tokens
        return len(self.tokens)

    def _last_piece(self, end: TurnEnd, hit: StopHit | None) -> str:
        if self._detokenizer is None:
            return ""
        if hit is None and end.kept < self._decoded:
            # Cut back by an interrupt: what was delivered stands, nothing is added to it.
            self._pieces.clear()
            return ""
        return self._detokenizer.finish()

    def _delta(self, upto: int, last: str, reason: FinishReason | None) -> Delta:
        text = "".join(self._pieces) + last
        self._pieces.clear()
        self._text.append(text)
        new = slice(self.delivered, upto)
        tokens = tuple(self.tokens[new])
        logprobs = None if self.logprobs is None else tuple(self.logprobs[new])
        self.delivered = upto
        self.unread_since = None
        return Delta(text, tokens, reason, logprobs)
