"""The snapshot that the store has of one session: offered, known, read back.

A snapshot is a cache of the log up to its position. It is dropped by the store when the log is cut
below that, so here it is forgotten at the same moment; one that can't be kept or read is told, and
is no more than a state to be computed again.
"""

from array import array
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
_CUT: Final = StoreFault("the log was cut below it", "missing")


def _nothing() -> None:
    """Nobody waits."""


@attrs.define(eq=False)
class _Fetch:
    ticket: TurnId
    incarnation: int
    position: int | None
    is_own: bool
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
        "_parent",
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
        self._parent: SessionSnapshots | None = None
        """Of the session that this one is a fork of, until there is a snapshot of its own."""

    def found(self, record: SessionRecord) -> None:
        """The session was made of what the store holds."""
        self.position = record.state_position
        self._bytes = record.state_bytes

    @property
    def furthest(self) -> int:
        """Position of the furthest that is kept, or is on its way; 0: there is none."""
        furthest = 0 if self.position is None else self.position
        return max([furthest, *(position for _, position, _, _ in self._offered)])

    def reaches_beyond(self, position: int) -> bool:
        """Whether there is a snapshot that has absorbed more tokens than that."""
        return self.position is not None and self.position > position

    def inherit(self, parent: "SessionSnapshots") -> None:
        """Begin as a fork: what the store has of the parent is a state of this log, too.

        Nothing is promised of it: the parent may go on, be cut or be removed, so whoever reads its
        snapshot has it compared with the log by the store.
        """
        has_own = parent.position is not None or parent._parent is None
        self._parent = parent if has_own else parent._parent

    @property
    def inherited(self) -> int | None:
        """Position of the parent's snapshot, as far as is known; ``None``: there is none."""
        return None if self._parent is None else self._parent.position

    def end_inheritance(self) -> None:
        """The session has a state of its own."""
        self._parent = None

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
        message = StoreState(self._holder, number, KeepState(self._session_id, image))
        if self._system.post(_STORE, message, self._holder) is not None:
            then()
        else:
            self._offered.append((number, image.position, image.nbytes, then))

    def when_kept(self, then: Callable[[], None]) -> None:
        """Call ``then`` once, when no snapshot is on its way any more: now, or after the last."""
        if not self._offered:
            then()
            return
        number, position, nbytes, first = self._offered[-1]

        def both() -> None:
            first()
            self.when_kept(then)  # of several the last may be answered first, if it is refused

        self._offered[-1] = number, position, nbytes, both

    def stored(self, message: StateStored) -> None:
        """The store has kept a snapshot, or hasn't."""
        numbers = [number for number, *_ in self._offered]
        if message.number not in numbers:
            return  # asked of a store that is dead, or by a namesake
        # One that is refused is answered at once, before those that are on their way.
        _, position, nbytes, then = self._offered.pop(numbers.index(message.number))
        if message.fault is not None:
            self.tell_lost(position, message.fault)
        else:
            self.position, self._bytes = position, nbytes
            self._parent = None
        then()

    def fetch(self, ticket: TurnId, then: Callable[[StateImage | StoreFault], None]) -> None:
        """Read the snapshot; ``then`` is called once, unless it is released before."""
        message = FetchState(self._holder, self._session_id, ticket, self._bytes)
        self._fetch(message, self.position, then)

    def fetch_inherited(
        self, ticket: TurnId, log: "array[int]", then: Callable[[StateImage | StoreFault], None]
    ) -> None:
        """As :meth:`fetch`, of the parent's snapshot, if it is of the beginning of ``log``."""
        parent = self._parent
        if parent is None or parent.position is None:
            then(StoreFault("there is no parent's snapshot", "missing"))
            return
        begin = log[: parent.position]
        message = FetchState(self._holder, parent._session_id, ticket, parent._bytes, begin)
        self._fetch(message, parent.position, then)

    def _fetch(
        self,
        message: FetchState,
        position: int | None,
        then: Callable[[StateImage | StoreFault], None],
    ) -> None:
        incarnation = self._system.incarnation_of(STORE)
        is_own = message.begin is None
        self._fetches.append(_Fetch(message.turn, incarnation, position, is_own, then))
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
                    self._lose(fetch, message.found)
                fetch.then(message.found)
                return

    def _lose(self, fetch: _Fetch, fault: StoreFault) -> None:
        if fetch.is_own or fault.reason != "missing":  # a parent goes its own way
            self.tell_lost(fetch.position, fault)
        if fetch.is_own:
            self.position = None
        else:
            self._parent = None

    def release(self, ticket: TurnId) -> None:
        """An image isn't needed any more, or not wanted; idempotent."""
        self._fetches = [fetch for fetch in self._fetches if fetch.ticket != ticket]
        self._system.post(_STORE, ReleaseImage(ticket), self._holder)

    def cut(self, length: int) -> None:
        """The log was shortened; whoever waits for a snapshot beyond it does without.

        What the store comes to read for them may be of another history by then.
        """
        beyond = (fetch.position for fetch in self._fetches if fetch.position is not None)
        if self.reaches_beyond(length - 1):
            self.position = None
            self._do_without(_CUT)
        elif any(position > length - 1 for position in beyond):
            self._do_without(_CUT)  # of a parent's snapshot, say

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
