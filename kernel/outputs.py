"""What callers get back: deltas, results, and views of sessions and of the engine."""

from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

__all__ = [
    "CacheMiss",
    "CheckpointInfo",
    "CompletionOutput",
    "Delta",
    "EngineStats",
    "FinishReason",
    "Health",
    "Logprob",
    "RequestOutput",
    "SessionInfo",
    "Timings",
    "TokenLogprobs",
    "Usage",
]

FinishReason = Literal["stop", "length", "abort", "timeout", "error", "interrupt"]
"""Why a turn ended; ``"interrupt"``: by its session, with what was generated so far kept."""

CacheMiss = Literal["off", "short", "prompt_logprobs", "cold", "parted", "evicted"]
"""Why a turn that had no state of its own to start from took nothing from the prefix cache:
``"off"``, it is not enabled; ``"short"``, the prompt is shorter than what is worth keeping;
``"prompt_logprobs"``, they were asked for and have to be computed; ``"cold"``, no cached prompt
under this salt begins like this one; ``"parted"``, one does, but no state stands where they part
(from now on one does); ``"evicted"``, a state stood there and gave way."""


@attrs.frozen
class Logprob:
    """How likely the model itself held one token, before any parameter of the sampling."""

    logprob: float
    """Natural logarithm of its probability."""
    rank: int
    """1 is the likeliest; among equals the lowest id comes first."""


TokenLogprobs = Mapping[int, Logprob]
"""By token id, for one position: the likeliest ones that were asked for, likeliest first, then the
token that stands there if it is none of them."""


@attrs.frozen
class Delta:
    """What is new since the last delta; merged, never dropped, for a slow consumer.

    Text lags behind the token ids where a character or a stop string may still be incomplete.
    """

    text: str
    """What can be shown now; joined over all deltas, the text of the result."""
    token_ids: tuple[int, ...]
    """What was drawn; joined over all deltas, those of the result, but for what a stop string or
    an interrupt takes back."""
    finish_reason: FinishReason | None = None
    """Set on the last delta of a turn."""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """One for each of ``token_ids``, where ``SamplingParams.logprobs`` asked for them."""
    index: int = 0
    """Of the output that it belongs to, where ``SamplingParams.n`` asked for several."""


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens of one turn."""

    prompt_tokens: int = 0
    """The whole context at the start of the turn: history, pending and new input."""
    completion_tokens: int = 0
    """Tokens that were generated and kept; over all outputs, where there are several."""
    cached_tokens: int = 0
    """Positions that were taken from the base state and not computed."""
    cache_miss: CacheMiss | None = None
    """Why ``cached_tokens`` is 0; ``None``: it isn't, or the turn was never admitted."""
    recomputed_tokens: int = 0
    """Tokens absorbed again because their state was given up or preempted for lack of room, or,
    in a fork's turn, because its parent's state was gone."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@attrs.frozen(kw_only=True)
class Timings:
    """Seconds since the turn was submitted, by the engine's clock."""

    queued_s: float = 0.0
    """Until the turn was first admitted."""
    ttft_s: float | None = None
    """Until its first token; ``None``: there was none."""
    total_s: float = 0.0
    """Until its end; with a session store, until it was kept."""
    preemptions: int = 0
    """How often it had to make room for a more senior turn, and waited again."""


