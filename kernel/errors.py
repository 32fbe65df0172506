"""The errors that a caller can meet, as one small tree.

``ClientError``: the request or its parameters must change. ``Overloaded``: the same request may
succeed later. ``RequestTimeout`` and ``RequestAborted``: the request ended before it was finished.
``ServerError``: the engine or the device failed. Every message says what to do; none carries
prompt text. Fields are attributes, so that a program need not read the message.
"""

import reprlib
from typing import Literal

__all__ = [
    "CheckpointNotFound",
    "ClientError",
    "DeviceLost",
    "EngineClosed",
    "EngineFault",
    "ModelError",
    "NotEnoughMemory",
    "NotFinished",
    "NotSubmitted",
    "Overloaded",
    "PromptTooLong",
    "QueueFull",
    "QueueTimeout",
    "RequestAborted",
    "RequestExists",
    "RequestTimeout",
    "SamplingError",
    "ServerError",
    "SessionBusy",
    "SessionClosed",
    "SessionExists",
    "SessionFileError",
    "SessionLost",
    "SessionNotFound",
    "SessionStoreError",
    "StallTimeout",
    "StepError",
    "StoreError",
    "TenureError",
    "TooLate",
    "TooManySessions",
    "TurnNotFound",
    "TurnTimeout",
    "ValidationError",
    "WrongContext",
]


def _rebuild(kind: type["TenureError"], message: str, fields: dict[str, object]) -> "TenureError":
    error = kind.__new__(kind, message)
    error.__dict__.update(fields)
    return error


class TenureError(Exception):
    """Every error that Tenure raises on purpose; ``str(error)`` is one sentence or two."""

    def __reduce__(self) -> tuple[object, ...]:
        # Constructors take keywords, so the default (class, args) would not build them again;
        # process pools and Ray pickle the errors that cross them.
        return _rebuild, (type(self), str(self), self.__dict__)


class ClientError(TenureError):
    """The caller must change something; the same call fails again."""


class Overloaded(TenureError):
    """A bound of the engine is reached; the same call may succeed later."""


class ServerError(TenureError):
    """The engine failed the request through no fault of the caller."""


class ValidationError(ClientError, ValueError):
    """A parameter has a value that can't be served, or contradicts another."""

    def __init__(self, *, parameter: str, value: object, why: str) -> None:
        self.parameter = parameter
        self.value = value
        super().__init__(f"{parameter}={reprlib.repr(value)} is refused: {why}")


class PromptTooLong(ValidationError):
    """The context and the tokens to generate can never fit, not even into an empty engine."""

    def __init__(
        self, *, prompt_tokens: int, max_tokens: int | None, limit: int, limit_name: str
    ) -> None:
        """Compare the context, history included, plus ``max_tokens`` (or one) with a limit."""
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.limit = limit
        self.limit_name = limit_name
        super().__init__(
            parameter="prompt",
            value=f"{prompt_tokens} tokens",
            why=(
                f"with {1 if max_tokens is None else max_tokens} to generate it does not fit into"
                f" {limit} ({limit_name}); shorten it, lower max_tokens or raise {limit_name}"
            ),
        )


class NotEnoughMemory(ClientError):
    """The model, or one turn of it, doesn't fit into the memory that there is."""

    def __init__(self, *, needed_bytes: int, available_bytes: int, why: str) -> None:
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
        super().__init__(f"not enough memory: {why}")


class SessionNotFound(ClientError):
    """No session has this id."""

    def __init__(self, *, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"no session {session_id!r}; open one with engine.session()")


class SessionExists(ClientError):
    """A session with this id is open already."""

    def __init__(self, *, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} is open; use engine.attach() or another id")


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


