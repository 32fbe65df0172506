"""One prompt, several outputs: it is absorbed once, and each output goes on from a copy.

A hidden session absorbs the prompt. When that is committed, a fork of it is opened for each
output, which ends with it; the hidden session closes after the last. All outputs come, or an error
does: where one fails, the others are cancelled.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal, Self, Unpack

import anyio
import attrs

from kernel.actors.actor import Address
from kernel.chat import Prompt
from kernel.engine.desk import CALLER, ONE_SHOT, Desk
from kernel.engine.request import RunningTurn, completion_of, prompt_logprobs_of
from kernel.errors import (
    PromptTooLong,
    RequestAborted,
    RequestTimeout,
    TenureError,
    ValidationError,
)
from kernel.ids import SessionId, TurnId, session_custodian
from kernel.messages import CancelTurn, CloseSession, SessionMessage, StartTurn
from kernel.outputs import Delta, RequestOutput, Timings, Usage
from kernel.params import SamplingParams
from kernel.requests.options import RequestOptions
from kernel.requests.output_buffer import TurnEnd
from kernel.requests.sampling_key import choice_seed, request_seed
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest

__all__ = ["RunningChoices", "make_choices"]


class RunningChoices(RunningTurn):
    """A request for several outputs; deltas say by their ``index`` whose they are.

    The iteration ends after the last delta of each output. Leaving early cancels all of them.
    Entering, iterating and leaving are cancel-safe.
    """

    def __init__(
        self, desk: Desk, absorbing: TurnRequest, branches: Sequence[TurnRequest], max_tokens: int
    ) -> None:
        super().__init__(desk, absorbing, self._enter_all, session_id=None)
        self._branches = branches
        self._max_tokens = max_tokens
        self._started: set[TurnId] = set()
        self._absorber: SessionActor | None = None
        self._error: BaseException | None = None
        self._has_raised = False
        self._is_open = False
        self._news: anyio.Event | None = None
        self._next = 0
        absorbing.output.on_news = self._absorbed
        for branch in branches:
            branch.output.on_news = partial(self._branch_news, branch)

    async def __aenter__(self) -> Self:
        """Submit the request; raises as :meth:`RunningTurn.__aenter__` does."""
        self._desk.check_context()
        if not self._is_entered:
            for branch in self._branches:
                branch.output.submitted_at = self._core.dispatcher.now()
                await self._desk.constrain(branch)
        return await super().__aenter__()

    @property
    def num_outputs(self) -> int:
        return len(self._branches)

    @property
    def has_result(self) -> bool:
        """Whether all outputs have come to their ends, read or not."""
        return self._error is None and all(
            branch.output.end is not None for branch in self._branches
        )

    async def __anext__(self) -> Delta:
        self._check_submitted()
        while True:
            if self._error is not None and not self._has_raised:
                self._has_raised = True
                raise self._error
            delta = None if self._has_raised else self._take()
            if delta is not None:
                return delta
            if self._has_raised or all(one.output.is_read for one in self._branches):
                raise StopAsyncIteration
            if self._news is None:
                self._news = anyio.Event()
            await self._news.wait()

    async def wait(self) -> RequestOutput:
        """Wait for the end of all outputs; raises as :meth:`RunningTurn.wait` does."""
        self._check_submitted()
        for branch in self._branches:
            await branch.output.wait_ended()
        async for _ in self:
            pass
        if self._error is not None:
            raise self._error
        return self.result

    async def interrupt(self, keep: int | None = None) -> int:
        """Refused: each of the outputs has a length of its own.

        Raises:
            ValidationError: always.
        """
        raise ValidationError(
            parameter="keep",
            value=keep,
            why=f"there are {len(self._branches)} outputs; leave the block to cancel them",
        )

    def cancel_from_anywhere(self) -> None:
        """Cancel from a finalizer: any thread, any moment, even inside another call."""
        if self._session is None:
            return
        for one in (self._request, *self._branches):
            if one.output.end is None and not one.is_cancel_posted:
                if one is not self._request and one.id not in self._started:
                    one.is_cancel_posted = True
                else:
                    cancel = CancelTurn(one.id, "abort")
                    self._core.dispatcher.post_later(_address_of(one.id), cancel)

    def _leave(self, how: Literal["rollback", "keep"]) -> None:
        if self._session is None:
            super()._leave(how)
        elif self._is_open:
            self._desk.check_context()
            self._cancel_all()

    # The parts

    def _enter_all(self, request: TurnRequest) -> Address[SessionMessage]:
        """Count all of it and open the session that absorbs the prompt; all or nothing."""
        self._check_length(request)
        desk, entered = self._desk, list[TurnRequest]()
        try:
            for one in (request, *self._branches):
                desk.enter(one, _address_of(one.id))
                entered.append(one)
            self._absorber = self._core.open_session(
                _session_of(request.id), is_one_shot=True, idle_timeout_s=None
            )
        except BaseException:
            for one in entered:
                self._core.door.leave(one.id)
                desk.forget(one.id)
            raise
        desk.group(request.id, self._cancel_all)
        self._is_open = True
        return _address_of(request.id)

    def _check_length(self, request: TurnRequest) -> None:
        limits = self._core.session_limits
        prompt = len(request.tokens) + len(request.opening_ids)
        if prompt + self._max_tokens > limits.max_len:
            raise PromptTooLong(
                prompt_tokens=prompt,
                max_tokens=self._max_tokens,
                limit=limits.max_len,
                limit_name=limits.limit_name,
            )

    def _absorbed(self) -> None:
        """In the hidden session's handler: the prompt is in its log, or it never will be."""
        end = self._request.output.end
        if end is None:
            return
        if end.error is None:
            self._core.dispatcher.at_the_edge(self._fork)
            return
        for branch in self._branches:
            self._drop(branch, end.error)

    def _fork(self) -> None:
        for branch in self._branches:
            try:
                self._start(branch)
            except TenureError as error:
                self._drop(branch, error)

    def _start(self, branch: TurnRequest) -> None:
        if branch.is_cancel_posted:
            raise RequestAborted(request_id=branch.id)
        self._core.open_session(
            _session_of(branch.id), is_one_shot=True, idle_timeout_s=None, parent=self._absorber
        )
        self._started.add(branch.id)
        self._core.dispatcher.post(_address_of(branch.id), StartTurn(branch), CALLER)

    def _drop(self, branch: TurnRequest, error: BaseException) -> None:
        """An output that was never begun ends."""
        self._core.door.leave(branch.id)
        branch.output.finish(TurnEnd("error", 0, error=error))

    def _branch_news(self, branch: TurnRequest) -> None:
        """In a handler: an output has a token more, or has ended."""
        news, self._news = self._news, None
        if news is not None:
            news.set()
        end = branch.output.end
        if end is None:
            return
        if end.error is not None and self._error is None:
            self._error = _named(end.error, self._request.id)
            self._cancel_all()
        if all(one.output.end is not None for one in self._branches):
            self._close()

    def _close(self) -> None:
        self._is_open = False
        self._desk.ungroup(self._request.id)
        absorber = self._absorber
        if absorber is not None and not absorber.is_close_posted:
            absorber.is_close_posted = True
            absorber.mailbox.post(CloseSession(), CALLER)

    def _cancel_all(self) -> None:
        for one in (self._request, *self._branches):
            if one.output.end is None:
                self._desk.cancel_turn(one.id)

    # What it came to

    def _take(self) -> Delta | None:
        """What one of the outputs has to tell, each in its turn."""
        for step in range(len(self._branches)):
            index = (self._next + step) % len(self._branches)
            delta = self._branches[index].output.take()
            if delta is not None:
                self._next = index + 1
                return attrs.evolve(delta, index=index)
        return None

    def _make_result(self) -> RequestOutput:
        if not self.has_result:
            raise self._unfinished(self._error)
        absorbing = self._request
        return RequestOutput(
            request_id=absorbing.id,
            prompt_token_ids=tuple(absorbing.tokens),
            prompt_logprobs=prompt_logprobs_of(absorbing),
            outputs=tuple(
                completion_of(branch, index) for index, branch in enumerate(self._branches)
            ),
            usage=self._usage(),
            timings=self._timings(),
        )

    def _usage(self) -> Usage:
        """The prompt counts once; each output's own copy of its state is no cached token."""
        prompt, each = self._request.output.usage, [one.output.usage for one in self._branches]
        return Usage(
            prompt_tokens=prompt.prompt_tokens,
            completion_tokens=sum(one.completion_tokens for one in each),
            cached_tokens=prompt.cached_tokens,
            cache_miss=prompt.cache_miss,
            recomputed_tokens=sum(one.recomputed_tokens for one in (prompt, *each)),
        )

    def _timings(self) -> Timings:
        """From the prompt's admission to the first token of any output and the end of the last."""
        whole = super()._timings()
        outputs = [one.output for one in self._branches]
        start = self._request.output.submitted_at
        firsts = [one.first_token_at for one in outputs if one.first_token_at is not None]
        return attrs.evolve(
            whole,
            ttft_s=min(firsts) - start if firsts else None,
            total_s=max(one.ended_at or start for one in outputs) - start,
            preemptions=whole.preemptions + sum(one.preemptions for one in outputs),
        )


