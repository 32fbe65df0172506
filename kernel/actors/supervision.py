"""What happens when an actor dies: reclaim, answer, tell, restart. In this order, synchronously.

An exception out of a handler is a death. What the actor held is reclaimed by its type (a batch
claim is rolled back, a session's state is closed; a lease is never touched) and counted: in a run
without faults the count is zero. Undelivered requests are answered as failed. Every actor with
open business gets :class:`Down` before it can see the successor.
"""

from collections import deque
from collections.abc import Callable
from typing import ClassVar

import attrs

from kernel.actors.actor import AnyActor
from ownership import CustodianId

__all__ = ["Child", "Down", "RestartIntensity"]


@attrs.frozen
class Down:
    """An actor died; business that was open with this incarnation has failed."""

    carries: ClassVar[tuple[str, ...]] = ()
    name: CustodianId
    incarnation: int
    why: str


@attrs.frozen
class Child:
    """How an actor is supervised.

    ``restart`` makes the successor, or is ``None`` for an actor that stays dead. ``on_death``
    runs before anyone is told (the GPU pool's puts its leases into quarantine).
    """

    restart: Callable[[], AnyActor] | None = None
    on_death: Callable[[AnyActor], None] | None = None


@attrs.define(eq=False)
class RestartIntensity:
    """At most ``limit`` restarts within ``window_s`` seconds; beyond that the engine gives up."""

    limit: int
    window_s: float
    _times: deque[float] = attrs.field(factory=deque[float], init=False)

    def allow(self, now: float) -> bool:
        """Count a restart; False when there were too many."""
        while self._times and now - self._times[0] > self.window_s:
            self._times.popleft()
        self._times.append(now)
        return len(self._times) <= self.limit