class SamplingError(ClientError):
    """No token could be drawn for this turn: what its own parameters brought along is at fault.

    A logits processor or a constraint raised (``__cause__`` is what it raised), or the parameters
    left no token to draw. The session is where it was before the turn; other turns went on.
    """

    def __init__(self, *, request_id: str, why: str) -> None:
        self.request_id = request_id
        self.why = why
        super().__init__(
            f"request {request_id!r} could not draw a token: {why}; the turn was rolled back,"
            " change its parameters and submit it again"
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


class NotFinished(ClientError):
    """The result of a turn was asked for before the turn was read to its end."""

    def __init__(self, *, request_id: str) -> None:
        self.request_id = request_id
        super().__init__(self._message())

    def _message(self) -> str:
        return f"request {self.request_id!r} goes on; iterate it to its end or await wait()"


class NotSubmitted(NotFinished):
    """A turn was read or interrupted before its block was entered."""

    def _message(self) -> str:
        return f"request {self.request_id!r} was not submitted; enter it with async with first"


class RequestExists(ClientError):
    """A request with this id is open already, or this very request was submitted before."""

    def __init__(self, *, request_id: str) -> None:
        self.request_id = request_id
        super().__init__(
            f"request {request_id!r} was submitted before; use another request_id or none, and a"
            " new stream() or turn() for each request"
        )


class WrongContext(ClientError):
    """The engine was called from another event loop, another thread or a forked process."""

    def __init__(self, *, where: Literal["event loop", "thread", "process"]) -> None:
        self.where = where
        way_out = {
            "event loop": "open an engine in each event loop",
            "thread": "use the blocking door, or anyio.from_thread, to call it from there",
            "process": "open the engine after the fork, in the child",
        }
        super().__init__(f"the engine belongs to another {where}; {way_out[where]}")


class EngineClosed(ClientError):
    """The engine is closed or closing."""

    def __init__(self, *, why: str = "aclose was called") -> None:
        self.why = why
        super().__init__(f"the engine is closed ({why}); open a new one")


class ModelError(ClientError):
    """The model can't be loaded: not a model directory, an unknown name, damaged weights."""


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


class QueueFull(Overloaded):
    """The queue of waiting turns is at its bound."""

    def __init__(self, *, what: Literal["requests", "tokens"], queued: int, limit: int) -> None:
        self.what = what
        self.queued = queued
        self.limit = limit
        setting = "max_num_queued_reqs" if what == "requests" else "max_num_queued_tokens"
        super().__init__(
            f"{queued} {what} wait and {setting} is {limit}; retry later, or raise {setting}"
        )


class TooManySessions(Overloaded):
    """As many sessions are open as the engine may hold."""

    def __init__(self, *, open_sessions: int, limit: int) -> None:
        self.open_sessions = open_sessions
        self.limit = limit
        super().__init__(
            f"{open_sessions} sessions are open and max_sessions is {limit}; close some, set"
            " idle_timeout_s, or raise max_sessions"
        )


class EngineFault(ServerError):
    """An actor of the engine died while it had business with this request."""

    def __init__(self, *, actor: str, why: str) -> None:
        self.actor = actor
        self.why = why
        super().__init__(f"{actor} failed ({why}); submit the request again, and report this bug")


class StepError(ServerError):
    """The step that computed this turn failed; the session is where it was before the turn."""

    def __init__(self, *, step: int, why: str) -> None:
        self.step = step
        self.why = why
        super().__init__(f"step {step} failed ({why}); the turn was rolled back, submit it again")


class DeviceLost(ServerError):
    """No step on this device can succeed any more."""

    def __init__(self, *, why: str) -> None:
        self.why = why
        super().__init__(f"the device is lost ({why}); close the engine and open a new one")


class SessionLost(ServerError):
    """The session's actor died, and with it the session's state."""

    def __init__(self, *, session_id: str, why: str) -> None:
        self.session_id = session_id
        self.why = why
        super().__init__(f"session {session_id!r} is lost ({why}); open a new one")


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


class RequestTimeout(TenureError):
    """A deadline of the request passed; its turn was rolled back."""

    setting = "timeout_s"
    happened = "was not finished"

    def __init__(self, *, request_id: str, limit_s: float) -> None:
        self.request_id = request_id
        self.limit_s = limit_s
        super().__init__(
            f"request {request_id!r} {self.happened} within {self.setting}={limit_s:g}; raise"
            f" {self.setting} or lower the load"
        )


class QueueTimeout(RequestTimeout):
    """The turn waited for admission until its ``queue_timeout_s`` had passed."""

    setting = "queue_timeout_s"
    happened = "was not admitted"


class TurnTimeout(RequestTimeout):
    """The turn did not end within ``timeout_s`` of its submission."""


class StallTimeout(RequestTimeout):
    """The caller took no output for ``stall_timeout_s`` while output waited."""

    setting = "stall_timeout_s"
    happened = "was not read"


class RequestAborted(TenureError):
    """The request was cancelled from elsewhere; its turn was rolled back."""

    def __init__(self, *, request_id: str, why: str = "engine.abort was called") -> None:
        self.request_id = request_id
        self.why = why
        super().__init__(f"request {request_id!r} was aborted ({why}); submit it again if wanted")
