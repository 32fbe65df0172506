"""Where callers' session objects find the actor of a session, as long as it has one."""

from typing import TYPE_CHECKING
from weakref import ref

import attrs

if TYPE_CHECKING:
    from kernel.sessions.session import SessionActor

__all__ = ["Hold", "Seat"]


@attrs.define(eq=False)
class Seat:
    """One session as its callers hold it: a few bytes, however large the session is."""

    actor: "SessionActor | None"
    """``None``: it is dormant. A closed one keeps its actor, for what there is to know of it."""
    birth: str = ""
    """Tells a session that is woken from a namesake; empty: it is in no store."""
    is_removed: bool = False
    """It was taken off the disk while it was dormant; whoever has its name now is another."""
    _hold: "ref[Hold] | None" = None

    def hold(self) -> "Hold":
        """What each caller's session object keeps as long as it is there; all share one."""
        found = None if self._hold is None else self._hold()
        if found is None:
            found = Hold(self)
            self._hold = ref(found)
        return found

    @property
    def is_held(self) -> bool:
        """Whether a caller has an object of this session."""
        return self._hold is not None and self._hold() is not None


@attrs.frozen(eq=False)
class Hold:
    """Lives as long as some caller has an object of the session."""

    seat: Seat