@attrs.frozen(kw_only=True)
class CompletionOutput:
    """One generated sequence."""

    index: int = 0
    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id that ended it; ``None`` for end of sequence and others."""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """One for each of ``token_ids``, where ``SamplingParams.logprobs`` asked for them."""

    @property
    def cumulative_logprob(self) -> float | None:
        """The logarithm of the probability of all of it, as far as the model is concerned."""
        if self.logprobs is None:
            return None
        return sum(
            found[token].logprob for token, found in zip(self.token_ids, self.logprobs, strict=True)
        )


@attrs.frozen(kw_only=True)
class RequestOutput:
    """The result of one turn or one-shot request."""

    request_id: str
    session_id: str | None = None
    """``None`` for a one-shot request."""
    prompt_token_ids: tuple[int, ...] = ()
    """The new input of this turn, without the session's history."""
    prompt_logprobs: Sequence[TokenLogprobs | None] | None = None
    """One for each of ``prompt_token_ids``, where ``SamplingParams.prompt_logprobs`` asked for
    them. ``None`` for the first token of a session, which nothing comes before, and for tokens that
    were not computed in this turn."""
    outputs: tuple[CompletionOutput, ...] = (CompletionOutput(),)
    finished: bool = True
    usage: Usage = Usage()
    timings: Timings = Timings()
    history_differs: bool = False
    """In a session of messages: the model's template would write the earlier messages otherwise
    than the log holds them (thoughts dropped, another date). The log stands."""

    @property
    def num_cached_tokens(self) -> int:
        return self.usage.cached_tokens

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.outputs[0].finish_reason

    @property
    def stop_reason(self) -> str | int | None:
        return self.outputs[0].stop_reason


@attrs.frozen(kw_only=True)
class CheckpointInfo:
    """A named checkpoint of a session at one moment."""

    name: str
    turns: int
    """Turns that :meth:`Session.restore` brings the session back to."""
    num_tokens: int
    """Length of the token log there."""
    position: int = 0
    """Tokens that its state has absorbed; 0 without a state."""
    has_state: bool = False
    """False: its state was given up for lack of room, or there was none; it is computed again."""
    bytes: int = 0
    """Memory that comes back when it alone is dropped; what others hold as well isn't counted."""


@attrs.frozen(kw_only=True)
class SessionInfo:
    """A session at one moment. ``None`` stands for what can't be known without reading the disk.

    That is only so of dormant sessions: of one that went dormant in this life of the engine most is
    remembered, of one that nobody has used in it nothing but its name. Waking it tells all.
    """

    session_id: str
    state: Literal["idle", "queued", "running", "dormant", "closed"]
    """``"dormant"``: only in the store."""
    num_tokens: int | None = None
    """Length of the token log."""
    position: int | None = None
    """Tokens that the furthest state has absorbed, in whatever place it is; 0: there is none. For
    a fork without a turn, its parent's. ``None`` as well for a dormant session whose snapshot the
    store may have dropped since, to stay within ``session_store_bytes``."""
    pending_tokens: int | None = None
    """Tokens of the log that the next turn absorbs first: ``num_tokens - position``."""
    first_position: int | None = None
    """The oldest position that attention layers still see in the state; 0: all of them. Above 0 in
    a session that slides: of what was before only recurrent layers know. ``None`` for a state on
    the disk."""
    version: int = 0
    """Changes of the committed state since the session came into memory."""
    place: Literal["device", "host", "disk", "log"] | None = None
    """Where that state is; ``"log"``: nowhere, the next turn computes it from the token log."""
    bytes: int = 0
    """What that state takes of the pool in its ``place``. 0 for one that is in no pool (on the
    disk, or brought in and not used yet), and for a fork without a turn: it is its parent's."""
    turns: int | None = None
    """Turns in the log, as :meth:`Session.rewind` counts them."""
    last_used_s: float | None = None
    """Time of the last change, by the engine's clock."""
    detached: bool | None = None
    """True when leaving ``engine.session()`` does not close it."""
    attached: bool = False
    """Whether a caller has a :class:`Session` object of it."""
    checkpoints: tuple[CheckpointInfo, ...] | None = None
    """Those that can be restored, in the order in which they were made. ``None``, too, for a
    dormant session with many of them."""
    cache_miss: CacheMiss | None = None
    """Why the turn that runs, or else the last one, found nothing in the prefix cache; ``None``:
    it did, or it had a state of the session to start from."""


