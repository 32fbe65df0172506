"""Who a session is, and how it was opened: what stays true of it while its actors come and go."""

from collections.abc import Mapping
from typing import final

from kernel.ids import SessionId
from kernel.session_store import SessionRecord
from kernel.sessions.kept_states import Mark
from kernel.sessions.record import SessionFacts, bring_back, facts_of
from kernel.sessions.state import SessionState
from kernel.state_image import StateImage

__all__ = ["SessionIdentity"]


@final
class SessionIdentity:
    """One session, as it is written down and read again."""

    __slots__ = ("_birth", "_session_id", "_state", "idle_timeout_s", "is_detached")

    def __init__(
        self,
        session_id: SessionId,
        birth: str,
        state: SessionState,
        idle_timeout_s: float | None,
    ) -> None:
        self.is_detached = False
        self.idle_timeout_s = idle_timeout_s
        self._session_id = session_id
        self._birth = birth
        self._state = state

    def facts(self, marks: Mapping[str, Mark] | None = None) -> dict[str, object]:
        """What is kept beside the log; ``marks`` are those that will be."""
        return facts_of(
            birth=self._birth,
            is_detached=self.is_detached,
            idle_timeout_s=self.idle_timeout_s,
            state=self._state,
            marks=marks,
        )

    def record(self) -> SessionRecord:
        """The session as it is now, without its state. O(log)."""
        turns = self._state.logged.stored(self._state.log)
        return SessionRecord(self._session_id, turns, self.facts())

    def bring_back(
        self, record: SessionRecord, facts: SessionFacts, image: StateImage | None
    ) -> bool:
        """Give the session, which is new, what was kept of it.

        Returns:
            False: there is no room for its image, and it is down to its log.

        Raises:
            DamagedRecord: the record doesn't say what a record says.
        """
        bring_back(self._state, record)
        self.is_detached = facts.is_detached
        self._state.slides = facts.slides
        self._state.cache_salt = facts.cache_salt
        self._state.states.marks.update(facts.marks)
        if image is not None and image.position < len(self._state.log):
            self._state.absorbed = image.position
            return self._state.keep_image(image)
        return True
