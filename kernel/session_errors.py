"""Errors about sessions, their turns, and where they are kept."""

from typing import Literal

from kernel.error_kinds import ClientError, Overloaded, ServerError

__all__ = [
    "CheckpointNotFound",
    "SessionBusy",
    "SessionClosed",
    "SessionExists",
    "SessionFileError",
    "SessionLost",
    "SessionNotFound",
    "SessionStoreError",
    "StoreError",
    "TooLate",
    "TooManySessions",
    "TurnNotFound",
]


class SessionNotFound(ClientError):
    """No session has this id."""

    def __init__(self, *, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"no session {session_id!r}; open one with engine.session()")


class SessionExists(ClientError):
    """A session with this id is there already, open or in the store."""

    def __init__(self, *, session_id: str, is_dormant: bool = False) -> None:
        """``is_dormant``: it is in the store, of this life of the engine or of an earlier one."""
        self.session_id = session_id
        self.is_dormant = is_dormant
        where = "in the session store" if is_dormant else "open"
        super().__init__(
            f"session {session_id!r} is {where} already; go on with it by engine.attach() or"
            " engine.session(..., resume=True), or use another id"
        )


class SessionBusy(ClientError):
    """The session runs a turn; it is not disturbed by the refused one."""

    def __init__(self, *, session_id: str, turn_id: str, can_wait: bool = True) -> None:
        """``can_wait``: what was refused may also queue behind the turn."""
        self.session_id = session_id
        self.turn_id = turn_id
        way_out = "await or interrupt it, or pass wait=True" if can_wait else "await or cancel it"
        super().__init__(f"session {session_id!r} runs turn {turn_id}; {way_out}")


class SessionClosed(ClientError):
    """The session was closed; its state and its log are gone."""

    def __init__(self, *, session_id: str, why: str = "closed by its owner") -> None:
        self.session_id = session_id
        self.why = why
        super().__init__(f"session {session_id!r} is closed ({why}); open a new one")


class TurnNotFound(ClientError):
    """The session has no turn with this id that could still be interrupted."""

    def __init__(self, *, session_id: str, turn_id: str | None) -> None:
        self.session_id = session_id
        self.turn_id = turn_id
        named = "turn" if turn_id is None else f"turn {turn_id}"
        super().__init__(f"session {session_id!r} has no running or last finished {named}")


class CheckpointNotFound(ClientError):
    """The session has no checkpoint of this name, or has gone back to before it."""

    def __init__(self, *, session_id: str, name: str) -> None:
        self.session_id = session_id
        self.name = name
        super().__init__(
            f"session {session_id!r} has no checkpoint {name!r}: none was made, it was dropped, or"
            " the history below it has changed; session.info lists those that stand"
        )


class TooLate(ClientError):
    """The turn can't be interrupted any more; the session has gone on."""

    def __init__(self, *, session_id: str, turn_id: str, why: str) -> None:
        self.session_id = session_id
        self.turn_id = turn_id
        self.why = why
        super().__init__(
            f"turn {turn_id} of session {session_id!r} stays as it ended: {why}; interrupt before"
            " the next turn is submitted"
        )


class SessionFileError(ClientError):
    """A session's file is refused, or can't be read or written; nothing was loaded of it."""

    def __init__(
        self,
        *,
        source: str,
        reason: Literal["model", "dtype", "version", "foreign", "damaged", "full", "failed"],
        why: str,
    ) -> None:
        """``reason`` names what differs; ``"foreign"``: it isn't a session's file at all."""
        self.source = source
        self.reason = reason
        self.why = why
        super().__init__(f"session file {source}: {why}")


class SessionStoreError(ClientError):
    """A store of sessions is refused or can't be opened; it was left as it was."""

    def __init__(
        self,
        *,
        path: str,
        reason: Literal[
            "model", "dtype", "version", "foreign", "damaged", "in_use", "full", "failed"
        ],
        why: str,
    ) -> None:
        """``reason`` names what differs; ``"in_use"``: another engine has it open."""
        self.path = path
        self.reason = reason
        self.why = why
        super().__init__(f"session store {path}: {why}")


class TooManySessions(Overloaded):
    """As many sessions are open as the engine may hold."""

    def __init__(self, *, open_sessions: int, limit: int) -> None:
        self.open_sessions = open_sessions
        self.limit = limit
        super().__init__(
            f"{open_sessions} sessions are open and max_sessions is {limit}; close some, set"
            " idle_timeout_s, or raise max_sessions"
        )


class SessionLost(ServerError):
    """The session's actor died, and with it the session's state."""

    def __init__(self, *, session_id: str, why: str) -> None:
        self.session_id = session_id
        self.why = why
        super().__init__(
            f"session {session_id!r} is lost ({why}); attach to it again, if there is a store, or"
            " open a new one"
        )


class StoreError(ServerError):
    """The store of sessions could not do what was asked; the session is as it was before."""

    def __init__(self, *, session_id: str, reason: str, why: str) -> None:
        """``reason`` is the store's own word: "full", "damaged", "missing", "stopped", ..."""
        self.session_id = session_id
        self.reason = reason
        self.why = why
        super().__init__(
            f"session {session_id!r} could not be kept or read ({reason}: {why}); what was not kept"
            " was rolled back, see to the store and submit it again"
        )
