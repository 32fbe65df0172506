"""A clock that stands still until the test moves it."""

import attrs

from kernel import Engine, Environment
from tests.cancellation.killing import deliver

__all__ = ["Clock"]


@attrs.define(eq=False)
class Clock:
    """The engine's only time; deadlines pass when the test says so."""

    at: float = 1000.0

    def __call__(self) -> float:
        return self.at

    def environment(self) -> Environment:
        """A world on this clock."""
        return Environment(clock=self)

    async def advance(self, engine: Engine, seconds: float) -> None:
        """Let time pass at once, and everything happen that was due."""
        self.at += seconds
        engine.core.dispatcher.wake()
        await deliver(engine)
