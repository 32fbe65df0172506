"""How a session is left to the store: asked, written down, and then forgotten by the engine."""

from typing import Protocol, final

from kernel.actors.mailbox import Mailbox
from kernel.ids import SessionId
from kernel.messages import Hibernate, SessionMessage
from kernel.sessions.archive import SessionArchive
from kernel.sessions.home import Residents
from kernel.sessions.tiers import SessionTiers

__all__ = ["SessionRest", "Sleeper"]


class Sleeper(Protocol):
    """A session, as far as its rest is concerned."""

    session_id: SessionId
    mailbox: Mailbox[SessionMessage]

    @property
    def is_free(self) -> bool:
        """Whether it does nothing."""
        ...

    def go_dormant(self) -> None:
        """End its actor; all that it has is kept."""
        ...


@final
class SessionRest:
    """One session's way to rest.

    Args:
        session: whose rest it is.
        residents: who asks, and is told how it stands.
        archive: what is kept.
        tiers: brings the state to the disk.
    """

    __slots__ = ("_archive", "_is_held_up", "_is_leaving", "_residents", "_session", "_tiers")

    def __init__(
        self,
        session: Sleeper,
        residents: Residents,
        archive: SessionArchive,
        tiers: SessionTiers,
    ) -> None:
        self._session = session
        self._residents = residents
        self._archive = archive
        self._tiers = tiers
        self._is_leaving = False
        self._is_held_up = False
        """Nothing but an export is in the way."""

    @property
    def is_possible(self) -> bool:
        """Whether nothing would be lost without an actor."""
        archive = self._archive
        is_wanted = archive.deferred or self._tiers.is_exporting
        return archive.is_whole and not is_wanted and self._session.is_free

    @property
    def is_stuck(self) -> bool:
        """Whether it is at rest, and can't be left to the store whatever is done by itself."""
        archive = self._archive
        is_wanted = archive.has_business or archive.deferred or self._tiers.is_exporting
        is_idle = self._session.is_free and not is_wanted and not self._session.mailbox
        return is_idle and not archive.is_whole

    def tell(self) -> None:
        """The session was used, or is not any more: it doesn't go now."""
        self._is_leaving = self._is_held_up = False
        if self.is_possible:
            self._residents.rests(self._session.session_id)
        else:
            self._residents.stirs(self._session.session_id)

    def handled(self) -> None:
        """It has taken a message. While that waited, nobody could say that it is stuck."""
        if self._residents.is_crowded and self.is_stuck:
            self._residents.stirs(self._session.session_id)

    def begin(self) -> None:
        """Go, if nothing speaks against it: first the state, as far as it can be kept."""
        if self._is_leaving:
            return
        if self.is_possible:
            self._is_leaving = True
            self._tiers.to_disk(self._go)
        else:
            self.tell()

    def exported(self) -> None:
        """Somebody else has the state now that was read out for them."""
        if self._is_held_up:
            self._go()
        elif not self._is_leaving:
            self.tell()

    def _go(self) -> None:
        self._is_held_up = self._is_leaving and self._tiers.is_exporting
        if self._is_held_up:
            return
        # To be asked once more is nothing to stay for; else two would ask each other for ever.
        has_mail = any(not isinstance(mail, Hibernate) for mail in self._session.mailbox)
        if self._is_leaving and self.is_possible and not has_mail:
            self._session.go_dormant()
        else:
            self.tell()
