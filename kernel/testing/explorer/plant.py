"""Deaths planted into a handler: at its beginning, before or after any of its posts, at its end."""

from collections.abc import Callable
from typing import Any

import attrs

from kernel.actors.actor import AnyActor
from kernel.engine.core import Core
from ownership import CustodianId

__all__ = ["Planted", "Planter"]


class Planted(BaseException):
    """The death that the explorer wants.

    No ``Exception``, so that nobody mistakes it for an error of his own: the guard of a row would
    end the row's turn with it, and its actor would live on.
    """


@attrs.define(eq=False)
class Planter:
    """Counts the moments of one handler at which its actor could die, and strikes at one of them.

    It stands between the actors and their dispatcher, and lets everything through.
    """

    _inside: CustodianId | None = None
    _strike_at: int | None = None
    moments: list[str] = attrs.field(factory=list[str])
    """The moments that the last handler went through, in order."""
    has_struck: bool = False

    def install(self, core: Core) -> None:
        """Put it into an engine that has just been made."""
        real: Callable[..., Any] = core.dispatcher.post

        def post(target: Any, message: Any, sender: CustodianId, /) -> Any:
            if sender != self._inside:
                return real(target, message, sender)
            name = type(message).__name__
            self._pass(f"before the post of {name}")
            left = real(target, message, sender)
            self._pass(f"after the post of {name}")
            return left

        vars(core.dispatcher)["post"] = post

    def watch(self, actor: AnyActor, serve: Callable[[], object], strike_at: int | None) -> None:
        """Let an actor handle one message; let it die at that moment, if there is one."""
        real = actor.handle
        self.moments = []
        self.has_struck = False
        self._strike_at = strike_at

        def handle(message: Any) -> None:
            self._inside = actor.name
            try:
                self._pass("before it handles anything")
                real(message)
                self._pass("at the end of its handler")
            finally:
                self._inside = None

        own = vars(actor)
        own["handle"] = handle
        try:
            serve()
        finally:
            own.pop("handle", None)
            self._inside = None

    def _pass(self, where: str) -> None:
        number = len(self.moments)
        self.moments.append(where)
        if number == self._strike_at:
            self.has_struck = True
            raise Planted(where)
