"""A turn for blocking code: the same deltas, result and ways to end it, on the engine's thread."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, TypeVar

from anyio.from_thread import BlockingPortal

from kernel.engine.request import RunningTurn
from kernel.outputs import Delta, RequestOutput

__all__ = ["BlockingTurn", "call"]

T = TypeVar("T")


def call(portal: BlockingPortal, function: Callable[[], T]) -> T:
    """Call what is synchronous on the engine's own thread."""

    async def there() -> T:
        return function()

    return portal.call(there)


class BlockingTurn:
    """One turn, or one request without a session: a context manager, and an iterator of deltas.

    Entering submits it, and raises what :meth:`RunningTurn.__aenter__` does. Leaving early, by
    ``break``, an exception or Ctrl-C, ends it: rolled back, or kept with ``on_exit="keep"``. Each
    call waits for the engine's thread; another thread may interrupt or cancel what one iterates.
    """

    def __init__(self, portal: BlockingPortal, turn: RunningTurn) -> None:
        """Not for callers; made by ``stream`` and ``turn``."""
        self._portal = portal
        self._turn = turn
        self._block: AbstractContextManager[RunningTurn] | None = None

    @property
    def request_id(self) -> str:
        """Names the turn in events, errors and ``engine.abort``."""
        return self._turn.request_id

    @property
    def result(self) -> RequestOutput:
        """What the turn came to; see :attr:`RunningTurn.result`.

        Raises:
            NotFinished: it has not ended, or it was cancelled or failed.
        """
        return call(self._portal, lambda: self._turn.result)

    def __enter__(self) -> Self:
        self._block = self._portal.wrap_async_context_manager(self._turn)
        self._block.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._block is not None:
            self._block.__exit__(kind, error, trace)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        async def step() -> Delta | None:
            return await anext(self._turn, None)

        delta = self._portal.call(step)
        if delta is None:
            raise StopIteration
        return delta

    def wait(self) -> RequestOutput:
        """Wait for the end without looking at deltas; see :meth:`RunningTurn.wait`."""
        return self._portal.call(self._turn.wait)

    def interrupt(self, keep: int | None = None) -> int:
        """End the turn and keep ``keep`` generated tokens; see :meth:`RunningTurn.interrupt`."""
        return self._portal.call(self._turn.interrupt, keep)

    def cancel(self) -> None:
        """Cancel the turn; safe at any moment, more than once."""
        call(self._portal, self._turn.cancel)
