"""``Engine.generate``: vLLM's shape, an iterator of cumulative results."""

from typing import Self

import attrs

from kernel.engine.request import RunningTurn
from kernel.outputs import CompletionOutput, Delta, RequestOutput

__all__ = ["Generation"]


class Generation:
    """An async iterator with ``aclose``; the request is submitted at the first step.

    Abandoning it cancels the request: ``aclose`` does, and so does its collection, because a
    cancel is one synchronous post.
    """

    def __init__(self, turn: RunningTurn) -> None:
        self._turn = turn
        self._is_open = False
        self._is_over = False
        self._outputs = [CompletionOutput(index=index) for index in range(turn.num_outputs)]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._is_over:
            raise StopAsyncIteration
        try:
            if not self._is_open:
                self._is_open = True
                await self._turn.__aenter__()
            delta = await anext(self._turn)
        except BaseException:
            self._is_over = True
            self._turn.cancel()
            raise
        if delta.finish_reason is not None and self._turn.has_result:
            self._is_over = True
            return self._turn.result
        self._outputs[delta.index] = _with(self._outputs[delta.index], delta)
        return RequestOutput(
            request_id=self._turn.request_id, outputs=tuple(self._outputs), finished=False
        )

    async def aclose(self) -> None:
        """Cancel the request if it is under way; idempotent. Nothing comes after it."""
        self._is_over = True
        self._turn.cancel()

    def __del__(self) -> None:
        self._turn.cancel_from_anywhere()


def _with(output: CompletionOutput, delta: Delta) -> CompletionOutput:
    logprobs = output.logprobs
    if delta.logprobs is not None:
        logprobs = (*(logprobs or ()), *delta.logprobs)
    return attrs.evolve(
        output,
        text=output.text + delta.text,
        token_ids=output.token_ids + delta.token_ids,
        finish_reason=delta.finish_reason,
        logprobs=logprobs,
    )
