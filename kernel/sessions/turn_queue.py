"""Turns that wait in their session for the running one to end, in order of arrival.

Messages of the first one are composed here, once nothing runs: they become tokens at the edge, and
the session hears of it by :class:`kernel.messages.Composed`.
"""

from collections.abc import Iterator
from functools import partial

from kernel.actors.actor import Address, System
from kernel.actors.door import Door
from kernel.errors import SessionBusy
from kernel.foreign_code import failure_of
from kernel.ids import SessionId, TurnId
from kernel.messages import Composed, SessionMessage
from kernel.requests.output_buffer import TurnEnd
from kernel.sessions.deadlines import Deadlines
from kernel.sessions.state import SessionState
from kernel.turn import TurnRequest

__all__ = ["TurnQueue"]


class TurnQueue:
    """The requests that wait, and how one is told that it won't run."""

    __slots__ = ("_deadlines", "_door", "_here", "_requests", "_session_id", "_state", "_system")

    def __init__(
        self,
        session_id: SessionId,
        state: SessionState,
        door: Door,
        deadlines: Deadlines,
        system: System,
        here: Address[SessionMessage],
    ) -> None:
        self._session_id = session_id
        self._state = state
        self._door = door
        self._deadlines = deadlines
        self._system = system
        self._here = here
        self._requests: list[TurnRequest] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[TurnRequest]:
        return iter(self._requests)

    @property
    def num_interrupts(self) -> int:
        """Callers who wait for the ends of turns that wait here."""
        return sum(len(request.interrupts) for request in self._requests)

    def find(self, turn: TurnId | None) -> TurnRequest | None:
        """The request of a turn that waits here."""
        return next((request for request in self._requests if request.id == turn), None)

    def add(self, request: TurnRequest) -> None:
        """Accept a request; its deadlines run while it waits."""
        self._requests.append(request)
        self._deadlines.begin(request)
        request.accepted.answer(None)

    def takes(self, request: TurnRequest) -> bool:
        """See to a request that comes while no turn runs; False: it can start now.

        Messages are composed first, and their request is accepted when it starts. What comes
        meanwhile finds the session busy with them.
        """
        first = self.first
        if first is None:
            if not request.awaits_tokens(len(self._state.log)):
                return False
            self._deadlines.wake()
            self._requests.append(request)
            self._deadlines.begin(request)
            self.compose_first()
        elif request.wait:
            self.add(request)
        else:
            busy = SessionBusy(session_id=self._session_id, turn_id=first.id)
            self.turn_away(request, busy)
        return True

    def compose_first(self) -> bool:
        """Have the messages of the first one composed; True while that is under way."""
        request = self.first
        if request is None or not request.awaits_tokens(len(self._state.log)):
            return False
        self._system.at_the_edge(partial(self._compose, request))
        return True

    def _compose(self, request: TurnRequest) -> None:
        """At the edge: the template is not ours."""
        compose = partial(request.compose, self._state.conversation, self._state.log)
        error = failure_of(compose, "the chat format")
        self._system.post(self._here, Composed(request.id, error), self._here.name)

    @property
    def first(self) -> TurnRequest | None:
        """The one that has waited longest."""
        return self._requests[0] if self._requests else None

    def next(self) -> TurnRequest:
        """Take out the one that has waited longest."""
        return self._requests.pop(0)

    def take_out(self, request: TurnRequest) -> None:
        """It runs, or it was refused; not every request has waited here."""
        if request in self._requests:
            self._requests.remove(request)

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
        self._deadlines.end(request)
        if end.error is not None:
            request.accepted.fail(end.error)  # of one that was held, and not accepted yet
            for reply in request.interrupts:
                reply.fail(end.error)
        request.output.finish(end)
