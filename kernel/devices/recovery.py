"""What becomes of leases and of the device when the scheduler or a GPU pool dies."""

from collections.abc import Callable

from kernel.actors.actor import Address, AnyActor
from kernel.actors.dispatcher import Dispatcher
from kernel.devices.gpu_pool import GpuPool
from kernel.devices.orphans import orphans
from kernel.devices.quarantine import Quarantine
from kernel.errors import DeviceLost, EngineFault, TenureError
from kernel.ids import GPU_POOL, SCHEDULER
from kernel.messages import PoolMessage, Rested, SchedulerMessage, WorkerEnded
from kernel.scheduling.scheduler import Scheduler
from kernel.step import StepDone, StepReport, TransferDone, TransferReport
from ownership import Consume, CustodianId, Lease, Ledger, StepFailed

__all__ = ["SUPERVISOR", "Recovery"]

SUPERVISOR = CustodianId("supervisor")
_STALLS_THAT_LOSE_A_DEVICE = 2
_WORKER_POLL_S = 0.05


class Recovery:
    """Puts leases into quarantine and lands those that nobody is left to land.

    Args:
        dispatcher: whose scheduler and GPU pool these are.
        ledger: where leases land.
        fail: fails the whole engine.
    """

    def __init__(
        self, dispatcher: Dispatcher, ledger: Ledger, fail: Callable[[TenureError], None]
    ) -> None:
        self.quarantine = Quarantine(ledger)
        self.restarts = 0
        self._dispatcher = dispatcher
        self._ledger = ledger
        self._port = ledger.batch_port(SUPERVISOR)
        self._fail = fail
        self._stalls = 0

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler that lives now."""
        actor = self._dispatcher.actor(SCHEDULER)
        return actor if isinstance(actor, Scheduler) else None

    @property
    def pool(self) -> GpuPool | None:
        """The GPU pool that lives now."""
        actor = self._dispatcher.actor(GPU_POOL)
        return actor if isinstance(actor, GpuPool) else None

    def reborn(self, make: Callable[[], AnyActor]) -> Callable[[], AnyActor]:
        """How a successor is made: after what its predecessor left behind has landed."""

        def restart() -> AnyActor:
            self.restarts += 1
            self._land_orphans()
            return make()

        return restart

    def bury_pool(self, actor: AnyActor) -> None:
        """A GPU pool has died: its leases are out of reach until its worker is done with them."""
        if not isinstance(actor, GpuPool):
            return
        self.quarantine.take(actor.worker, actor.leases)
        self._poll_quarantine()
        self._stalls += bool(actor.leases)
        if self._stalls >= _STALLS_THAT_LOSE_A_DEVICE:
            self._fail(DeviceLost(why="the successor of a dead GPU pool completed no step either"))

    def step_reported(self, report: StepReport | TransferReport) -> None:
        """A step has completed: the device lives, or says itself that it doesn't."""
        if isinstance(report, StepDone | TransferDone):
            self._stalls = 0
        elif report.device_lost:
            self._fail(DeviceLost(why=report.why))

    def give_up(self, error: BaseException) -> None:
        """There were too many deaths."""
        self._land_orphans()
        self._fail(EngineFault(actor="supervision", why=f"too many deaths, the last: {error!r}"))

    def land_as_failed(self, lease: Consume[Lease]) -> None:
        """Land a lease that no scheduler waits for, and give its claims back."""
        for claim in self._port.land(lease, StepFailed("nobody waits for this step")):
            self._port.rollback(claim)
        self._dispatcher.post(Address[SchedulerMessage](SCHEDULER), Rested(), SUPERVISOR)

    def land_ended(self, steps: tuple[int, ...]) -> None:
        """Land what a worker that has ended left in quarantine."""
        for step in steps:
            lease = self.quarantine.release(step)
            if lease is not None:
                self.land_as_failed(lease)

    def _poll_quarantine(self) -> None:
        self.quarantine.collect_ended(self._tell_worker_ended)
        if not self.quarantine.is_empty:
            at = self._dispatcher.now() + _WORKER_POLL_S
            self._dispatcher.call_at(at, self._poll_quarantine)

    def _tell_worker_ended(self, steps: tuple[int, ...]) -> None:
        message = WorkerEnded(steps)
        if self._dispatcher.post(Address[PoolMessage](GPU_POOL), message, SUPERVISOR) is not None:
            self.land_ended(steps)

    def _land_orphans(self) -> None:
        for lease in orphans(self._ledger.view, self.quarantine, self.pool, self.scheduler):
            self.land_as_failed(lease)
