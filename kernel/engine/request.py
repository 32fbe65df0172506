"""The caller's side of a turn: submit, read, leave. It holds values and a turn id, no handle.

Every way out of the block posts at most one cancel (or interrupt), synchronously, and it names
its turn: a late one can't hit the next turn.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, Self

from kernel import checks
from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.engine.desk import CALLER, Desk
from kernel.errors import (
    NotFinished,
    NotSubmitted,
    RequestAborted,
    RequestExists,
    SessionClosed,
    TooLate,
)
from kernel.ids import SessionId
from kernel.messages import CancelTurn, InterruptTurn, SessionMessage, StartTurn
from kernel.outputs import CompletionOutput, Delta, RequestOutput, Timings, TokenLogprobs
from kernel.turn import TurnRequest

__all__ = ["RunningTurn", "completion_of", "prompt_logprobs_of"]


class RunningTurn:
    """One turn, or one one-shot request, as an async context manager and iterator.

    Entering submits it and waits until its session has accepted it. Iterating gives deltas, the
    last of them with a ``finish_reason``. Leaving early, by ``break``, an exception or
    cancellation, ends the turn: rolled back, or with ``on_exit="keep"`` kept as far as deltas were
    received. Entering, iterating and leaving are cancel-safe.
    """

    def __init__(
        self,
        desk: Desk,
        request: TurnRequest,
        submit: Callable[[TurnRequest], Address[SessionMessage]],
        *,
        session_id: str | None,
        on_exit: Literal["rollback", "keep"] = "rollback",
        prepare: Callable[[TurnRequest], Awaitable[object]] | None = None,
    ) -> None:
        self._desk = desk
        self._prepare = prepare
        self._core = desk.core
        self._request = request
        self._submit = submit
        self._session_id = session_id
        self._on_exit: Literal["rollback", "keep"] = on_exit
        self._is_entered = False
        self._is_cancelled = False
        self._is_preparing = False
        self._session: Address[SessionMessage] | None = None
        self._result: RequestOutput | None = None

    @property
    def request_id(self) -> str:
        """Names the turn in events, errors and ``engine.abort``."""
        return self._request.id

    @property
    def num_outputs(self) -> int:
        """How many outputs there will be."""
        return 1

    @property
    def has_result(self) -> bool:
        """Whether the turn has ended with a result, read or not."""
        end = self._request.output.end
        return end is not None and end.error is None

    @property
    def result(self) -> RequestOutput:
        """What the turn came to.

        A turn that had ended before it was left has a result too, read or not.

        Raises:
            NotFinished: it has not ended, or it was cancelled or failed; then why, and the error
                that ended it is the ``__cause__``.
            NotSubmitted: the block was not entered.
        """
        if self._result is None:
            self._result = self._make_result()
        return self._result

    async def __aenter__(self) -> Self:
        """Submit the turn.

        Raises:
            SessionBusy: the session runs another turn, and ``wait`` was not asked for.
            ValidationError: the prompt is empty or can never fit, or the form of output that is
                asked for can't be compiled.
            Overloaded: a bound of the engine is reached.
            RequestExists: the id is in use, or this turn was submitted before.
            StoreError: its session is dormant, and can't be read.
            EngineClosed: the engine takes no more work.
        """
        self._desk.check_context()
        if self._is_entered:
            # Its output would go on where it ended, and its tokens twice into the log.
            raise RequestExists(request_id=self.request_id)
        self._is_entered = True
        self._request.output.submitted_at = self._core.dispatcher.now()
        if self._request.params.structured_outputs is not None:
            await self._desk.constrain(self._request)
        if self._prepare is not None:
            self._is_preparing = True
            try:
                await self._prepare(self._request)
            finally:
                self._is_preparing = False
        if self._is_cancelled:
            why = "it was cancelled before it was submitted"
            raise RequestAborted(request_id=self.request_id, why=why)
        self._session = self._submit(self._request)
        self._core.dispatcher.post(self._session, StartTurn(self._request), CALLER)
        try:
            await self._request.accepted.wait()
        except BaseException:
            self.cancel()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(self._on_exit)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        self._check_submitted()
        delta = await self._request.output.next_delta()
        if delta is None:
            raise StopAsyncIteration
        return delta

    async def wait(self) -> RequestOutput:
        """Wait for the end without looking at deltas; cheaper than iterating.

        Raises:
            TenureError: why the turn has no result.
        """
        self._check_submitted()
        end = await self._request.output.wait_ended()
        async for _ in self:
            pass
        if end.error is not None:
            raise end.error  # An iteration that is over has raised it once, and ends in silence.
        return self.result

    async def interrupt(self, keep: int | None = None) -> int:
        """End the turn and keep what was said: barge-in.

        Args:
            keep: generated tokens to keep in the session; ``None`` keeps all, 0 the input only.

        Returns:
            How many were kept.

        Raises:
            ValidationError: more than were received.
            TooLate: the session has accepted another turn.
            QueueFull: too many interrupts wait for this session already.
            NotSubmitted: the block was not entered.
        """
        session = self._check_submitted()
        checks.kept(keep)
        reply: Reply[int] = Reply()
        message = InterruptTurn(self._request.id, keep, reply)
        if not self._desk.ask(session, message):
            if self._session_id is not None and self._core.holds(SessionId(self._session_id)):
                why = "the session has gone dormant since"
                raise TooLate(session_id=self._session_id, turn_id=self.request_id, why=why)
            raise SessionClosed(session_id=self._session_id or self.request_id)
        return await reply.wait()

    def cancel(self) -> None:
        """Cancel the turn; safe to call at any moment, from any state, more than once.

        Raises:
            WrongContext: from another thread or loop, while the turn is open.
        """
        self._leave("rollback")

    def cancel_from_anywhere(self) -> None:
        """Cancel from a finalizer: any thread, any moment, even inside another call."""
        request = self._request
        is_open = request.output.end is None and not request.is_cancel_posted
        if is_open and self._session is not None:
            cancel = CancelTurn(request.id, "abort")
            self._core.dispatcher.post_later(self._session, cancel)

    def _check_submitted(self) -> Address[SessionMessage]:
        self._desk.check_context()
        if self._session is None:
            raise NotSubmitted(request_id=self.request_id)
        return self._session

    def _leave(self, how: Literal["rollback", "keep"]) -> None:
        output = self._request.output
        if self._session is None:
            self._is_cancelled = self._is_entered
            if self._is_preparing:
                self._desk.cancel(self._request.id)
            return
        if output.end is not None:
            return
        self._desk.check_context()
        if how == "keep":
            keep = InterruptTurn(self._request.id, output.delivered, Reply(), is_leaving=True)
            self._core.dispatcher.post(self._session, keep, CALLER)
        else:
            self._desk.cancel(self._request.id)

    def _make_result(self) -> RequestOutput:
        request, output = self._request, self._request.output
        end = output.end
        if end is None or end.error is not None:
            raise self._unfinished(None if end is None else end.error)
        return RequestOutput(
            request_id=request.id,
            session_id=self._session_id,
            prompt_token_ids=tuple(request.tokens),
            prompt_logprobs=prompt_logprobs_of(request),
            outputs=(completion_of(request, 0),),
            usage=output.usage,
            timings=self._timings(),
            history_differs=request.history_differs,
        )

    def _unfinished(self, ended_by: BaseException | None) -> NotFinished:
        """Why there is no result; ``ended_by`` is ``None`` where nothing has ended it."""
        if self._session is None:
            return NotSubmitted(request_id=self.request_id)
        why = None if ended_by is None else str(ended_by)
        error = NotFinished(request_id=self.request_id, why=why)
        error.__cause__ = ended_by
        return error

    def _timings(self) -> Timings:
        output = self._request.output
        start = output.submitted_at
        admitted = output.admitted_at if output.admitted_at is not None else output.ended_at
        first = output.first_token_at
        return Timings(
            queued_s=(admitted or start) - start,
            ttft_s=None if first is None else first - start,
            total_s=(output.ended_at or start) - start,
            preemptions=output.preemptions,
        )


def completion_of(request: TurnRequest, index: int) -> CompletionOutput:
    """What a turn that has ended has generated and kept."""
    output, end = request.output, request.output.end
    if end is None:
        raise NotFinished(request_id=request.id)
    logprobs = output.logprobs
    return CompletionOutput(
        index=index,
        text=output.final_text(),
        token_ids=tuple(output.tokens[: end.kept]),
        finish_reason=end.reason,
        stop_reason=end.stop_reason,
        logprobs=None if logprobs is None else tuple(logprobs[: end.kept]),
    )


def prompt_logprobs_of(request: TurnRequest) -> tuple[TokenLogprobs | None, ...] | None:
    """Log-probabilities of a turn's input, if they were asked for."""
    if request.params.prompt_logprobs is None:
        return None
    scored = request.output.prompt_logprobs
    return (*scored, *[None] * (len(request.tokens) - len(scored)))
