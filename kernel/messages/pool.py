"""What the GPU pool is told: by the scheduler, the device's threads, and its own timers."""

from typing import ClassVar

import attrs

from kernel.step import PlannedRow, StepReport, TransferReport
from ownership import Lease

__all__ = [
    "LaunchStep",
    "LaunchTransfer",
    "StepCompleted",
    "StepOverdue",
    "WorkerEnded",
]


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
