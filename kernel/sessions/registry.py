"""The sessions that an engine has in memory: how each becomes one of them, and leaves.

Everything here is synchronous, so that no session is ever half open.
"""

from typing import final

from kernel.actors.dispatcher import Dispatcher
from kernel.actors.door import Door
from kernel.errors import SessionExists, SessionNotFound, TooManySessions
from kernel.ids import SessionId
from kernel.probe import Probe
from kernel.session_store import SessionRecord
from kernel.sessions.active_turn import SessionLimits
from kernel.sessions.home import SessionHome
from kernel.sessions.image_shelf import ImageShelf
from kernel.sessions.record import read_facts
from kernel.sessions.session import SessionActor
from kernel.sessions.stored_sessions import StoredSessions
from kernel.sessions.turn_records import SessionCounters
from kernel.state_image import StateImage
from ownership import Ledger

__all__ = ["SessionRegistry"]


@final
class SessionRegistry:
    """Makes sessions and finds them by name.

    Attributes:
        actors: by name; one-shots included.
        count: without one-shots.
        shelf: counts the images that sessions keep.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        ledger: Ledger,
        limits: SessionLimits,
        door: Door,
        counters: SessionCounters,
        probe: Probe,
        stored: StoredSessions | None,
        *,
        max_sessions: int,
    ) -> None:
        self.actors: dict[SessionId, SessionActor] = {}
        self.count = 0
        self._dispatcher = dispatcher
        self._door = door
        self._stored = stored
        self._max_sessions = max_sessions
        residents = None if stored is None else stored.residents
        dormant = None if stored is None else stored.dormant
        self.shelf = ImageShelf()
        self._home = SessionHome(
            dispatcher,
            ledger,
            limits,
            door,
            counters,
            probe,
            self._ended,
            residents,
            dormant=dormant,
            shelf=self.shelf,
        )

    def open(
        self,
        session_id: SessionId,
        *,
        is_one_shot: bool,
        idle_timeout_s: float | None,
        slides: bool = False,
        parent: SessionActor | None = None,
    ) -> SessionActor:
        """Open a session. Synchronous: there is no moment at which it is half open.

        Args:
            slides: drop its oldest positions where it would reach its limit.
            parent: fork this one. Read here and at once: a fork sees every turn of its parent
                whose end its caller can know of, and moves nothing.

        Raises:
            EngineClosed: the engine takes no more work.
            TooManySessions: the bound is reached.
            SessionExists: the id is taken.
        """
        self._check_room(session_id, counts=not is_one_shot)
        actor = self._new_session(
            session_id,
            is_one_shot=is_one_shot,
            idle_timeout_s=idle_timeout_s,
            birth="" if self._stored is None or is_one_shot else self._stored.new_birth(),
        )
        actor.state.slides = slides
        self._add_session(actor)
        if parent is not None:
            actor.inherit(parent)
        return actor

    def bring_back(
        self,
        record: SessionRecord,
        *,
        image: StateImage | None = None,
        session_id: SessionId | None = None,
    ) -> SessionActor:
        """Open a session that was kept.

        Args:
            record: what was kept of it.
            image: its state, where that is at hand; left to the store, if there is one, or to
                the log, where images of others leave it no room.
            session_id: ``None``: it is the session of the store that the record names. Else it is
                a new one, under this name.

        Raises:
            EngineClosed: as :meth:`open`, TooManySessions, SessionExists.
            DamagedRecord: the record doesn't say what a record says.
        """
        facts = read_facts(record)
        name = SessionId(record.session_id) if session_id is None else session_id
        self._check_room(name, is_stored=session_id is None)
        birth = facts.birth
        if session_id is not None:
            birth = "" if self._stored is None else self._stored.new_birth()
        actor = self._new_session(
            name, is_one_shot=False, idle_timeout_s=facts.idle_timeout_s, birth=birth
        )
        has_room = actor.identity.bring_back(record, facts, image)
        self._add_session(actor)
        if image is not None and not has_room and actor.archive is None:
            self._tell_lost(name, image)
        if actor.archive is not None and session_id is None:
            actor.archive.found(record)
            actor.tell_woken()
        return actor

    def _tell_lost(self, session_id: SessionId, image: StateImage) -> None:
        if self._home.probe.enabled:
            facts = {"session": session_id, "position": image.position, "reason": "refused"}
            self._home.probe.record("session.state_lost", facts)

    def _check_room(
        self, session_id: SessionId, *, counts: bool = True, is_stored: bool = False
    ) -> None:
        self._door.check_open()
        # Those that are being read have their room already; one that was read comes into its own.
        taken = 0 if self._stored is None or is_stored else self._stored.waking.num_reading
        if counts and self.count + taken >= self._max_sessions:
            raise TooManySessions(open_sessions=self.count, limit=self._max_sessions)
        is_open = session_id in self.actors
        is_kept = counts and not is_stored and self.holds(session_id)
        if is_open or is_kept:
            raise SessionExists(session_id=session_id, is_dormant=not is_open)

    def _new_session(
        self,
        session_id: SessionId,
        *,
        is_one_shot: bool,
        idle_timeout_s: float | None,
        birth: str,
    ) -> SessionActor:
        return SessionActor(
            session_id,
            self._home,
            is_one_shot=is_one_shot,
            idle_timeout_s=idle_timeout_s,
            birth=birth,
        )

    def _add_session(self, actor: SessionActor) -> None:
        self.actors[actor.session_id] = actor
        self._dispatcher.spawn(actor)
        if not actor.is_one_shot:
            self.count += 1
            if self._stored is not None:
                self._stored.residents.came()

    def holds(self, session_id: SessionId) -> bool:
        """Whether a session is kept in the store, whether or not it has an actor."""
        return self._stored is not None and self._stored.holds(session_id)

    def get(self, session_id: SessionId) -> SessionActor:
        """An open session.

        Raises:
            SessionNotFound: there is none with this id.
        """
        actor = self.actors.get(session_id)
        if actor is None or actor.is_one_shot:
            raise SessionNotFound(session_id=session_id)
        return actor

    def knows(self, session_id: SessionId) -> bool:
        """Whether there is a session of this id, open or dormant."""
        return session_id in self.actors or self.holds(session_id)

    @property
    def is_stuck(self) -> bool:
        """Whether every session in memory is at rest, and only its caller can make it go."""
        return all(actor.is_stuck for actor in self.actors.values() if not actor.is_one_shot)

    @property
    def prefix(self) -> str:
        """What names of sessions begin with that nobody has named; never that of another life."""
        return "session" if self._stored is None else f"session-{self._stored.life}"

    @property
    def open_turns(self) -> int:
        """Turns whose callers have not been told an end."""
        return sum(
            (actor.active is not None) + len(actor.waiting) for actor in self.actors.values()
        )

    def _ended(self, session_id: SessionId) -> None:
        actor = self.actors.pop(session_id, None)
        if actor is not None and not actor.is_one_shot:
            self.count -= 1
            if self._stored is not None:
                if actor.seat.actor is None:
                    self._stored.dormant.leave_seat(session_id, actor.seat)
                self._stored.went(session_id)
