"""Turns that wait in their session for the running one to end, in order of arrival."""

from collections.abc import Iterator

from kernel.deadlines import Deadlines
from kernel.door import Door
from kernel.ids import TurnId
from kernel.output_buffer import TurnEnd
from kernel.turn import TurnRequest

__all__ = ["TurnQueue"]


class TurnQueue:
    """The requests that wait, and how one is told that it won't run."""

    def __init__(self, door: Door, deadlines: Deadlines) -> None:
        self._door = door
        self._deadlines = deadlines
        self._requests: list[TurnRequest] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[TurnRequest]:
        return iter(self._requests)

    def find(self, turn: TurnId | None) -> TurnRequest | None:
        """The request of a turn that waits here."""
        return next((request for request in self._requests if request.id == turn), None)

    def add(self, request: TurnRequest) -> None:
        """Accept a request; its deadlines run while it waits."""
        self._requests.append(request)
        self._deadlines.begin(request)
        request.accepted.answer(None)

    def hold(self, request: TurnRequest) -> None:
        """Keep a request whose messages are composed; it is accepted when it starts."""
        self._requests.append(request)
        self._deadlines.begin(request)

    @property
    def first(self) -> TurnRequest | None:
        """The one that has waited longest."""
        return self._requests[0] if self._requests else None

    def next(self) -> TurnRequest:
        """Take out the one that has waited longest."""
        return self._requests.pop(0)

    def drop(self, request: TurnRequest, end: TurnEnd) -> None:
        """A request that waits was cancelled."""
        self._requests.remove(request)
        self._end(request, end)

    def turn_away(self, request: TurnRequest, error: BaseException) -> None:
        """Refuse a request, whether it was accepted before or not."""
        request.accepted.fail(error)
        self._end(request, TurnEnd("error", 0, error=error))

    def turn_all_away(self, error: BaseException) -> None:
        """Refuse everything that waits."""
        while self._requests:
            self.turn_away(self.next(), error)

    def _end(self, request: TurnRequest, end: TurnEnd) -> None:
        self._door.leave(request.id)
        self._deadlines.end(request.id)
        if end.error is not None:
            request.accepted.fail(end.error)  # of one that was held, and not accepted yet
            for reply in request.interrupts:
                reply.fail(end.error)
        request.output.finish(end)
