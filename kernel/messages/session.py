"""What a session is told: by its callers, its own timers, and the scheduler.

What the store answers is in :mod:`kernel.messages.store`.
"""

from typing import ClassVar, Literal

import attrs

from kernel.actors.reply import Reply
from kernel.ids import TurnId
from kernel.session_store import SessionRecord
from kernel.state_image import StateImage
from kernel.turn import TurnRequest
from ownership import BaseName, BatchOwned

__all__ = [
    "AlarmKind",
    "CancelReason",
    "CancelTurn",
    "CloseSession",
    "Composed",
    "DropMark",
    "EndReason",
    "ExportSession",
    "Exported",
    "ForgetIdle",
    "GiveUp",
    "Hibernate",
    "HistoryMessage",
    "InterruptTurn",
    "Parked",
    "PhaseAbsorbed",
    "RestoreMark",
    "Rewind",
    "SetMark",
    "StartTurn",
    "StateRead",
    "StopFound",
    "TurnAlarm",
    "TurnEnded",
    "TurnFailed",
    "TurnFinished",
]

EndReason = Literal["stop", "length", "interrupt"]
CancelReason = Literal["abort", "queue_timeout", "timeout", "stall_timeout"]
AlarmKind = Literal["queue_timeout", "timeout", "stall_timeout"]


@attrs.frozen(eq=False)
class Exported:
    """A session as values."""

    record: SessionRecord
    image: StateImage | None
    """``None``: its state is nowhere, or could not be read; its log says the same."""


@attrs.frozen
class StartTurn:
    """A caller wants a turn. Answered exactly once through ``request.accepted``."""

    carries: ClassVar[tuple[str, ...]] = ()
    request: TurnRequest


@attrs.frozen
class Composed:
    """The messages of the turn that is first in the queue have become tokens, or can't."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    error: BaseException | None = None


@attrs.frozen
class CancelTurn:
    """The caller of a turn has left, or a deadline has passed. Names its turn."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    reason: CancelReason


@attrs.frozen
class InterruptTurn:
    """End a turn and keep ``keep`` generated tokens (``None``: all that there are)."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId | None
    keep: int | None
    reply: Reply[int]
    is_leaving: bool = False
    """The caller has left its block: a turn that has ended by then stays as it ended."""


@attrs.frozen
class Rewind:
    """Go back to the beginning of a turn; answered with how many turns are left."""

    carries: ClassVar[tuple[str, ...]] = ()
    to: int
    reply: Reply[int]


@attrs.frozen
class SetMark:
    """Name the place where the log ends, and keep the state that caches it.

    Answered with how many turns there are.
    """

    carries: ClassVar[tuple[str, ...]] = ()
    name: str
    reply: Reply[int]


@attrs.frozen
class RestoreMark:
    """Go back to a mark; answered with how many turns there are then."""

    carries: ClassVar[tuple[str, ...]] = ()
    name: str
    reply: Reply[int]


@attrs.frozen
class DropMark:
    """Forget a mark; answered with how many turns there are."""

    carries: ClassVar[tuple[str, ...]] = ()
    name: str
    reply: Reply[int]


HistoryMessage = Rewind | SetMark | RestoreMark | DropMark


@attrs.frozen
class StopFound:
    """The text of a turn reached a stop string (it stands in the output), or can't be decoded."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    error: BaseException | None = None


@attrs.frozen
class TurnAlarm:
    """A deadline of a turn has passed."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    kind: AlarmKind


@attrs.frozen
class ForgetIdle:
    """The idle timer of a session has run out; ``rest`` names the rest that it was armed for."""

    carries: ClassVar[tuple[str, ...]] = ()
    rest: int


@attrs.frozen
class CloseSession:
    """Close now, whatever the session does."""

    carries: ClassVar[tuple[str, ...]] = ()
    error: BaseException | None = None
    stays_kept: bool = False
    """The engine closes, and what the store has of the session stays there."""


@attrs.frozen
class TurnFinished:
    """A turn ran to an end; ``claim`` is its state, to be committed or rolled back."""

    carries: ClassVar[tuple[str, ...]] = ("claim",)
    turn: TurnId
    reason: EndReason
    stop_token: int | None
    kept: int
    claim: BatchOwned


@attrs.frozen
class TurnEnded:
    """A turn has ended and leaves no state to commit.

    It was interrupted while it had none (queued, preempted, before its first step), or it is a
    one-shot's, whose state went to the prefix cache.
    """

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    kept: int
    reason: EndReason = "interrupt"
    stop_token: int | None = None


@attrs.frozen
class TurnFailed:
    """A turn failed; nothing of it is left at the scheduler."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    error: BaseException


@attrs.frozen
class PhaseAbsorbed:
    """First phase of a turn: the session's pending tokens are absorbed, to be committed now."""

    carries: ClassVar[tuple[str, ...]] = ("claim",)
    turn: TurnId
    claim: BatchOwned


@attrs.frozen
class GiveUp:
    """The pool is short: give up the named state. Answered exactly once by :class:`GaveUp`."""

    carries: ClassVar[tuple[str, ...]] = ()
    base: BaseName


@attrs.frozen
class Parked:
    """A copy of the named state in host memory: it takes that one's place, or goes back.

    Answered exactly once by :class:`GaveUp`.
    """

    carries: ClassVar[tuple[str, ...]] = ("claim",)
    base: BaseName
    claim: BatchOwned


@attrs.frozen
class Hibernate:
    """There are too many sessions in memory: go dormant, if nothing speaks against it."""

    carries: ClassVar[tuple[str, ...]] = ()


@attrs.frozen
class ExportSession:
    """Give the session as values: its log as it is now, and the furthest state of it."""

    carries: ClassVar[tuple[str, ...]] = ()
    reply: Reply["Exported"]


@attrs.frozen
class StateRead:
    """The answer to :class:`ReadOutState`; no image when the state was gone or can't be read."""

    carries: ClassVar[tuple[str, ...]] = ()
    base: BaseName
    image: StateImage | None
    why: str = ""
