"""The errors that a caller can meet, as one small tree.

``ClientError``: the request or its parameters must change. ``Overloaded``: the same request may
succeed later. ``RequestTimeout`` and ``RequestAborted``: the request ended before it was finished.
``ServerError``: the engine or the device failed. Every message says what to do; none carries
prompt text. Fields are attributes, so that a program need not read the message.
"""

from typing import Literal

from kernel.error_kinds import (
    ClientError,
    Overloaded,
    ServerError,
    TenureError,
    ValidationError,
)
from kernel.session_errors import (
    CheckpointNotFound,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionFileError,
    SessionLost,
    SessionNotFound,
    SessionStoreError,
    StoreError,
    TooLate,
    TooManySessions,
    TurnNotFound,
)

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


class NotFinished(ClientError):
    """The result of a turn was asked for that has none: it runs on, or was cancelled or failed."""

    def __init__(self, *, request_id: str, why: str | None = None) -> None:
        """``why``: how it ended without a result; ``None``: it has not ended."""
        self.request_id = request_id
        self.why = why
        super().__init__(self._message())

    def _message(self) -> str:
        if self.why is not None:
            return f"request {self.request_id!r} ended without a result: {self.why}"
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


class RequestTimeout(TenureError):
    """A deadline of the request passed; its turn was rolled back."""

    setting = "timeout_s"
    happened = "was not finished"
    way_out = "lower the load"

    def __init__(self, *, request_id: str, limit_s: float) -> None:
        self.request_id = request_id
        self.limit_s = limit_s
        super().__init__(
            f"request {request_id!r} {self.happened} within {self.setting}={limit_s:g}; raise"
            f" {self.setting} or {self.way_out}"
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
    way_out = "read its deltas sooner"


class RequestAborted(TenureError):
    """The request was cancelled from elsewhere; its turn was rolled back."""

    def __init__(self, *, request_id: str, why: str = "engine.abort was called") -> None:
        self.request_id = request_id
        self.why = why
        super().__init__(f"request {request_id!r} was aborted ({why}); submit it again if wanted")
