"""The snapshot that the store has of one session: offered, known, read back.

A snapshot is a cache of the log up to its position. It is dropped by the store when the log is cut
below that, so here it is forgotten at the same moment; one that can't be kept or read is told, and
is no more than a state to be computed again.
"""

from collections.abc import Callable, Iterator
from typing import Final, final

import attrs

from kernel.actors.actor import Address, System
from kernel.ids import STORE, SessionId, TurnId
from kernel.messages import Down, StoreMessage
from kernel.messages.store import (
    FetchState,
    ReleaseImage,
    StateFetched,
    StateStored,
    StoreState,
)
from kernel.probe import Probe
from kernel.session_store import KeepState, SessionRecord, StoreFault
from kernel.state_image import StateImage
from ownership import CustodianId

__all__ = ["SessionSnapshots"]

_STORE: Final = Address[StoreMessage](STORE)
_GONE: Final = StoreFault("the store is not running", "stopped")


def _nothing() -> None:
    """Nobody waits."""


@attrs.define(eq=False)
class _Fetch:
    ticket: TurnId
    incarnation: int
    then: Callable[[StateImage | StoreFault], None]


@final
class SessionSnapshots:
    """One session's snapshot, and the images on their way to it and from it.

    Attributes:
        position: of the snapshot in the store; ``None``: there is none.
    """

    __slots__ = (
        "_bytes",
        "_fetches",
        "_holder",
        "_numbers",
        "_offered",
        "_probe",
        "_session_id",
        "_system",
        "position",
    )

    def __init__(
        self,
        session_id: SessionId,
        holder: CustodianId,
        system: System,
        probe: Probe,
        numbers: Iterator[int],
    ) -> None:
        self.position: int | None = None
        self._session_id = session_id
        self._holder = holder
        self._system = system
        self._probe = probe
        self._bytes = 0
        self._numbers = numbers
        self._offered: list[tuple[int, int, int, Callable[[], None]]] = []
        """Number, position and bytes of each snapshot on its way, and what waits for it."""
        self._fetches: list[_Fetch] = []

    def found(self, record: SessionRecord) -> None:
        """The session was made of what the store holds."""
        self.position = record.state_position
        self._bytes = record.state_bytes

    def reaches_beyond(self, position: int) -> bool:
        """Whether there is a snapshot that has absorbed more tokens than that."""
        return self.position is not None and self.position > position

    @property
    def has_business(self) -> bool:
        """Whether the store owes an answer."""
        return bool(self._offered or self._fetches)

    def offer(self, image: StateImage, then: Callable[[], None] = _nothing) -> None:
        """Keep a snapshot of a state that the session has now.

        Args:
            image: the state.
            then: called once, when it is kept, or can't be.
        """
        number = next(self._numbers)
        message = StoreState(self._holder, KeepState(self._session_id, image), number)
        if self._system.post(_STORE, message, self._holder) is not None:
            then()
        else:
            self._offered.append((number, image.position, image.nbytes, then))

    def stored(self, message: StateStored) -> None:
        """The store has kept a snapshot, or hasn't."""
        if not self._offered or self._offered[0][0] != message.number:
            return  # asked of a store that is dead, or by a namesake
        _, position, nbytes, then = self._offered.pop(0)
        if message.fault is not None:
            self.tell_lost(position, message.fault)
        else:
            self.position, self._bytes = position, nbytes
        then()

    def fetch(self, ticket: TurnId, then: Callable[[StateImage | StoreFault], None]) -> None:
        """Read the snapshot; ``then`` is called once, unless it is released before."""
        incarnation = self._system.incarnation_of(STORE)
        self._fetches.append(_Fetch(ticket, incarnation, then))
        message = FetchState(self._holder, self._session_id, ticket, self._bytes)
        if self._system.post(_STORE, message, self._holder) is not None:
            self._fetches.pop()
            then(_GONE)

    def end(self) -> None:
        """The session goes; whoever waits for its snapshot does without."""
        self._do_without(StoreFault("the session has ended", "stopped"))

    def is_fetching(self, ticket: TurnId) -> bool:
        """Whether it is being read for a turn."""
        return any(fetch.ticket == ticket for fetch in self._fetches)

    def fetched(self, message: StateFetched) -> None:
        """The store has read a snapshot, or couldn't."""
        for fetch in self._fetches:
            if fetch.ticket == message.turn:
                self._fetches.remove(fetch)
                if isinstance(message.found, StoreFault):
                    self.tell_lost(self.position, message.found)
                    self.position = None
                fetch.then(message.found)
                return

    def release(self, ticket: TurnId) -> None:
        """An image isn't needed any more, or not wanted; idempotent."""
        self._fetches = [fetch for fetch in self._fetches if fetch.ticket != ticket]
        self._system.post(_STORE, ReleaseImage(ticket), self._holder)

    def cut(self, length: int) -> None:
        """The log was shortened; whoever waits for a snapshot beyond it does without.

        What the store comes to read for them may be of another history by then.
        """
        if self.reaches_beyond(length - 1):
            self.position = None
            self._do_without(StoreFault("the log was cut below it", "missing"))

    def went_down(self, down: Down) -> None:
        """The store has died; nobody will answer what it was asked."""
        offered, self._offered = self._offered, []
        for _, _, _, then in offered:
            then()
        lost = [fetch for fetch in self._fetches if fetch.incarnation == down.incarnation]
        self._fetches = [fetch for fetch in self._fetches if fetch not in lost]
        for fetch in lost:
            fetch.then(StoreFault(down.why, "stopped"))

    def _do_without(self, fault: StoreFault) -> None:
        fetches, self._fetches = self._fetches, []
        for fetch in fetches:
            fetch.then(fault)

    def tell_lost(self, position: int | None, fault: StoreFault) -> None:
        """Say that a state isn't to be had from the disk; the log is.

        Args:
            position: of the state; ``None``: the log was cut below it while it was read.
            fault: why.
        """
        if self._probe.enabled:
            facts = {"session": self._session_id, "position": position}
            self._probe.record("session.state_lost", {**facts, "reason": fault.reason})
