"""Every message of the kernel: concrete, frozen, in closed unions.

``carries`` names the fields that are ownership handles; the mailbox moves their custody on every
hop. A lease isn't among them: its custodian is the device from launch to landing, whoever passes
its name along.
"""

from typing import ClassVar, Literal

import attrs

from kernel.ids import TurnId
from kernel.reply import Reply
from kernel.session_store import SessionRecord
from kernel.state_image import StateImage
from kernel.step import PlannedRow, StepReport, TransferReport
from kernel.store_messages import (
    FetchState,
    ForgetStored,
    JobDone,
    LogStored,
    ReadStored,
    ReleaseImage,
    StateFetched,
    StateStored,
    StoreLog,
    StoreOverdue,
    StoreState,
)
from kernel.turn import OpenTurn, TurnRequest
from ownership import Base, BaseName, BatchOwned, CustodianId, Lease

__all__ = [
    "Cancel",
    "CancelReason",
    "CancelTurn",
    "ClearCache",
    "CloseSession",
    "Composed",
    "Continue",
    "Down",
    "DropMark",
    "EndReason",
    "ExportSession",
    "Exported",
    "ForgetIdle",
    "GaveUp",
    "GiveUp",
    "Hibernate",
    "HistoryMessage",
    "Interrupt",
    "InterruptTurn",
    "LaunchStep",
    "LaunchTransfer",
    "Parked",
    "PhaseAbsorbed",
    "PoolMessage",
    "ReadOutState",
    "Rested",
    "RestoreMark",
    "Rewind",
    "SchedulerMessage",
    "SessionMessage",
    "SetMark",
    "StartTurn",
    "StateRead",
    "StepCompleted",
    "StepLanded",
    "StepOverdue",
    "StopFound",
    "StoreMessage",
    "Submit",
    "Tick",
    "TurnAlarm",
    "TurnEnded",
    "TurnFailed",
    "TurnFinished",
    "WorkerEnded",
]

EndReason = Literal["stop", "length", "interrupt"]
CancelReason = Literal["abort", "queue_timeout", "timeout", "stall_timeout"]
AlarmKind = Literal["queue_timeout", "timeout", "stall_timeout"]


@attrs.frozen
class Down:
    """An actor died; business that was open with this incarnation has failed."""

    carries: ClassVar[tuple[str, ...]] = ()
    name: CustodianId
    incarnation: int
    why: str


@attrs.frozen(eq=False)
class Exported:
    """A session as values."""

    record: SessionRecord
    image: StateImage | None
    """``None``: its state is nowhere, or could not be read; its log says the same."""


# To a session


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


SessionMessage = (
    StartTurn
    | Composed
    | CancelTurn
    | InterruptTurn
    | Rewind
    | SetMark
    | RestoreMark
    | DropMark
    | StopFound
    | TurnAlarm
    | ForgetIdle
    | CloseSession
    | TurnFinished
    | TurnEnded
    | TurnFailed
    | PhaseAbsorbed
    | GiveUp
    | Parked
    | StateRead
    | Hibernate
    | ExportSession
    | LogStored
    | StateStored
    | StateFetched
    | Down
)


# To the scheduler


@attrs.frozen
class Submit:
    """A turn to run. It holds no handle and pins nothing; it names its base."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: OpenTurn


@attrs.frozen
class Continue:
    """The first phase of a turn was committed; go on from there."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    base: Base


@attrs.frozen
class Cancel:
    """Forget a turn: its session already has."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId


@attrs.frozen
class Interrupt:
    """End a turn at its landing, keeping at most ``keep`` generated tokens."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    keep: int | None
    reason: EndReason


@attrs.frozen
class GaveUp:
    """The answer to :class:`GiveUp`: ``moved`` is False when there was nothing to give."""

    carries: ClassVar[tuple[str, ...]] = ()
    base: BaseName
    moved: bool


@attrs.frozen
class ReadOutState:
    """Read a state out into an image; it stays where it is. Answered exactly once.

    Its session asks, so that whatever it does with the image is its own decision.
    """

    carries: ClassVar[tuple[str, ...]] = ()
    session: CustodianId
    base: BaseName


@attrs.frozen
class Rested:
    """A session came to rest, closed, or handled a death: what it holds has changed."""

    carries: ClassVar[tuple[str, ...]] = ()


@attrs.frozen
class StepLanded:
    """The device is done with a lease: a step, or a transfer."""

    carries: ClassVar[tuple[str, ...]] = ()
    lease: Lease
    report: StepReport | TransferReport


@attrs.frozen
class ClearCache:
    """Evict all states of the prefix cache."""

    carries: ClassVar[tuple[str, ...]] = ()
    forever: bool
    """And take no more: the engine closes."""


@attrs.frozen
class Tick:
    """The scheduler's message to itself: all mail that came before has been seen."""

    carries: ClassVar[tuple[str, ...]] = ()


SchedulerMessage = (
    StepLanded
    | Tick
    | Submit
    | Rested
    | Cancel
    | Interrupt
    | Continue
    | GaveUp
    | ReadOutState
    | ClearCache
    | Down
)


# To the GPU pool


@attrs.frozen
class LaunchStep:
    """Run a step over the claims of a lease, one row a claim."""

    carries: ClassVar[tuple[str, ...]] = ()
    lease: Lease
    step: int
    rows: tuple[PlannedRow, ...]


@attrs.frozen
class LaunchTransfer:
    """Make the copies that the claims of a lease stand for, beside the steps that compute.

    What is to be copied is in the ledger: a claim in host memory is a copy of its base, one in a
    file reads it out.
    """

    carries: ClassVar[tuple[str, ...]] = ()
    lease: Lease
    step: int


@attrs.frozen
class StepCompleted:
    """The device reports; posted by its thread, exactly once a submitted step or transfer."""

    carries: ClassVar[tuple[str, ...]] = ()
    step: int
    report: StepReport | TransferReport


@attrs.frozen
class StepOverdue:
    """A step has not completed by its deadline."""

    carries: ClassVar[tuple[str, ...]] = ()
    step: int


@attrs.frozen
class WorkerEnded:
    """An abandoned worker is proven to have ended; it left these steps unfinished."""

    carries: ClassVar[tuple[str, ...]] = ()
    steps: tuple[int, ...]


PoolMessage = LaunchStep | LaunchTransfer | StepCompleted | StepOverdue | WorkerEnded | Down


StoreMessage = (
    StoreLog
    | StoreState
    | FetchState
    | ReleaseImage
    | ReadStored
    | ForgetStored
    | JobDone
    | StoreOverdue
    | Down
)
