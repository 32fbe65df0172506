"""The tiers below the pools, for one session: what is read out of a state, and what is read back.

A state is read into an image by the scheduler's transfers, and the image goes to the store, or to
whoever wants to save the session. What comes back from the store is an image that a turn starts
from. Images are values; the state itself stays with the session until it gives it up.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from kernel.actors.actor import Address, System
from kernel.actors.reply import Reply
from kernel.ids import SCHEDULER, TurnId
from kernel.messages import Exported, GaveUp, ReadOutState, SchedulerMessage, StateRead
from kernel.session_store import SessionRecord, StoreFault
from kernel.sessions.archive import SessionArchive
from kernel.sessions.snapshots import SessionSnapshots
from kernel.sessions.state import SessionState
from kernel.state_image import StateImage
from kernel.turn import OpenTurn
from ownership import ZEROS, BaseName, CustodianId

__all__ = ["SessionTiers"]

_SCHEDULER: Final = Address[SchedulerMessage](SCHEDULER)

Then = Callable[[StateImage | None], None]


@final
class SessionTiers:
    """One session's images."""

    __slots__ = (
        "_archive",
        "_export_fetches",
        "_exports",
        "_fetched",
        "_holder",
        "_reads",
        "_state",
        "_system",
        "_tickets",
    )

    def __init__(
        self,
        holder: CustodianId,
        system: System,
        state: SessionState,
        archive: SessionArchive | None,
    ) -> None:
        self._holder = holder
        self._system = system
        self._state = state
        self._archive = archive
        self._reads: tuple[tuple[BaseName, Then], ...] = ()
        self._tickets = 0
        self._exports: tuple[Reply[Exported], ...] = ()
        self._export_fetches: tuple[Then, ...] = ()
        """All of whom wait for one image of the store's."""
        self._fetched: TurnId | None = None
        """The turn that waits for an image of the store's, or has one."""

    @property
    def is_reading(self) -> bool:
        """Whether the scheduler reads something out for this session."""
        return bool(self._reads)

    def read(self, base: BaseName, then: Then) -> None:
        """Read a state into an image; ``then`` is called once, with ``None`` where it can't be."""
        is_asked_for = self._is_asked_for(base)
        self._reads += ((base, then),)
        if is_asked_for:
            return
        message = ReadOutState(self._holder, base)
        if self._system.post(_SCHEDULER, message, self._holder) is not None:
            self._answer(base, None)

    def state_read(self, message: StateRead) -> None:
        """The scheduler has answered."""
        if message.image is None and self._archive is not None and self._is_asked_for(message.base):
            fault = StoreFault(message.why, "failed")
            self._archive.snapshots.tell_lost(0, fault)
        self._answer(message.base, message.image)

    def end(self) -> None:
        """The session goes; whoever waits for something to be read has waited long enough."""
        if self._archive is not None:
            self._archive.snapshots.end()
        self.scheduler_died()  # after that: who can't have a snapshot may ask for a state

    def scheduler_died(self) -> None:
        """Nobody reads any more."""
        for base in dict(self._reads):
            self._answer(base, None)

    def _is_asked_for(self, base: BaseName) -> bool:
        return any(read == base for read, _ in self._reads)

    def _answer(self, base: BaseName, image: StateImage | None) -> None:
        reads = self._reads
        self._reads = tuple(read for read in reads if read[0] != base)
        for read, then in reads:
            if read == base:
                then(image)

    # Down a tier

    def give_up(self, base: BaseName) -> None:
        """The pool is short: keep a snapshot where there is a store, then close the state."""
        archive, state = self._archive, self._state
        if archive is None or base != state.base or not archive.wants_state_at(state.base_position):
            self._close(base)
            return
        incarnation = self._system.incarnation_of(SCHEDULER)
        self.read(base, partial(self._read_for_giving_up, base, incarnation))

    def _read_for_giving_up(
        self, base: BaseName, incarnation: int, image: StateImage | None
    ) -> None:
        if self._system.incarnation_of(SCHEDULER) != incarnation:
            return  # Whoever asked is dead, and its successor asks for what it needs.
        self.keep(base, image)
        self._close(base)

    def _close(self, base: BaseName) -> None:
        moved = self._state.give_up(base)
        self._system.post(_SCHEDULER, GaveUp(base, moved), self._holder)

    def keep(self, base: BaseName, image: StateImage | None) -> None:
        """Hand a snapshot to the store, if the log still goes as it did when it was taken."""
        archive = self._archive
        if archive is not None and image is not None and base == self._state.base:
            is_wanted = archive.wants_state_at(image.position)
            if is_wanted:  # a twin may be on its way since this was asked for
                archive.snapshots.offer(image)

    def to_disk(self, then: Callable[[], None]) -> None:
        """Have a snapshot of the furthest state kept, if there is one to keep; then go on."""
        state, archive = self._state, self._archive
        base, image, position = state.base, state.image, state.base_position
        if archive is None:
            then()
        elif isinstance(base, BaseName) and archive.wants_state_at(position):
            self.read(base, partial(self._read_for_disk, base, then))
        elif image is not None and archive.wants_state_at(image.position):
            archive.snapshots.offer(image, then)
        else:
            archive.snapshots.when_kept(then)

    def _read_for_disk(
        self, base: BaseName, then: Callable[[], None], image: StateImage | None
    ) -> None:
        archive = self._archive
        if archive is None:
            then()
        elif image is None or base != self._state.base:
            archive.snapshots.when_kept(then)
        else:
            archive.snapshots.offer(image, then)

    # Up a tier

    def fetch(self, turn: OpenTurn, then: Callable[[OpenTurn], None]) -> None:
        """Give a turn the image that it starts from, if that is further than any state here.

        ``then`` is called once, now or later; not after :meth:`forget_fetch`.
        """
        state, archive = self._state, self._archive
        position, found = state.base_position, partial(self._found, turn, then)
        if archive is not None and state.version:
            archive.snapshots.end_inheritance()
        if state.image is not None and state.image.position > position:
            _start_from(turn, state.image)
        elif archive is not None and archive.snapshots.reaches_beyond(position):
            self._fetched = turn.id
            archive.snapshots.fetch(turn.id, found)
            return
        elif archive is not None and self._inherits_beyond(position):
            self._fetched = turn.id
            archive.snapshots.fetch_inherited(turn.id, state.log, found)
            return
        then(turn)

    def _inherits_beyond(self, position: int) -> bool:
        """Whether the store may have a further state of its log, a fork's parent's."""
        inherited = None if self._archive is None else self._archive.snapshots.inherited
        return inherited is not None and position < inherited < len(self._state.log)

    def _found(
        self,
        turn: OpenTurn,
        then: Callable[[OpenTurn], None],
        found: StateImage | StoreFault,
    ) -> None:
        if isinstance(found, StateImage) and 0 < found.position < turn.history_len:
            _start_from(turn, found)
        then(turn)

    def forget_fetch(self, turn: TurnId) -> bool:
        """A turn is over. Returns whether it still waited for its image."""
        archive = self._archive
        if archive is None or self._fetched != turn:
            return False
        self._fetched = None
        is_waiting = archive.snapshots.is_fetching(turn)
        archive.snapshots.release(turn)
        return is_waiting

    # Out of the engine

    @property
    def is_exporting(self) -> bool:
        """Whether somebody waits for a state to be read out for other engines."""
        return bool(self._exports)

    @property
    def num_exports(self) -> int:
        """How many wait for that; each has a record of the whole log."""
        return len(self._exports)

    def abandon(self, lost: BaseException) -> None:
        """The session died; nobody answers any more what it was asked for."""
        exports, self._exports = self._exports, ()
        for reply in exports:
            reply.fail(lost)

    def export(
        self, record: SessionRecord, reply: Reply[Exported], then: Callable[[], None]
    ) -> None:
        """Answer with a record and the furthest state that there is for it; then go on."""
        self._exports += (reply,)
        done = partial(self._exported, record, reply, then)
        state, archive = self._state, self._archive
        image, position = state.image, state.base_position
        if image is not None and image.position > position:
            done(image)
        elif archive is not None and (
            archive.snapshots.reaches_beyond(position) or self._inherits_beyond(position)
        ):
            self._fetch_for_export(archive.snapshots, done)
        else:
            self._read_base(done)

    def _exported(
        self,
        record: SessionRecord,
        reply: Reply[Exported],
        then: Callable[[], None],
        image: StateImage | None,
    ) -> None:
        self._exports = tuple(other for other in self._exports if other is not reply)
        reply.answer(Exported(record, image))
        then()

    def _fetch_for_export(self, snapshots: SessionSnapshots, done: Then) -> None:
        self._export_fetches += (done,)
        if len(self._export_fetches) > 1:
            return  # it is read once, however many want it
        self._tickets += 1
        ticket = TurnId(f"export-{self._tickets}:{self._holder}")
        then = partial(self._fetched_for_export, ticket)
        if snapshots.reaches_beyond(self._state.base_position):
            snapshots.fetch(ticket, then)
        else:
            snapshots.fetch_inherited(ticket, self._state.log, then)

    def _fetched_for_export(self, ticket: TurnId, found: StateImage | StoreFault) -> None:
        if self._archive is not None:
            self._archive.snapshots.release(ticket)
        fetches, self._export_fetches = self._export_fetches, ()
        for done in fetches:
            if isinstance(found, StateImage):
                done(found)
            else:
                self._read_base(done)

    def _read_base(self, done: Then) -> None:
        """Read the state that the session has in a pool, if it has one."""
        base = self._state.base
        if isinstance(base, BaseName):
            self.read(base, done)
        else:
            done(None)


def _start_from(turn: OpenTurn, image: StateImage) -> None:
    turn.image = image
    turn.base = ZEROS
