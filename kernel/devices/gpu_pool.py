"""The GPU pool: the device's door. It starts steps and reports their ends; it owns nothing.

A step's claims stand in a lease, whose custodian is the device. The completion is a message that
the device's thread posts, never the result of an await, so nothing that is cancelled can make a
slot look free while the device still writes to it.

A step past its deadline is a death of this actor. Its leases go into quarantine, a successor
with a new worker takes over at once, and the old leases land (as failed) when the old worker
completes them or is proven to have ended.
"""

from collections.abc import Callable
from typing import assert_never, final

from kernel.actors.actor import Actor, Address, System, Timer
from kernel.devices.quarantine import Quarantine
from kernel.errors import EngineFault
from kernel.ids import GPU_POOL, SCHEDULER
from kernel.messages import (
    Down,
    LaunchStep,
    LaunchTransfer,
    PoolMessage,
    SchedulerMessage,
    StepCompleted,
    StepLanded,
    StepOverdue,
    WorkerEnded,
)
from kernel.step import (
    CopyOf,
    CopyOut,
    DeviceStep,
    DeviceWorker,
    InitialState,
    PageCopy,
    PlannedRow,
    ReadOut,
    StepFault,
    StepReport,
    StepRow,
    TransferReport,
    TransferRow,
    TransferStep,
)
from ownership import NO_SLOT, Consume, CopyFrom, Lease, Ledger, Place, Placement

__all__ = ["GpuPool"]


@final
class GpuPool(Actor[PoolMessage]):
    """Runs steps one at a time on one worker, and transfers beside them.

    Args:
        worker: the device's worker; used by this incarnation alone.
        step_timeout_s: how long a step may take before this actor dies of it.
        on_step: told of each completed step.
        on_unwanted: takes a lease that no scheduler is left to land.
    """

    def __init__(
        self,
        system: System,
        ledger: Ledger,
        worker: DeviceWorker,
        quarantine: Quarantine,
        *,
        step_timeout_s: float,
        on_step: Callable[[StepReport | TransferReport], None],
        on_unwanted: Callable[[Lease], None],
    ) -> None:
        super().__init__(GPU_POOL, system, mail_bound=64)
        self._ledger = ledger
        self._view = ledger.view
        self.worker = worker
        self._quarantine = quarantine
        self._step_timeout_s = step_timeout_s
        self._on_step = on_step
        self._on_unwanted = on_unwanted
        self._here: Address[PoolMessage] = Address(GPU_POOL)
        self._scheduler: Address[SchedulerMessage] = Address(SCHEDULER)
        self.leases: dict[int, Lease] = {}
        self._deadlines: dict[int, Timer] = {}

    def handle(self, message: PoolMessage, /) -> None:
        """Take one message."""
        match message:
            case LaunchStep():
                self._launch(message)
            case LaunchTransfer():
                self._transfer(message)
            case StepCompleted():
                self._complete(message)
            case StepOverdue():
                if message.step in self.leases:
                    why = f"step {message.step} took longer than {self._step_timeout_s:g} s"
                    raise EngineFault(actor=GPU_POOL, why=why)
            case WorkerEnded():
                for step in message.steps:
                    self._land_abandoned(step, "the worker ended before the step was done")
            case Down():
                pass
            case _:
                assert_never(message)

    def refuse(self, message: PoolMessage, error: BaseException, /) -> None:
        """A step that never reached the device lands as failed; a completion is not lost."""
        if isinstance(message, LaunchStep | LaunchTransfer):
            if message.step not in self.leases:
                self._land(message.lease, StepFault(str(error)))
        elif isinstance(message, StepCompleted):
            self._land_abandoned(message.step, str(error))
        elif isinstance(message, WorkerEnded):
            for step in message.steps:
                self._land_abandoned(step, str(error))

    def _launch(self, message: LaunchStep) -> None:
        step, lease = message.step, message.lease
        self.leases[step] = lease
        freed_slots, freed_pages = self._ledger.drain_freed()
        rows = tuple(map(_row, message.rows, self._view.placements(lease)))
        done = self._watch(step)
        self.worker.submit(DeviceStep(step, rows, freed_slots, freed_pages), done)

    def _transfer(self, message: LaunchTransfer) -> None:
        step, lease = message.step, message.lease
        self.leases[step] = lease
        freed_slots, freed_pages = self._ledger.drain_freed(Place.HOST)
        rows = tuple(map(_transfer_row, self._view.placements(lease)))
        done = self._watch(step)
        self.worker.transfer(TransferStep(step, rows, freed_slots, freed_pages), done)

    def _watch(self, step: int) -> Callable[[StepReport | TransferReport], None]:
        """Set a step's deadline; returns what takes its report, on any thread."""
        deadline = self.system.now() + self._step_timeout_s
        overdue = StepOverdue(step)
        self._deadlines[step] = self.system.call_at(
            deadline, lambda: self.system.post(self._here, overdue, self.name)
        )

        def done(report: StepReport | TransferReport) -> None:
            self.system.post_from_thread(self._here, StepCompleted(step, report))

        return done

    def _complete(self, message: StepCompleted) -> None:
        if message.step not in self.leases:
            self._land_abandoned(message.step, "its step completed after the pool's death")
            return
        self._deadlines.pop(message.step).cancel()
        self._on_step(message.report)
        self._land(self.leases.pop(message.step), message.report)

    def _land_abandoned(self, step: int, why: str) -> None:
        lease = self._quarantine.release(step)
        if lease is not None:
            self._land(lease, StepFault(why))

    def _land(self, lease: Consume[Lease], report: StepReport | TransferReport) -> None:
        if self.system.post(self._scheduler, StepLanded(lease, report), self.name) is not None:
            self._on_unwanted(lease)


def _row(planned: PlannedRow, place: Placement) -> StepRow:
    image, position = planned.image, place.position
    if image is not None:
        position = image.position
    initial: InitialState = "kept" if isinstance(place.initial, CopyFrom) else place.initial
    if isinstance(place.initial, CopyFrom):
        initial = CopyOf(place.initial.slot, place.source)
    tail = place.tail_copy
    return StepRow(
        place.slot,
        initial if image is None else image,
        position,
        planned.tokens,
        place.pages,
        PageCopy(tail.source, tail.target) if tail is not None else None,
        planned.sampling,
        planned.scoring,
        _page_copies(place) if place.page_copies else (),
        place.first_page,
    )


def _page_copies(place: Placement) -> tuple[PageCopy, ...]:
    return tuple(PageCopy(copy.source, copy.target, place.source) for copy in place.page_copies)


def _transfer_row(place: Placement) -> TransferRow:
    source = place.initial.slot if isinstance(place.initial, CopyFrom) else NO_SLOT
    if place.place is Place.FILE:
        return ReadOut(place.source, source, place.pages, place.position, place.first_page)
    return CopyOut(source, place.slot, _page_copies(place))
