"""Where callers' session objects find the actor of a session, as long as it has one."""

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from kernel.sessions.session import SessionActor

__all__ = ["Seat"]


@attrs.define(eq=False)
class Seat:
    """One session as its callers hold it: a few bytes, however large the session is."""

    actor: "SessionActor | None"
    """``None``: it is dormant. A closed one keeps its actor, for what there is to know of it."""
    birth: str = ""
    """Tells a session that is woken from a namesake; empty: it is in no store."""
    is_removed: bool = False
    """It was taken off the disk while it was dormant; whoever has its name now is another."""
