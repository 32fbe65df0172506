"""The sessions of an engine that has a store: who is resident, who is woken, who goes to rest.

A session that is only in the store is *dormant*: it has no actor, and the kernel keeps nothing of
it, not even its name. It is woken by whoever wants it next: its record is read off the event loop,
once however many ask, and its actor is made between two handlers, whether or not anyone still waits
for it. So nobody ever holds a record that has grown old.

Beyond a number of resident sessions, those that rest longest are asked to go dormant. It is the
session that decides; one that is in use, or whose log isn't kept whole, stays.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from kernel.actor import Address
from kernel.dispatcher import Dispatcher
from kernel.errors import SessionNotFound, StoreError, TenureError
from kernel.foreign_code import failure_of
from kernel.ids import STORE, SessionId, session_custodian
from kernel.messages import Hibernate, SessionMessage, StoreMessage
from kernel.reply import Reply
from kernel.session import SessionActor
from kernel.session_store import SessionRecord, StoreFault, StoreWorker
from kernel.store_messages import ForgetStored, ReadStored
from ownership import CustodianId

__all__ = ["StoredSessions"]

_STORE: Final = Address[StoreMessage](STORE)
_KEEPER: Final = CustodianId("stored-sessions")
_MOST_ASKED: Final = 16
"""Sessions on their way to rest at once: each has an image of its state in memory."""


@final
class StoredSessions:
    """One engine's sessions on disk.

    Args:
        worker: the open store.
        dispatcher: whose sessions these are.
        make: makes the actor of a session that was read; raises a TenureError if it can't.
        max_resident: sessions in memory beyond which some are asked to go.
    """

    def __init__(
        self,
        worker: StoreWorker,
        dispatcher: Dispatcher,
        make: Callable[[SessionRecord], SessionActor],
        *,
        max_resident: int,
    ) -> None:
        self.worker = worker
        self._dispatcher = dispatcher
        self._make = make
        self._max_resident = max_resident
        self._waking: dict[SessionId, Reply[SessionActor]] = {}
        self._resting: dict[SessionId, None] = {}
        """Resident sessions that may be asked, those that rest longest first."""
        self._asked: set[SessionId] = set()
        self._residents = 0

    def holds(self, session_id: SessionId) -> bool:
        """Whether a session is in the store, dormant or not."""
        return self.worker.holds(session_id)

    # Waking

    def wake(self, session_id: SessionId) -> Reply[SessionActor]:
        """Read a dormant session and make its actor; answered with it, or with why not.

        Fails with ``SessionNotFound``, ``StoreError``, ``TooManySessions`` or ``EngineClosed``.
        """
        reply = self._waking.get(session_id)
        if reply is None:
            reply = self._waking[session_id] = Reply()
            if self._dispatcher.post(_STORE, ReadStored(session_id), _KEEPER) is not None:
                self.record_read(session_id, StoreFault("the store is not running", "stopped"))
        return reply

    def record_read(self, session_id: SessionId, found: SessionRecord | StoreFault) -> None:
        """The store has answered; the actor is made outside of the store's."""
        reply = self._waking.pop(session_id, None)
        if reply is None:
            return
        if isinstance(found, SessionRecord):
            self._dispatcher.at_the_edge(partial(self._open, session_id, found, reply))
        elif found.reason == "missing":
            reply.fail(SessionNotFound(session_id=session_id))
        else:
            reply.fail(StoreError(session_id=session_id, reason=found.reason, why=found.why))

    def _open(
        self, session_id: SessionId, record: SessionRecord, reply: Reply[SessionActor]
    ) -> None:
        error = failure_of(lambda: reply.answer(self._make(record)), "the record of a session")
        if error is not None and not isinstance(error, TenureError):
            why = f"its record can't be read: {error!r}"
            error = StoreError(session_id=session_id, reason="damaged", why=why)
        if error is not None:
            reply.fail(error)

    def forget(self, session_id: SessionId) -> Reply[None]:
        """Remove a session that isn't resident; answered when it is gone, or with why not."""
        reply: Reply[None] = Reply()
        forget = ForgetStored(session_id, reply)
        if self._dispatcher.post(_STORE, forget, _KEEPER) is not None:
            why = "the store is not running"
            reply.fail(StoreError(session_id=session_id, reason="stopped", why=why))
        return reply

    # Going to rest

    def came(self) -> None:
        """A session has become resident."""
        self._residents += 1
        self._make_room()

    def went(self, session_id: SessionId) -> None:
        """A session isn't resident any more."""
        self._residents -= 1
        self._resting.pop(session_id, None)
        self._asked.discard(session_id)
        self._make_room()

    def rests(self, session_id: SessionId) -> None:
        """A session has come to rest, and all that it has is kept."""
        self._asked.discard(session_id)
        self._resting.pop(session_id, None)
        self._resting[session_id] = None
        self._make_room()

    def stirs(self, session_id: SessionId) -> None:
        """A session is in use, or won't go."""
        self._asked.discard(session_id)
        self._resting.pop(session_id, None)

    def all_to_rest(self) -> None:
        """The engine is about to close: whoever can, go, so that states are kept as well."""
        self._max_resident = 0
        self._make_room()

    @property
    def is_settled(self) -> bool:
        """Whether nobody is on the way to rest, or could be."""
        return not self._asked and (self._residents <= self._max_resident or not self._resting)

    def _make_room(self) -> None:
        while (
            self._residents - len(self._asked) > self._max_resident
            and len(self._asked) < _MOST_ASKED
            and self._resting
        ):
            session_id = next(iter(self._resting))
            del self._resting[session_id]
            self._asked.add(session_id)
            address = Address[SessionMessage](session_custodian(session_id))
            if self._dispatcher.post(address, Hibernate(), _KEEPER) is not None:
                self._asked.discard(session_id)
