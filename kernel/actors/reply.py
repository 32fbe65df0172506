"""A reply port: the one place where a caller waits for an actor.

The port is made before the request is posted, is settled once, and dies with its asker: nothing
but a value ever travels through it, so a cancelled wait loses nothing that anybody owns.
"""

from typing import Generic, TypeVar, final

import anyio

__all__ = ["Reply"]

T = TypeVar("T")


@final
class Reply(Generic[T]):
    """Settled once by an actor, awaited by one caller; a second settlement is ignored."""

    __slots__ = ("_event", "_outcome")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._outcome: tuple[T] | BaseException | None = None

    @property
    def is_settled(self) -> bool:
        return self._outcome is not None

    def answer(self, value: T) -> None:
        """Give the caller its answer."""
        self._settle((value,))

    def fail(self, error: BaseException) -> None:
        """Give the caller an error to raise."""
        self._settle(error)

    async def wait(self) -> T:
        """Wait for the answer. Cancel-safe: the answer is a value and is simply not read."""
        await self._event.wait()
        outcome = self._outcome
        if isinstance(outcome, tuple):
            return outcome[0]
        raise outcome if outcome is not None else RuntimeError("woken without an answer")

    def _settle(self, outcome: tuple[T] | BaseException) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._event.set()
