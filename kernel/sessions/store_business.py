"""What the store's actor has under way for whom, and what a worker's report means for it."""

from array import array
from collections.abc import Sequence

import attrs

from kernel.actors.reply import Reply
from kernel.errors import StoreError
from kernel.ids import SessionId
from kernel.messages.store import FetchState, ReadStored, StoreState
from kernel.session_store import (
    KeepState,
    ReadSession,
    ReadState,
    SessionRecord,
    StoreFault,
    StoreJob,
    StoreReport,
)
from kernel.state_image import StateImage
from ownership import CustodianId

__all__ = [
    "Business",
    "Change",
    "Removal",
    "Snapshot",
    "as_record",
    "jobs_of",
    "odd_report",
    "position_of",
    "removal_error",
    "stopped",
    "whole_report",
]


@attrs.frozen
class Change:
    """A change of a log."""

    asker: CustodianId
    number: int


@attrs.frozen
class Snapshot:
    """A snapshot to be kept or dropped."""

    asker: CustodianId
    number: int
    position: int | None
    """``None``: it is to be dropped."""
    nbytes: int


@attrs.frozen
class Removal:
    """A session that is to be forgotten."""

    session_id: SessionId
    reply: Reply[None]


Business = Change | Snapshot | FetchState | ReadStored | Removal


def jobs_of(fetch: FetchState) -> tuple[StoreJob, ...]:
    """The jobs that read an image; nothing comes between a log and its snapshot."""
    read = ReadState(fetch.session_id)
    return (read,) if fetch.begin is None else (ReadSession(fetch.session_id), read)


def whole_report(reports: Sequence[StoreReport], business: Business) -> StoreReport:
    """The first fault there is, else what the last job came to. Runs on any thread."""
    for report in reports:
        if isinstance(report, StoreFault):
            return report
    begin = business.begin if isinstance(business, FetchState) else None
    if begin is not None and not _is_state_of(begin, reports[0], reports[-1]):
        return StoreFault("the snapshot is of another history", "missing")
    return reports[-1]


def _is_state_of(begin: "array[int]", record: StoreReport, image: StoreReport) -> bool:
    """Whether an image is the state of just these tokens, by the log that it was kept beside."""
    if not isinstance(record, SessionRecord) or not isinstance(image, StateImage):
        return False
    compared = 0
    for turn in record.turns:
        part = begin[compared : compared + len(turn.tokens)]
        if turn.tokens[: len(part)] != part:
            return False
        compared += len(part)
    return compared == len(begin) == image.position


def position_of(message: StoreState) -> int | None:
    """Of the snapshot; ``None`` where it is to be dropped."""
    return message.job.image.position if isinstance(message.job, KeepState) else None


def stopped(error: BaseException) -> StoreFault:
    """What is told of business that died with the actor."""
    return StoreFault(str(error), "stopped", error)


def odd_report(report: StoreReport) -> StoreFault:
    """What is made of an answer to something else."""
    return StoreFault(f"the store answered with a {type(report).__name__}", "failed")


def as_record(report: StoreReport) -> SessionRecord | StoreFault:
    """The answer to a session that was to be read."""
    return report if isinstance(report, SessionRecord | StoreFault) else odd_report(report)


def removal_error(session_id: SessionId, fault: StoreFault) -> StoreError:
    """The fault as its caller is raised it."""
    error = StoreError(session_id=session_id, reason=fault.reason, why=fault.why)
    error.__cause__ = fault.error
    return error