def make_choices(
    desk: Desk, prompt: Prompt, params: SamplingParams, **options: Unpack[RequestOptions]
) -> RunningChoices:
    """A request for ``params.n`` outputs, not submitted yet.

    Raises:
        ValidationError: a parameter or the prompt can't be served, or so many outputs never fit
            into the queue.
    """
    config = desk.check_context().config
    if params.n + 1 > config.max_num_queued_reqs:
        limit = config.max_num_queued_reqs
        why = f"it counts as {params.n + 1} requests, and max_num_queued_reqs is {limit}"
        raise ValidationError(parameter="n", value=params.n, why=why)
    alone = SamplingParams(prompt_logprobs=params.prompt_logprobs)
    absorbing = desk.make_request("append", prompt, alone, is_one_shot=True, **options)
    seed = request_seed(config.seed, absorbing.id) if params.seed is None else params.seed
    # Deadlines run from the submission of the whole; it is admitted when the prompt is.
    rest = RequestOptions(**options)
    rest.pop("queue_timeout_s", None)
    rest.pop("cache_at", None)
    branches: list[TurnRequest] = []
    for index in range(params.n):
        rest["request_id"] = f"{absorbing.id}/{index}"
        one = attrs.evolve(params, n=1, seed=choice_seed(seed, index), prompt_logprobs=None)
        branches.append(desk.make_request("generate", [], one, is_one_shot=True, **rest))
    return RunningChoices(desk, absorbing, branches, params.max_tokens or 1)


def _session_of(request_id: str) -> SessionId:
    return SessionId(f"{ONE_SHOT}{request_id}")


def _address_of(request_id: str) -> Address[SessionMessage]:
    return Address(session_custodian(_session_of(request_id)))


def _named(error: BaseException, request_id: str) -> BaseException:
    """The error of an output, in the name of the request as its caller knows it."""
    if isinstance(error, RequestAborted):
        return RequestAborted(request_id=request_id, why=error.why)
    if isinstance(error, RequestTimeout):
        return type(error)(request_id=request_id, limit_s=error.limit_s)
    return error
