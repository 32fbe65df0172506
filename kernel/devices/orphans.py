"""Leases that nobody is left to land, because the actor that knew of them died without a word.

A lease is never reclaimed: it ends by landing. When a scheduler dies between a launch and its
post, or a GPU pool between a completion and its post, no message names the lease any more. The
ledger still does, and whoever could land it is known, so what is left over is found by
subtraction. The device has not begun such a step, or is done with it.
"""

from kernel.devices.gpu_pool import GpuPool
from kernel.devices.quarantine import Quarantine
from kernel.messages import LaunchStep, LaunchTransfer, StepLanded
from kernel.scheduling.scheduler import Scheduler
from ownership import Lease, LedgerView

__all__ = ["orphans"]


def orphans(
    view: LedgerView, quarantine: Quarantine, pool: GpuPool | None, scheduler: Scheduler | None
) -> list[Lease]:
    """Leases that are neither with a living actor, nor in its mail, nor in quarantine."""
    known = set(quarantine.leases())
    if pool is not None:
        known.update(pool.leases.values())
        known.update(
            mail.lease for mail in pool.mailbox if isinstance(mail, LaunchStep | LaunchTransfer)
        )
    if scheduler is not None:
        known.update(mail.lease for mail in scheduler.mailbox if isinstance(mail, StepLanded))
    return [lease for lease in view.leases() if lease not in known]
