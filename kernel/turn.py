"""A turn as its caller asks for it, and as the scheduler runs it. Values only, no handles."""

from array import array
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal

import attrs

from kernel.actors.actor import Timer
from kernel.actors.reply import Reply
from kernel.ids import TurnId
from kernel.params import SamplingParams
from kernel.policies import Rank
from kernel.prefixes.cache_use import CacheUse
from kernel.requests.conversation import Composing, Conversation
from kernel.requests.logit_rules import LogitRules
from kernel.requests.output_buffer import TurnOutput
from kernel.sliding import SlidingWindow
from kernel.state_image import StateImage
from kernel.step import PromptScoring, RowSampling
from ownership import Base, BaseName, CustodianId, Need

__all__ = ["OpenTurn", "TokenLog", "TurnRequest", "TurnState"]

TokenLog = array
"""Token ids of a session, four bytes each."""


_GREEDY = RowSampling(temperature=0.0, top_k=0, top_p=1.0, key=0, index=0)
"""A greedy draw looks at nothing but the logits, so all of them share one value."""


@attrs.define(eq=False)
class TurnRequest:
    """What a caller asks of a session."""

    id: TurnId
    kind: Literal["generate", "append"]
    tokens: Sequence[int]
    params: SamplingParams
    output: TurnOutput
    accepted: Reply[None]
    is_cancel_posted: bool = False
    """A latch: one message is enough, however often the caller cancels."""
    wait: bool = False
    """Queue behind an active turn of the session instead of being refused as busy."""
    priority: int = 0
    tenant: str = ""
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    stall_timeout_s: float | None = None
    seed: int = 0
    rules: LogitRules | None = None
    """What its sampling asks beyond temperature, top-k and top-p; without its tokens."""
    context: Mapping[str, object] = attrs.field(factory=dict[str, object])
    alarms: dict[str, Timer] = attrs.field(factory=dict[str, Timer])
    """By kind, those that are armed."""
    interrupts: list[Reply[int]] = attrs.field(factory=list[Reply[int]])
    """Interrupts that came while it waited for its place in the session."""
    opening_ids: tuple[int, ...] = ()
    """What its text begins with if the log is empty when it starts."""
    composing: Composing | None = None
    """Its messages; they become its tokens when it has its place in the session."""
    cache_salt: str | None = None
    """``None``: the session's."""
    cache_at: tuple[int, ...] = ()
    """Positions, counted from the start of the log, that the prefix cache shall keep."""

    def awaits_tokens(self, log_len: int) -> bool:
        """Whether its messages have yet to be composed for a log of this length."""
        return self.composing is not None and self.composing.log_len != log_len

    def compose(self, conversation: Conversation | None, log: Sequence[int]) -> None:
        """Let its messages become its tokens. Foreign code runs here.

        Raises:
            TenureError: the model's chat format can't write them.
        """
        if self.composing is not None:
            self.tokens = self.composing.compose(conversation, log).token_ids

    @property
    def history_differs(self) -> bool:
        """Whether the chat format would write the history otherwise than the log holds it."""
        composed = None if self.composing is None else self.composing.composed
        return composed is not None and composed.history_differs

    @property
    def expected_tokens(self) -> int:
        """For the door: its tokens, or a guess where its messages aren't composed yet."""
        if self.composing is not None and not self.tokens:
            return self.composing.expected_tokens
        return len(self.tokens)

    def open_log(self, log_len: int) -> None:
        """Let a text that starts a log begin as the tokenizer wants it."""
        if self.opening_ids and self.tokens and not log_len:
            self.tokens = [*self.opening_ids, *self.tokens]
        self.opening_ids = ()


class TurnState(Enum):
    """Where a turn stands at the scheduler."""

    WAITING = "waiting"
    RUNNING = "running"
    COMMITTING = "committing"
    """Between the two phases: its claim is with the session."""
    PARKING = "parking"
    """Preempted: its state is being copied to host memory, and can't be run meanwhile."""
    ENDED = "ended"


