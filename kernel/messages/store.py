"""What sessions and the store say to each other. None of it carries a handle."""

from array import array
from typing import ClassVar

import attrs

from kernel.actors.reply import Reply
from kernel.ids import SessionId, TurnId
from kernel.session_store import (
    CutLog,
    DropState,
    KeepFacts,
    KeepState,
    KeepTurn,
    StoreFault,
    StoreReport,
)
from kernel.state_image import StateImage
from ownership import CustodianId

__all__ = [
    "AsksWait",
    "FetchState",
    "ForgetStored",
    "JobDone",
    "LogJob",
    "LogStored",
    "ReadStored",
    "ReleaseImage",
    "StateFetched",
    "StateStored",
    "StoreLog",
    "StoreOverdue",
    "StoreState",
]

LogJob = KeepFacts | KeepTurn | CutLog


# To the store


@attrs.frozen
class StoreLog:
    """Make one change of a session's log durable. Answered exactly once by :class:`LogStored`."""

    carries: ClassVar[tuple[str, ...]] = ()
    asker: CustodianId
    change: int
    """Its number: no two of an engine have the same, so that no namesake takes it for its own."""
    jobs: tuple[LogJob, ...]
    """At least one; in order, and the change is kept when all of them are."""


@attrs.frozen
class StoreState:
    """Keep or drop a snapshot. Answered exactly once by :class:`StateStored`."""

    carries: ClassVar[tuple[str, ...]] = ()
    asker: CustodianId
    number: int
    """As of a change."""
    job: KeepState | DropState


@attrs.frozen
class FetchState:
    """Read a snapshot for a turn. Answered exactly once by :class:`StateFetched`.

    It waits while other images that were read take up the room that there is for them; the asker
    gives its part of it back by :class:`ReleaseImage`.
    """

    carries: ClassVar[tuple[str, ...]] = ()
    asker: CustodianId
    session_id: SessionId
    turn: TurnId
    nbytes: int
    """How large the snapshot is, as far as its session knows."""
    begin: "array[int] | None" = None
    """The log that the snapshot must be of, up to its position; ``None``: the session is the
    asker's own, so it can't be of another."""


@attrs.frozen
class ReleaseImage:
    """The asker has no use for its image any more, or doesn't want it."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId


@attrs.frozen
class ReadStored:
    """A dormant session is to be woken: read all of it but its state."""

    carries: ClassVar[tuple[str, ...]] = ()
    session_id: SessionId


@attrs.frozen
class ForgetStored:
    """Remove a session from the store."""

    carries: ClassVar[tuple[str, ...]] = ()
    session_id: SessionId
    reply: Reply[None]


@attrs.frozen
class AsksWait:
    """Somebody beside the sessions wants something; one message is enough for all that wait."""

    carries: ClassVar[tuple[str, ...]] = ()


@attrs.frozen
class JobDone:
    """The worker reports; posted by its thread, exactly once a submitted job."""

    carries: ClassVar[tuple[str, ...]] = ()
    job: int
    report: StoreReport


@attrs.frozen
class StoreOverdue:
    """A job has not been reported by its deadline."""

    carries: ClassVar[tuple[str, ...]] = ()
    job: int


# To a session


@attrs.frozen
class LogStored:
    """A change of the log is durable, or isn't: then the log in the store may be either."""

    carries: ClassVar[tuple[str, ...]] = ()
    change: int
    fault: StoreFault | None = None


@attrs.frozen
class StateStored:
    """A snapshot is kept or dropped, or isn't."""

    carries: ClassVar[tuple[str, ...]] = ()
    number: int
    position: int | None
    """``None``: it was to be dropped."""
    fault: StoreFault | None = None


@attrs.frozen
class StateFetched:
    """The snapshot that a turn waits for, or why there is none."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    found: StateImage | StoreFault