@attrs.frozen(kw_only=True)
class EngineStats:
    """Gauges at one moment and counters since the engine was opened."""

    num_requests_running: int = 0
    """Turns that have room, one-shot requests and turns between their two phases included."""
    num_requests_waiting: int = 0
    """Turns that the scheduler has no room for yet, preempted ones included."""
    num_queued_tokens: int = 0
    """Tokens that turns will absorb which were not admitted yet, as ``max_num_queued_tokens``
    counts them."""
    num_sessions: int = 0
    """In memory; dormant ones aren't counted."""
    sessions_stored: int = 0
    """In the store, those in memory included."""
    store_bytes: int = 0
    """Bytes of logs and snapshots in the store."""
    slots_total: int = 0
    """Recurrent states that the device has room for; 0: the model has none. What isn't free is
    one of the five below, and together they are all. The same holds for pages."""
    slots_free: int = 0
    slots_batch: int = 0
    """Of turns."""
    slots_session: int = 0
    """Of sessions at rest and their checkpoints."""
    slots_cache: int = 0
    """Of the prefix cache."""
    slots_draining: int = 0
    """Closed while a turn was still to copy them; free when it has."""
    slots_quarantined: int = 0
    """Of a step that hangs; out of use until it ends."""
    pages_total: int = 0
    """Key/value pages of the device; 0: the model has no attention layers."""
    pages_free: int = 0
    pages_quarantined: int = 0
    host_slots_total: int = 0
    """Of host memory, as are the next three; 0: there is none."""
    host_slots_free: int = 0
    host_pages_total: int = 0
    host_pages_free: int = 0
    states_in_host: int = 0
    """States at rest that are parked in host memory."""
    steps: int = 0
    """Forward passes of the device."""
    turns_finished: int = 0
    """Turns, appends and one-shot requests that came to their ends; an interrupt is one."""
    turns_cancelled: int = 0
    """By their callers, ``abort``, the close of their sessions, or a deadline."""
    turns_failed: int = 0
    """By an error: of the step, of the store, of their own parameters."""
    prompt_tokens: int = 0
    """Tokens absorbed as input, recomputed ones included."""
    generation_tokens: int = 0
    """Tokens drawn."""
    cached_tokens: int = 0
    """Positions that turns did not compute, from their sessions' states and from the cache."""
    cache_hits: int = 0
    """Turns that began at a state of the prefix cache."""
    cache_misses: int = 0
    """Turns that began at nothing, although prefix caching is enabled."""
    cache_states: int = 0
    """States in the prefix cache now."""
    cache_bytes: int = 0
    """Memory that they take; what several share counts once, as far as that is known."""
    cache_published: int = 0
    """States that were left in it."""
    cache_evictions: int = 0
    """States that it gave up, to make room or to stay within ``prefix_cache_bytes``."""
    recomputed_tokens: int = 0
    """Tokens absorbed again, whose states had been given up."""
    preemptions: int = 0
    """Turns that had to make room for a more senior one."""
    rollbacks: int = 0
    """Working claims that were given back: of cancelled, failed and preempted turns, of one-shot
    requests that ended, of moves that came too late."""
    forced_parks: int = 0
    """States at rest that had to make room: moved to host memory or to the store, or given up."""
    reclaimed: int = 0
    """Handles taken back from dead actors; above 0 without a death it is a bug."""
    restarts: int = 0
    """Deaths of scheduler, GPU pool and store that were survived."""


@attrs.frozen(kw_only=True)
class Health:
    """Whether the engine serves, and what it lost."""

    live: bool
    """False: open a new engine."""
    ready: bool
    """True when new turns are taken."""
    stalled: bool = False
    """A step has run for more than half of ``step_timeout_s``; at its deadline the pool is dead."""
    quarantined_slots: int = 0
    """Slots that a hanging step still may write; out of use until it ends."""
    quarantined_pages: int = 0
    """The same of pages."""
    why: str = ""
    """Why no turn is taken; empty while they are."""
