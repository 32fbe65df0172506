"""The one turn that a session runs: its bookkeeping, and how it is put together."""

from collections.abc import Collection, Sequence

import attrs

from kernel.actors.reply import Reply
from kernel.errors import (
    PromptTooLong,
    QueueTimeout,
    RequestAborted,
    StallTimeout,
    TurnTimeout,
    ValidationError,
)
from kernel.ids import TurnId
from kernel.messages import CancelReason
from kernel.outputs import FinishReason
from kernel.prefixes.cache_use import CacheUse
from kernel.requests.logit_rules import KnownTokens, LogitRules
from kernel.requests.output_buffer import TurnEnd
from kernel.requests.sampling_key import turn_key
from kernel.sessions.kept_states import FREE, StateCosts
from kernel.sessions.state import SessionState
from kernel.sliding import SlidingWindow
from kernel.turn import OpenTurn, TurnRequest
from ownership import CustodianId

__all__ = ["ActiveTurn", "SessionLimits", "absorbs_first", "cancelled_end", "open_turn"]


@attrs.frozen
class SessionLimits:
    """The numbers that a session checks a turn against."""

    max_len: int
    """Most tokens of one sequence: what the model and an empty pool hold."""
    limit_name: str
    """What sets it, for the error."""
    page_size: int
    eos_token_ids: tuple[int, ...]
    mail_bound: int
    num_slots: int
    """0: the model needs none."""
    num_pages: int
    """0: the model needs none."""
    window: SlidingWindow | None = None
    """Of sessions that slide; ``None``: the model keeps nothing that grows with the position."""
    can_slide: bool = True
    """Else a session that slides, brought here from elsewhere, is refused what doesn't fit."""
    costs: StateCosts = FREE
    """What a state takes, and how much of that marks may keep."""

    def hold_both(self, position: int, prompt: int) -> bool:
        """Whether an empty pool has room for a state and for a turn that starts from it."""
        shared = position // self.page_size
        pages = -(-position // self.page_size) + -(-prompt // self.page_size) - shared
        return self.num_slots != 1 and (self.num_pages == 0 or pages <= self.num_pages)


@attrs.define(eq=False)
class ActiveTurn:
    """A turn between its start and its outcome."""

    request: TurnRequest
    scheduler_incarnation: int = 0
    is_interrupted: bool = False
    keep: int | None = None
    """What an accepted interrupt keeps at most; ``None``: all."""
    interrupts: list[Reply[int]] = attrs.field(factory=list[Reply[int]])
    decided: TurnEnd | None = None
    """Its outcome, while its tokens are on their way to the store, or wait for it."""

    @property
    def id(self) -> TurnId:
        return self.request.id

    def accept_interrupt(self, keep: int | None, reply: Reply[int]) -> None:
        """Two interrupts keep the smaller number."""
        self.interrupts.append(reply)
        self.is_interrupted = True
        if keep is not None:
            self.keep = keep if self.keep is None else min(keep, self.keep)

    def end_without_steps(self, turn: OpenTurn, position: int) -> TurnEnd | None:
        """The outcome, where there is nothing to compute.

        Args:
            turn: as it would be submitted.
            position: of the session's committed state.
        """
        for reply in self.request.interrupts:
            self.accept_interrupt(0, reply)
        if self.is_interrupted:
            return self.end_of(0, "interrupt", None)
        if not turn.draws and turn.target <= position and not turn.absorb_first:
            # The one new token is held back as pending.
            return TurnEnd("length", 0)
        return None

    def end_of(self, kept: int, reason: FinishReason, stop_token: int | None) -> TurnEnd:
        """The outcome of a finished turn: the smallest of what each side keeps."""
        stop_reason: str | int | None = stop_token
        output = self.request.output
        if stop_token is not None and stop_token not in self.request.params.stop_token_ids:
            stop_reason = None
        if self.keep is not None and self.keep < kept:
            kept, reason, stop_reason = self.keep, "interrupt", None
        hit = output.stop_hit
        if hit is not None and hit.kept_tokens <= kept:
            kept, reason, stop_reason = hit.kept_tokens, "stop", hit.stop
        return TurnEnd(reason, kept, stop_reason)

    def facts(self, end: TurnEnd | None) -> dict[str, object]:
        """What an event says of the turn: ids, counts and times; never text or tokens."""
        output = self.request.output
        facts: dict[str, object] = {
            "turn": self.id,
            "kind": self.request.kind,
            "prompt_tokens": output.prompt_tokens,
        }
        if end is not None:
            first = output.first_token_at
            facts |= {
                "reason": end.reason,
                "error": None if end.error is None else type(end.error).__name__,
                "kept": end.kept,
                "generated": len(output.tokens),
                "cached_tokens": output.cached_tokens,
                "cache_miss": output.cache_miss,
                "recomputed_tokens": output.recomputed_tokens,
                "preemptions": output.preemptions,
                "ttft_s": None if first is None else round(first - output.submitted_at, 6),
            }
        return facts

    def settle(self, end: TurnEnd) -> None:
        """Tell everybody who waits for this turn how it ended.

        A session that dies while it starts a turn has told nobody yet that it was accepted.
        """
        self.request.output.finish(end)
        if end.error is not None:
            self.request.accepted.fail(end.error)
        for reply in (*self.interrupts, *self.request.interrupts):
            if end.error is not None:
                reply.fail(end.error)
            else:
                reply.answer(end.kept)


def cancelled_end(request: TurnRequest, reason: CancelReason) -> TurnEnd:
    """The outcome of a cancelled turn."""
    name = request.id
    match reason:
        case "abort":
            return TurnEnd("abort", 0, error=RequestAborted(request_id=name))
        case "queue_timeout":
            error = QueueTimeout(request_id=name, limit_s=request.queue_timeout_s or 0.0)
            return TurnEnd("timeout", 0, error=error)
        case "timeout":
            return TurnEnd(
                "timeout", 0, error=TurnTimeout(request_id=name, limit_s=request.timeout_s or 0.0)
            )
        case "stall_timeout":
            stall = StallTimeout(request_id=name, limit_s=request.stall_timeout_s or 0.0)
            return TurnEnd("timeout", 0, error=stall)


def open_turn(
    request: TurnRequest,
    state: SessionState,
    limits: SessionLimits,
    *,
    session: CustodianId,
) -> OpenTurn:
    """Put a turn together for the scheduler.

    Raises:
        ValidationError: there is nothing to absorb, or nothing after a position that is to be kept.
        PromptTooLong: the turn can never fit, not even into an empty engine.
    """
    params = request.params
    request.open_log(len(state.log))
    prompt = len(state.log) + len(request.tokens)
    if not prompt or (request.kind == "append" and not request.tokens):
        raise ValidationError(
            parameter="prompt", value="", why="it is empty; give at least one token"
        )
    _check_kept(request.cache_at, prompt)
    generates = request.kind == "generate"
    wanted = (1 if params.max_tokens is None else params.max_tokens) if generates else 0
    slides = state.slides and limits.can_slide
    if prompt + wanted > limits.max_len and not slides:
        raise PromptTooLong(
            prompt_tokens=prompt,
            max_tokens=params.max_tokens if generates else 0,
            limit=limits.max_len,
            limit_name=limits.limit_name,
        )
    seed = request.seed if params.seed is None else params.seed
    eos = () if params.ignore_eos else limits.eos_token_ids
    request.output.prompt_tokens = prompt
    if request.cache_salt is not None:
        state.cache_salt = request.cache_salt
    new = list(request.tokens)
    return OpenTurn(
        id=request.id,
        session=session,
        history=state.log,
        history_len=len(state.log),
        new=new,
        input_len=len(request.tokens),
        base=state.base,
        fallbacks=state.states.others,
        is_behind=state.states.is_behind,
        kind=request.kind,
        absorb_first=absorbs_first(state, limits, state.base_position, prompt, request.cache_at),
        max_tokens=_most_tokens(params.max_tokens, limits, prompt, slides=slides),
        min_tokens=params.min_tokens,
        stop_ids=frozenset((*eos, *params.stop_token_ids)),
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        key=turn_key(seed, state.turns),
        output=request.output,
        absorbed_before=state.absorbed,
        priority=request.priority,
        tenant=request.tenant,
        deadline_s=(
            None if request.timeout_s is None else request.output.submitted_at + request.timeout_s
        ),
        rules=_rules(request, state, new),
        prompt_logprobs=params.prompt_logprobs,
        window=limits.window if slides else None,
        cache=CacheUse(state.cache_salt, request.cache_at),
    )


def _check_kept(positions: Sequence[int], prompt: int) -> None:
    last = max(positions, default=0)
    if last >= prompt:
        why = f"the context has {prompt} tokens; a state that is kept leaves one of them to compute"
        raise ValidationError(parameter="cache_at", value=last, why=why)


def _most_tokens(asked: int | None, limits: SessionLimits, prompt: int, *, slides: bool) -> int:
    """What a turn may generate at most; a session that slides has no end of its own."""
    if asked is not None:
        return asked
    return limits.max_len if slides else limits.max_len - prompt


def _rules(request: TurnRequest, state: SessionState, new: list[int]) -> LogitRules | None:
    """The request's rules, with the tokens that they may look at."""
    if request.rules is None:
        return None
    known = KnownTokens(state.log, len(state.log), new, len(new))
    return attrs.evolve(request.rules, known=known)


def absorbs_first(
    state: SessionState,
    limits: SessionLimits,
    position: int,
    prompt: int,
    cache_at: Collection[int],
) -> bool:
    """Whether what is pending is absorbed and committed before the turn itself.

    So that interrupts in a row don't add up, from the very first turn on, and from the first one
    after the session was woken. Not for a state that was given up: on a tight pool its commit would
    only be given up again. And not where no pool could hold the commit and the rest of the turn:
    all would be computed twice.

    Args:
        state: of the session; its log is whole.
        limits: what an empty pool holds.
        position: of what the turn starts from, wherever that is.
        prompt: length of the log with the turn's input.
        cache_at: positions at which the caller wants states in the prefix cache. The state between
            the phases goes to the session, so none of them may lie there.
    """
    if len(state.log) - 1 in cache_at:
        return False
    was_given_up = position == 0 and state.absorbed > 0 and not state.is_woken
    if was_given_up or len(state.log) - position <= limits.page_size:
        return False
    if state.slides and limits.can_slide:
        return limits.num_slots != 1  # two windows always fit
    return limits.hold_both(len(state.log) - 1, prompt)
