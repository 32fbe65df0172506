"""The sessions that an engine keeps on disk: their store's actor, and how a session is woken.

A session that is only in the store is *dormant*: it has no actor, and the kernel keeps an index
entry of it at most (:mod:`kernel.sessions.dormant_sessions`). It is woken by whoever wants it
next: its record is read off the event loop, once however many ask, and its actor is made between
two handlers, whether or not anyone still waits for it. So nobody ever holds a record that has
grown old.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Final, final

from kernel.actors.actor import Address
from kernel.actors.dispatcher import Dispatcher
from kernel.actors.reply import Reply
from kernel.errors import EngineClosed, SessionNotFound, StoreError, TenureError
from kernel.foreign_code import failure_of
from kernel.ids import STORE, SessionId, session_custodian
from kernel.messages import Hibernate, SessionMessage, StoreMessage
from kernel.messages.store import AsksWait, ForgetStored, ReadStored
from kernel.session_store import SessionRecord, StoreFault, StoreWorker
from kernel.sessions.dormant_sessions import DormantSessions
from kernel.sessions.residents import LeastRecentlyUsed
from kernel.sessions.session import SessionActor
from kernel.sessions.store_actor import Ask, StoreActor, StoreRules
from kernel.sessions.wake_queue import WakeQueue
from ownership import CustodianId

__all__ = ["StoredSessions"]

_STORE: Final = Address[StoreMessage](STORE)
_KEEPER: Final = CustodianId("stored-sessions")
_WHY_STOPPED: Final = "the store is not running"


@final
class StoredSessions:
    """One engine's sessions on disk.

    Args:
        worker: the open store; closed by :meth:`stop`.
        dispatcher: whose sessions these are.
        make: makes the actor of a session that was read; raises a TenureError if it can't.
        rules: of the store's actor.
        max_resident: sessions in memory beyond which some go dormant.
        max_sessions: sessions in memory beyond which those that are wanted wait.
        is_stuck: whether all sessions in memory are at rest and none can be left to the store.
        random: gives so many bytes that nobody else has.
    """

    def __init__(
        self,
        worker: StoreWorker,
        dispatcher: Dispatcher,
        make: Callable[[SessionRecord], SessionActor],
        rules: StoreRules,
        *,
        max_resident: int,
        max_sessions: int,
        is_stuck: Callable[[], bool],
        random: Callable[[int], bytes],
    ) -> None:
        self.worker = worker
        self.residents = LeastRecentlyUsed(max_resident, max_sessions, self._ask_to_go)
        self.waking = WakeQueue(
            self.residents,
            lambda session_id: self._ask(ReadStored(session_id)),
            is_stuck,
            _no_store,
        )
        self.residents.on_stir = self.waking.pump
        self._dispatcher = dispatcher
        self._make = make
        self._rules = rules
        self._asks: deque[Ask] = deque()
        """Outside of the store's mailbox, which has room for what sessions want."""
        self._wanted: Counter[SessionId] = Counter()
        """How many wait for a session, those included whom it was woken for just now."""
        self.dormant = DormantSessions()
        self._jobs = itertools.count(1)
        self._births = itertools.count(1)
        self.life = random(6).hex()
        """Tells this life of the engine from all others."""

    def new_actor(self) -> StoreActor:
        """An actor over the store; another one after its death."""
        return StoreActor(
            self._dispatcher,
            self.worker,
            self._rules,
            new_job=lambda: next(self._jobs),
            asks=self._asks,
            on_record=self._record_read,
        )

    def new_birth(self) -> str:
        """What no other session has, in this store or in any life of this engine."""
        return f"{self.life}-{next(self._births)}"

    def holds(self, session_id: str) -> bool:
        """Whether a session is in the store, dormant or not."""
        return self.worker.holds(session_id)

    @property
    def is_idle(self) -> bool:
        """Whether the store has done all that it was asked."""
        actor = self._dispatcher.actor(STORE)
        return not isinstance(actor, StoreActor) or actor.is_idle

    def wake(self, session_id: SessionId) -> Reply[SessionActor]:
        """Read a dormant session and make its actor, when there is room for it.

        Each caller has a reply of its own, answered once: with the actor, or with why not. It
        fails with ``SessionNotFound``, ``StoreError`` or ``EngineClosed``, and with
        ``TooManySessions`` where no session in memory will ever make room by itself. Whoever waits
        no longer says so by ``waking.leave``.
        """
        return self.waking.join(session_id)

    def _record_read(self, session_id: SessionId, found: SessionRecord | StoreFault) -> None:
        """The store has answered; the actor is made outside of the store's."""
        if self.waking.is_outdated(session_id) or not self.waking.is_reading(session_id):
            return
        if isinstance(found, SessionRecord):
            self._dispatcher.at_the_edge(partial(self._open, session_id, found))
            return
        error: TenureError = SessionNotFound(session_id=session_id)
        if found.reason != "missing":
            error = StoreError(session_id=session_id, reason=found.reason, why=found.why)
        for reply in self.waking.take(session_id):
            reply.fail(error)
        # Not here: the store may be on its way out, and those that wait are for its successor.
        self._dispatcher.call_at(self._dispatcher.now(), self.waking.pump)

    def _open(self, session_id: SessionId, record: SessionRecord) -> None:
        replies = self.waking.take(session_id)

        def make() -> None:
            actor = self._seated(self._make(record))
            for reply in replies:
                reply.answer(actor)

        error = failure_of(make, "the record of a session")
        if error is not None:
            for reply in replies:
                reply.fail(as_store_error(session_id, error))
        self.waking.pump()

    def _seated(self, actor: SessionActor) -> SessionActor:
        seat = self.dormant.wake(actor.session_id, actor.seat.birth)
        if seat is not None:
            seat.actor, actor.seat = actor, seat
        return actor

    def went(self, session_id: SessionId) -> None:
        """A session isn't in memory any more: its room is for one that waits."""
        self.residents.went(session_id)
        self.waking.pump()

    def forget(self, session_id: SessionId) -> Reply[None]:
        """Remove a session that isn't resident; answered when it is gone, or with why not."""
        self.dormant.forget(session_id)
        self.waking.forget(session_id, SessionNotFound(session_id=session_id))
        reply: Reply[None] = Reply()
        if not self._ask(ForgetStored(session_id, reply)):
            reply.fail(_no_store(session_id))
        return reply

    def _ask(self, ask: Ask) -> bool:
        """Have the store do something when it comes to it; False: there is no store."""
        self._asks.append(ask)
        if len(self._asks) > 1 or self._dispatcher.post(_STORE, AsksWait(), _KEEPER) is None:
            return True
        self._asks.clear()
        return False

    def stop(self, *, join_timeout_s: float, run_until_quiet: Callable[[], None]) -> None:
        """Close the store after all that it was asked; sessions are closed by now. Idempotent."""
        self.worker.stop()
        self.worker.join(join_timeout_s)
        run_until_quiet()
        actor = self._dispatcher.actor(STORE)
        if isinstance(actor, StoreActor):
            self._dispatcher.retire(actor)
            actor.abandon(EngineClosed())
        self.waking.turn_away(EngineClosed())

    @contextmanager
    def wanted(self, session_id: SessionId) -> Generator[None]:
        """For whoever waits for a session to be woken: it doesn't go before they have used it."""
        self._wanted[session_id] += 1
        try:
            yield
        finally:
            self._wanted[session_id] -= 1
            if not self._wanted[session_id]:
                del self._wanted[session_id]
                if self._dispatcher.actor(session_custodian(session_id)) is not None:
                    self.residents.rests(session_id)

    def _ask_to_go(self, session_id: SessionId) -> bool:
        if session_id in self._wanted:
            return False
        address = Address[SessionMessage](session_custodian(session_id))
        return self._dispatcher.post(address, Hibernate(), _KEEPER) is None


def _no_store(session_id: SessionId) -> StoreError:
    return StoreError(session_id=session_id, reason="stopped", why=_WHY_STOPPED)


def as_store_error(session_id: SessionId, error: Exception) -> TenureError:
    """What the kernel itself says of a session goes as it is; all else means that it's damaged."""
    if isinstance(error, TenureError):
        return error
    damaged = StoreError(session_id=session_id, reason="damaged", why=repr(error))
    damaged.__cause__ = error
    return damaged