@attrs.define(eq=False)
class OpenTurn:
    """A turn at the scheduler.

    The known tokens of a turn are its session's history, its input and what it has generated so
    far. ``history`` is the session's own log, lent: it isn't written while a turn is open.
    """

    id: TurnId
    session: CustodianId
    history: "array[int]"
    history_len: int
    new: list[int]
    """The input, then the generated tokens."""
    input_len: int
    base: Base
    kind: Literal["generate", "append"]
    absorb_first: bool
    """Absorb and commit the pending part of the history as a first phase."""
    max_tokens: int
    min_tokens: int
    stop_ids: frozenset[int]
    temperature: float
    top_k: int
    top_p: float
    key: int
    output: TurnOutput
    absorbed_before: int
    """Positions that some state of the session had absorbed before this turn."""
    priority: int = 0
    tenant: str = ""
    deadline_s: float | None = None
    rules: LogitRules | None = None
    """With the turn's tokens; ``None`` for most turns."""
    prompt_logprobs: int | None = None
    """Report so many of the likeliest beside each token of the input; -1: all."""
    cache: CacheUse = attrs.field(factory=CacheUse)
    fallbacks: tuple[BaseName, ...] = ()
    """Of the marks of its session, the furthest first: where it starts if ``base`` is gone."""
    is_behind: bool = False
    """Whether ``base`` isn't the newest state of its session: a cached one may be further."""
    image: StateImage | None = None
    """A state of its session that was read from outside; where it starts if ``base`` is zeros."""
    window: SlidingWindow | None = None
    """Which positions it keeps in attention layers; ``None``: all."""

    rank: Rank = (0.0, 0)
    state: TurnState = TurnState.WAITING
    position: int = 0
    """Tokens that the working claim has absorbed."""
    covered: int = 0
    """Positions that the working claim's pages cover."""
    first_page: int = 0
    """Pages that the working claim has dropped."""
    has_landed: bool = False
    """Whether the working claim has a state of its own (its first step has landed)."""
    is_loading: bool = False
    """Whether the working claim has yet to be filled from ``image``, by its first step."""
    is_sliding: bool = False
    """Whether the working claim has yet to be filled from the one before it."""
    in_flight: bool = False
    cancelled: bool = False
    interrupt_keep: int | None = None
    interrupt_reason: Literal["stop", "length", "interrupt"] | None = None
    was_admitted: bool = False
    has_computed: bool = False
    """Whether a row of it has landed: what it found when it was admitted, it has used."""

    @property
    def known_len(self) -> int:
        return self.history_len + len(self.new)

    @property
    def generated(self) -> int:
        return len(self.new) - self.input_len

    def need(self, position: int) -> Need:
        """What a claim at ``position`` must hold to go on: as far as its window reaches."""
        known = self.history_len + len(self.new)
        if self.window is None:
            return Need(known)
        first = self.window.first_page(position)
        return Need(min(known, self.window.end(position)), first)

    @property
    def must_slide(self) -> bool:
        """Whether the next row needs pages to be dropped first."""
        window = self.window
        return window is not None and window.first_page(self.position) > self.first_page

    @property
    def target(self) -> int:
        """The position that the turn has to reach before it can draw, commit or end."""
        if self.absorb_first:
            return self.history_len - 1
        if self.kind == "append":
            return self.known_len - 1
        return self.known_len

    @property
    def draws(self) -> bool:
        """Whether a token is drawn when the target is reached."""
        return self.kind == "generate" and not self.absorb_first

    def tokens(self, start: int, end: int) -> Sequence[int]:
        """Known tokens at positions ``start`` to ``end`` (exclusive)."""
        split = self.history_len
        if start >= split:
            return self.new[start - split : end - split]
        if end <= split:
            return self.history[start:end]
        return [*self.history[start:split], *self.new[: end - split]]

    def sampling(self) -> RowSampling:
        """How the next token is drawn."""
        generated, rules = len(self.new) - self.input_len, self.rules
        if generated < self.min_tokens and (rules is None or rules.constraint is None):
            # A constraint sees to it itself: where its output is complete, that goes first.
            banned = tuple(sorted(self.stop_ids))
            return RowSampling(
                self.temperature, self.top_k, self.top_p, self.key, generated, banned, rules
            )
        if rules is None:
            if self.temperature == 0:
                return _GREEDY
            return RowSampling(self.temperature, self.top_k, self.top_p, self.key, generated)
        return RowSampling(self.temperature, self.top_k, self.top_p, self.key, generated, (), rules)

    def scoring(self, start: int, end: int) -> PromptScoring | None:
        """What a row that absorbs positions ``start`` to ``end`` is asked about the input.

        Each token of the input is asked for once: not again where it is computed again.
        """
        if self.prompt_logprobs is None:
            return None
        first = self.first_scored(start)
        stop = min(end, self.history_len + self.input_len - 1) + 1
        if first >= stop:
            return None
        return PromptScoring(first - 1 - start, self.tokens(first, stop), self.prompt_logprobs)

    def first_scored(self, start: int) -> int:
        """The first position that a row from position ``start`` on can still tell about."""
        return max(self.history_len + len(self.output.prompt_logprobs), start + 1)
