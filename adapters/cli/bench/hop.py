"""What a message costs: two actors that post to each other."""

from typing import ClassVar, final

import attrs

from adapters.cli.bench.clock import best_of, seconds
from kernel.actors.actor import Actor, Address, System
from kernel.actors.dispatcher import Dispatcher
from kernel.actors.supervision import RestartIntensity
from kernel.environment import Environment
from kernel.probe import NullProbe
from ownership import Capacity, CustodianId, Ledger

__all__ = ["hop_us"]


@attrs.frozen
class _Ball:
    carries: ClassVar[tuple[str, ...]] = ()


@final
class _Player(Actor[_Ball]):
    """Posts each ball back."""

    def __init__(self, name: str, other: str, system: System) -> None:
        super().__init__(CustodianId(name), system, mail_bound=2)
        self._other = Address[_Ball](CustodianId(other))

    def handle(self, message: _Ball, /) -> None:
        self.system.post(self._other, message, self.name)


def hop_us(*, hops: int = 20_000, repeats: int = 9) -> float:
    """Microseconds from one handler to the next, through mailbox and run queue."""
    dispatcher = Dispatcher(
        Environment(),
        Ledger(Capacity(1, 0, 1)),
        NullProbe(),
        RestartIntensity(limit=0, window_s=1.0),
    )
    for name, other in (("left", "right"), ("right", "left")):
        dispatcher.spawn(_Player(name, other, dispatcher))
    dispatcher.post(Address[_Ball](CustodianId("left")), _Ball(), CustodianId("bench"))
    spent = best_of(repeats, lambda: seconds(lambda: dispatcher.run(hops)))
    return round(spent / hops * 1e6, 3)
