"""Leases of dead GPU-pool actors, until the device is proven to be done with them."""

from collections.abc import Callable, Mapping

import attrs

from kernel.step import DeviceWorker
from ownership import Lease, Ledger

__all__ = ["Quarantine"]


@attrs.define(eq=False)
class _Abandoned:
    worker: DeviceWorker
    steps: set[int]


class Quarantine:
    """Keeps what a hanging or orphaned worker may still write to.

    A lease leaves when its step's completion arrives after all, or when its worker has ended.
    Until then its slots and pages are out of use: nobody can prove that they aren't written.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._leases: dict[int, Lease] = {}
        self._abandoned: list[_Abandoned] = []

    @property
    def is_empty(self) -> bool:
        """No worker is left whose end nobody has seen."""
        return not self._abandoned

    def take(self, worker: DeviceWorker, leases: Mapping[int, Lease]) -> None:
        """Take over the leases of a pool actor that has died, and tell its worker to stop."""
        for step, lease in leases.items():
            self._ledger.quarantine(lease)
            self._leases[step] = lease
        self._abandoned.append(_Abandoned(worker, set(leases)))
        worker.stop()

    def release(self, step: int) -> Lease | None:
        """The lease of a step that is over; ``None`` when it was released before."""
        return self._leases.pop(step, None)

    def leases(self) -> list[Lease]:
        """Every lease that is here; only to be looked at."""
        return list(self._leases.values())

    def collect_ended(
        self,
        tell: Callable[[tuple[int, ...]], None],
        *,
        seconds_left: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Look which workers have ended, and tell which steps they left.

        Args:
            tell: called with the steps of each worker that has ended.
            seconds_left: how long to block for the next worker.
        """
        still: list[_Abandoned] = []
        for abandoned in self._abandoned:
            if abandoned.worker.join(max(0.0, seconds_left())):
                tell(tuple(sorted(abandoned.steps)))
            else:
                still.append(abandoned)
        self._abandoned = still
