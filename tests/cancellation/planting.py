"""Crashes planted into actors: an exception out of a handler at a chosen moment of its work.

The moments of an actor are counted over all its lives: a message is begun, a post is about to be
made, a post was made, a message is done. The plant strikes once, at the n-th of them.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kernel.actors.actor import AnyActor
from kernel.engine.core import Core
from ownership import CustodianId

__all__ = ["Crash", "Plant", "plant"]


class Crash(Exception):
    """Planted."""


@attrs.define
class Plant:
    """Where it strikes, and where it has."""

    kind: type[AnyActor]
    moment: int
    """How many moments go by before it strikes."""
    is_armed: bool = True
    where: str = ""
    _inside: AnyActor | None = None

    def pass_moment(self, where: str) -> None:
        """One moment goes by; the last one raises."""
        if not self.is_armed:
            return
        self.moment -= 1
        if self.moment < 0:
            self.is_armed = False
            self.where = where
            raise Crash(where)

    def handle(self, actor: AnyActor, message: object, real: Callable[[Any, Any], None]) -> None:
        """Stand in for the actor's own ``handle``."""
        self._inside = actor
        try:
            self.pass_moment(f"before {type(message).__name__}")
            real(actor, message)
            self.pass_moment(f"after {type(message).__name__}")
        finally:
            self._inside = None

    def post(self, real: Callable[..., Any], target: Any, message: Any, sender: CustodianId) -> Any:
        """Stand in for the dispatcher's ``post``."""
        is_ours = self._inside is not None and sender == self._inside.name
        if is_ours:
            self.pass_moment(f"before the post of {type(message).__name__}")
        left = real(target, message, sender)
        if is_ours:
            self.pass_moment(f"after the post of {type(message).__name__}")
        return left


def plant(core: Core, what: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a plant into an engine's actors of one kind."""
    real_handle, real_post = what.kind.handle, core.dispatcher.post

    def handle(actor: AnyActor, message: Any) -> None:
        what.handle(actor, message, real_handle)

    def post(target: Any, message: Any, sender: CustodianId) -> Any:
        return what.post(real_post, target, message, sender)

    monkeypatch.setattr(what.kind, "handle", handle)
    monkeypatch.setattr(core.dispatcher, "post", post)
