"""A turn as its caller asks for it, and as the scheduler runs it. Values only, no handles."""

from array import array
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal

import attrs

from kernel.ids import TurnId
from kernel.output_buffer import TurnOutput
from kernel.params import SamplingParams
from kernel.policies import Rank
from kernel.reply import Reply
from kernel.step import RowSampling
from ownership import Base, CustodianId

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
    context: Mapping[str, object] = attrs.field(factory=dict[str, object])
    interrupts: list[Reply[int]] = attrs.field(factory=list[Reply[int]])
    """Interrupts that came while it waited for its place in the session."""


class TurnState(Enum):
    """Where a turn stands at the scheduler."""

    WAITING = "waiting"
    RUNNING = "running"
    COMMITTING = "committing"
    """Between the two phases: its claim is with the session."""
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

    rank: Rank = (0.0, 0)
    state: TurnState = TurnState.WAITING
    position: int = 0
    """Tokens that the working claim has absorbed."""
    covered: int = 0
    """Positions that the working claim's pages cover."""
    has_landed: bool = False
    """Whether the working claim has a state of its own (its first step has landed)."""
    in_flight: bool = False
    cancelled: bool = False
    interrupt_keep: int | None = None
    interrupt_reason: Literal["stop", "length", "interrupt"] | None = None
    was_admitted: bool = False

    @property
    def known_len(self) -> int:
        return self.history_len + len(self.new)

    @property
    def generated(self) -> int:
        return len(self.new) - self.input_len

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
        generated = len(self.new) - self.input_len
        if generated < self.min_tokens:
            banned = tuple(sorted(self.stop_ids))
            return RowSampling(
                self.temperature, self.top_k, self.top_p, self.key, generated, banned
            )
        if self.temperature == 0:
            return _GREEDY
        return RowSampling(self.temperature, self.top_k, self.top_p, self.key, generated)
