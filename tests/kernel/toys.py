"""Toy actors on a real dispatcher and a real ledger, and a clock that the test moves."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attrs

from kernel.actors.actor import Actor, Address, AnyActor, System
from kernel.actors.dispatcher import Dispatcher
from kernel.actors.supervision import Child, RestartIntensity
from kernel.environment import Environment
from ownership import (
    ZEROS,
    BatchOwned,
    BatchPort,
    Capacity,
    CustodianId,
    Ledger,
    Need,
    Owns,
    Refused,
)

__all__ = ["CALLER", "Clock", "Note", "Parcel", "Recorder", "Stack", "Toy", "reserve"]

CALLER = CustodianId("caller")


@attrs.frozen
class Note:
    """A message of values."""

    carries: ClassVar[tuple[str, ...]] = ()
    text: str


@attrs.frozen
class Parcel:
    """A message with a handle in it."""

    carries: ClassVar[tuple[str, ...]] = ("claim",)
    claim: BatchOwned


@attrs.define(eq=False)
class Clock:
    """Stands still until it is moved."""

    at: float = 100.0

    def __call__(self) -> float:
        return self.at


class Recorder:
    """A probe that keeps every event."""

    enabled = True

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []

    def record(self, event: str, fields: Mapping[str, object], /) -> None:
        self.events.append((event, fields))

    def bind_turn(self, turn: str, context: Mapping[str, object], /) -> None:
        """The context is not what these tests look at."""

    def forget_turn(self, turn: str, /) -> None:
        """Nothing was bound."""

    def named(self, event: str) -> list[Mapping[str, object]]:
        """The fields of each event of this name."""
        return [fields for name, fields in self.events if name == event]


class Toy(Actor[Any]):
    """Keeps what it gets, and does what the test tells it to."""

    kept: Owns[list[BatchOwned]]

    def __init__(self, name: str, system: System, *, mail_bound: int = 1000) -> None:
        super().__init__(CustodianId(name), system, mail_bound=mail_bound)
        self.kept = []
        self.seen: list[Any] = []
        self.refused: list[tuple[Any, BaseException]] = []
        self.abandoned_for: list[BaseException] = []
        self.on: Callable[[Any], object] = lambda message: None
        self.is_concerned = True

    def handle(self, message: Any, /) -> None:
        self.seen.append(message)
        self.on(message)

    def refuse(self, message: Any, error: BaseException, /) -> None:
        self.refused.append((message, error))

    def abandon(self, error: BaseException, /) -> None:
        self.abandoned_for.append(error)

    def has_business_with(self, name: CustodianId, /) -> bool:
        return self.is_concerned and super().has_business_with(name)

    @property
    def texts(self) -> list[str]:
        """The notes it got, in order."""
        return [message.text for message in self.seen if isinstance(message, Note)]


class Stack:
    """A dispatcher and what it stands on; the test serves the mail."""

    def __init__(
        self,
        *,
        choose: Callable[[int], int] | None = None,
        deliver: Callable[[Callable[[], object]], None] | None = None,
        max_restarts: int = 3,
        host: Capacity | None = None,
    ) -> None:
        self.clock = Clock()
        self.probe = Recorder()
        self.ledger = Ledger(Capacity(4, 16, 4), host=host)
        self.dispatcher = Dispatcher(
            Environment(clock=self.clock, choose=choose, deliver=deliver),
            self.ledger,
            self.probe,
            RestartIntensity(max_restarts, window_s=60.0),
        )

    def spawn(self, name: str, child: Child | None = None, *, mail_bound: int = 1000) -> Toy:
        toy = Toy(name, self.dispatcher, mail_bound=mail_bound)
        self.dispatcher.spawn(toy, child)
        return toy

    def post(self, target: AnyActor | str, message: Any, sender: str = CALLER) -> Any:
        name = target if isinstance(target, str) else target.name
        address = Address[Any](CustodianId(name))
        return self.dispatcher.post(address, message, CustodianId(sender))

    def run(self) -> None:
        """Serve all mail and every timer that is due."""
        while self.dispatcher.run(1000):
            pass

    def advance(self, seconds: float) -> None:
        self.clock.at += seconds
        self.run()


def reserve(port: BatchPort, positions: int = 1, turn: str = "turn") -> BatchOwned:
    """A working claim from nothing."""
    claim = port.reserve(Need(positions), ZEROS, turn=turn)
    assert not isinstance(claim, Refused), claim
    return claim
