"""What one session has in the store, and what it has asked of it.

One change of the log at a time: its jobs go to the store, and what the change does to the session
is done when they are kept, or is refused when they aren't. Whoever else wants to change the log
waits for that. So what a caller was told is on the disk, and what the disk refused has not
happened.

When the store's actor dies with a change under way, nobody knows what is on the disk. The session
stays as it was, and the next change begins by cutting the store's log to the session's own.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, final

import attrs

from kernel.actors.actor import Address, System
from kernel.actors.reply import Reply
from kernel.errors import StoreError
from kernel.ids import STORE, SessionId
from kernel.messages import (
    Down,
    ExportSession,
    HistoryMessage,
    InterruptTurn,
    StoreMessage,
)
from kernel.messages.store import (
    ForgetStored,
    LogJob,
    LogStored,
    StoreLog,
)
from kernel.probe import Probe
from kernel.session_store import (
    CutLog,
    KeepFacts,
    KeepTurn,
    SessionRecord,
    StoredTurn,
    StoreFault,
)
from kernel.sessions.logged_turns import LoggedTurns, logged_turn
from kernel.sessions.snapshots import SessionSnapshots
from kernel.state_image import StateImage
from kernel.turn import TurnRequest
from ownership import CustodianId

__all__ = ["Archived", "Change", "Deferred", "SessionArchive"]

_STORE: Final = Address[StoreMessage](STORE)


def _nothing() -> None:
    """What a repair does to the session."""


class Archived(Protocol):
    """What of a session is kept."""

    @property
    def log(self) -> "array[int]": ...

    @property
    def logged(self) -> LoggedTurns: ...

    @property
    def cache_salt(self) -> str: ...


Deferred = InterruptTurn | HistoryMessage | ExportSession


@attrs.frozen(eq=False)
class Change:
    """A change of the log that is on its way to the disk."""

    number: int
    incarnation: int
    """Of the store that has it."""
    length: int
    """Of the log, once it is kept."""
    shortest: int
    """Of the log in the store on the way there; a snapshot beyond it goes."""
    keep: Callable[[], None]
    """Does to the session what is on the disk by then."""
    lose: Callable[[StoreError], None]
    """Says that nothing was changed."""
    asker: Reply[Any] | None
    """Who waits for it and for nothing else; ``None``: the caller of a turn, or nobody."""


@final
class SessionArchive:
    """One session's side of the store; the session decides, here is remembered what it asked.

    Attributes:
        change: the one under way.
        deferred: messages that have to wait for it.
        snapshots: the state that is kept beside the log.
    """

    __slots__ = (
        "_doing",
        "_facts",
        "_has_kept_facts",
        "_holder",
        "_is_in_doubt",
        "_kept",
        "_kept_len",
        "_kept_salt",
        "_numbers",
        "_session_id",
        "_system",
        "change",
        "deferred",
        "is_opened",
        "snapshots",
    )

    def __init__(
        self,
        session_id: SessionId,
        holder: CustodianId,
        system: System,
        probe: Probe,
        kept: Archived,
        facts: Callable[[], Mapping[str, object]],
        numbers: Iterator[int],
    ) -> None:
        self.change: Change | None = None
        self.deferred: list[Deferred] = []
        self._doing: Change | None = None
        """It is kept, and is being done to the session."""
        self.snapshots = SessionSnapshots(session_id, holder, system, probe, numbers)
        self.is_opened = False
        """Whether the store knows the session, or may know it."""
        self._session_id = session_id
        self._holder = holder
        self._system = system
        self._kept = kept
        self._facts = facts
        self._kept_len = 0
        self._has_kept_facts = False
        self._kept_salt = ""
        self._is_in_doubt = False
        self._numbers = numbers

    def found(self, record: SessionRecord) -> None:
        """The session was made of what the store holds."""
        self.is_opened = self._has_kept_facts = True
        self._kept_salt = self._kept.cache_salt
        self._kept_len = record.log_len
        self.snapshots.found(record)

    # The log

    @property
    def is_whole(self) -> bool:
        """Whether the store holds all of the session, and no change is under way."""
        return (
            self.change is None
            and self._has_kept_facts
            and not self._is_in_doubt
            and self._kept_salt == self._kept.cache_salt
            and self._kept_len == len(self._kept.log)
        )

    def defers(self, message: Deferred) -> bool:
        """Keep a message back that is about the log, while a change of it is under way."""
        if self.change is None:
            return False
        self.deferred.append(message)
        return True

    def turn_away_deferred(self, error: BaseException) -> None:
        """The session is over; whoever waits is told, also of the change that is under way."""
        for change in (self._doing, self.change):
            if change is not None and change.asker is not None:
                change.asker.fail(error)
        while self.deferred:
            self.deferred.pop(0).reply.fail(error)

    def propose(
        self,
        jobs: tuple[LogJob, ...],
        length: int,
        keep: Callable[[], None],
        lose: Callable[[StoreError], None],
        asker: Reply[Any] | None = None,
    ) -> None:
        """Make a change durable; then do it to the session, or say why not. Exactly one of both.

        Args:
            jobs: what it does to the store; what the store lacks of before is put in front.
            length: of the log afterwards.
            keep: does it to the session.
            lose: told why it isn't done; the session is as it was.
            asker: told when the session ends before either.
        """
        if self.change is not None:
            raise RuntimeError(f"{self._holder}: a change is under way already")
        number, incarnation = next(self._numbers), self._system.incarnation_of(STORE)
        shortest = min(self._kept_len, length) if self._is_in_doubt else length
        self.change = Change(number, incarnation, length, shortest, keep, lose, asker)
        self.is_opened = True
        jobs = (*self._missing(), *jobs)
        if not jobs:
            self.change = None
            keep()
            return
        message = StoreLog(self._holder, number, jobs)
        if self._system.post(_STORE, message, self._holder) is not None:
            self.change = None
            lose(self._error(_GONE))

    def stored(self, message: LogStored) -> bool:
        """The store has answered. False: nobody waits for that any more."""
        change = self.change
        if change is None or change.number != message.change:
            return False
        self.change = None
        if message.fault is not None:
            self._lose(change, message.fault)
            return True
        self._has_kept_facts = True
        self._kept_salt = self._kept.cache_salt
        self._is_in_doubt = False
        self._kept_len = change.length
        self.snapshots.cut(change.shortest)
        self._doing = change
        change.keep()
        self._doing = None
        return True

    def went_down(self, down: Down) -> bool:
        """The store has died; business with this life of it has failed. True if there was a change.

        Its jobs may still be done, so the session's own log is put in their place.
        """
        fault = StoreFault(down.why, "stopped")
        self.snapshots.went_down(down)
        change = self.change
        if change is None or change.incarnation != down.incarnation:
            return False
        self.change = None
        self._lose(change, fault)
        return True

    def _lose(self, change: Change, fault: StoreFault) -> None:
        """A change has failed. Some of its jobs may be done all the same, now or later.

        So the store's log is brought back to the session's own; a repair that fails is left to the
        next change.
        """
        certain = min(self._kept_len, change.length)
        self._kept_len = self._kept.logged.begin_of(certain, len(self._kept.log))
        self._is_in_doubt = True
        change.lose(self._error(fault))
        if change.lose is not _not_yet:
            self.repair()

    def keep_whole(self, image: StateImage | None, reply: Reply[None]) -> None:
        """Keep all of a session that begins with a log; answered when that is kept."""

        def keep() -> None:
            reply.answer(None)
            if image is not None:
                self.snapshots.offer(image)

        self.propose((), len(self._kept.log), keep, reply.fail, reply)

    def repair(self) -> None:
        """Make sure that the store holds what the session does, where that is in doubt."""
        if self._is_in_doubt and self.change is None:
            self.propose((), len(self._kept.log), _nothing, _not_yet)

    def keep_rest(self) -> None:
        """Keep what the store lacks of the log; that of a fork without a turn is all of it."""
        if self.change is None and self._kept.log and not self.is_whole:
            self.propose((), len(self._kept.log), _nothing, _not_yet)

    def keep_salt(self) -> None:
        """A turn that left nothing in the log may have brought another salt, which stays."""
        is_new = self._has_kept_facts and self._kept_salt != self._kept.cache_salt
        if is_new and self.change is None:
            self.propose((), len(self._kept.log), _nothing, _not_yet)

    def end(self, reply: Reply[None], *, stays_kept: bool) -> None:
        """The session closes; ``reply`` is answered when it is off the disk, or stays there."""
        message = ForgetStored(self._session_id, reply)
        if stays_kept:
            self.keep_rest()  # nobody is left to hear the answer, and the store is the last to stop
            reply.answer(None)
        elif not self.is_opened:
            reply.answer(None)
        elif self._system.post(_STORE, message, self._holder) is not None:
            reply.fail(self._error(_GONE))

    def turn_of(self, request: TurnRequest, kept: int) -> StoredTurn | None:
        """A turn that ends, as it is to be kept; ``None``: it leaves nothing in the log."""
        tokens = array("I", request.tokens)
        start, input_len = len(self._kept.log), len(tokens)
        tokens.extend(request.output.tokens[:kept])
        if not tokens:
            return None
        logged = logged_turn(start, input_len, request.kind, request.composing)
        return StoredTurn(start, input_len, tokens, request.kind, logged.facts)

    def keep_turn(self, turn: StoredTurn) -> KeepTurn:
        """The job for a turn that ends."""
        return KeepTurn(self._session_id, turn)

    def jobs(self, length: int, facts: Mapping[str, object] | None) -> tuple[LogJob, ...]:
        """The jobs for a log of this length; ``facts`` are new ones.

        Facts go first: a mark that is missing is better than one beyond the log.
        """
        jobs: list[LogJob] = [] if facts is None else [KeepFacts(self._session_id, facts)]
        if length < len(self._kept.log):
            jobs.append(CutLog(self._session_id, length))
        return tuple(jobs)

    def _missing(self) -> Iterator[LogJob]:
        has_salt = self._kept_salt == self._kept.cache_salt
        if self._is_in_doubt or not (self._has_kept_facts and has_salt):
            yield KeepFacts(self._session_id, self._facts())
        if self._kept_len < len(self._kept.log):
            # The first of them cuts off what may stand in its place, in the same job. A cut of its
            # own would take off the disk, for a moment, what a caller was told.
            for turn in self._kept.logged.stored(self._kept.log, since=self._kept_len):
                yield self.keep_turn(turn)
        elif self._is_in_doubt:
            yield CutLog(self._session_id, self._kept_len)

    # Snapshots

    def wants_state_at(self, position: int) -> bool:
        """Whether a snapshot at this position would be worth more than the one that is kept.

        Or than one that is on its way there.
        """
        return self.snapshots.furthest < position < self._kept_len

    @property
    def has_business(self) -> bool:
        """Whether the store owes an answer."""
        return self.change is not None or self.snapshots.has_business

    def _error(self, fault: StoreFault) -> StoreError:
        error = StoreError(session_id=self._session_id, reason=fault.reason, why=fault.why)
        error.__cause__ = fault.error
        return error


_GONE: Final = StoreFault("the store is not running", "stopped")


def _not_yet(_error: StoreError, /) -> None:
    """A repair that failed leaves the doubt, and the next change begins with another."""
