"""An actor: one mailbox, one synchronous handler, nothing shared.

``handle`` runs to completion; there is no ``await`` in an actor, so cancellation can't strike
one. An exception that leaves ``handle`` is the death of the actor: supervision reclaims what it
held, tells whoever had open business with it, and restarts it where that is its kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import attrs

from kernel.actors.mailbox import Mailbox, Message
from ownership import Consume, CustodianId

__all__ = ["Actor", "Address", "AnyActor", "System", "Timer"]

M = TypeVar("M", bound=Message)
M_contra = TypeVar("M_contra", bound=Message, contravariant=True)


@attrs.frozen
class Address(Generic[M_contra]):
    """Where to post messages of one union; names the actor, not one of its incarnations."""

    name: CustodianId


@attrs.define(eq=False)
class Timer:
    """A message to come. ``cancel`` is idempotent and may come too late."""

    at: float
    fire: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class System(Protocol):
    """What an actor may ask of its dispatcher. All of it is synchronous."""

    def post(
        self, target: Address[M_contra], message: Consume[M_contra], sender: CustodianId, /
    ) -> M_contra | None: ...

    def post_from_thread(self, target: Address[M_contra], message: M_contra, /) -> None: ...

    def now(self) -> float: ...

    def call_at(self, at: float, fire: Callable[[], object], /) -> Timer: ...

    def at_the_edge(self, job: Callable[[], None], /) -> None: ...

    def incarnation_of(self, name: CustodianId, /) -> int: ...

    def retire(self, actor: "AnyActor", /) -> None: ...


class Actor(ABC, Generic[M]):
    """Base of the session, scheduler and GPU-pool actors.

    Attributes:
        name: its custodian id.
        mailbox: set by the dispatcher when the actor is spawned.
        incarnation: counts the lives under this name, from 1.
        mail_bound: most messages that the protocol can have under way to it.
    """

    def __init__(self, name: CustodianId, system: System, *, mail_bound: int) -> None:
        self.name = name
        self.system = system
        self.mail_bound = mail_bound
        self.incarnation = 0
        self.mailbox: Mailbox[M]

    @abstractmethod
    def handle(self, message: Consume[M], /) -> None:
        """Handle one message to completion."""

    def refuse(self, message: M, error: BaseException, /) -> None:
        """Answer a message that was never delivered, or in whose handling this actor died.

        So nobody waits for it. Called outside of ``handle``, after the handles that it carries
        have been reclaimed; what was answered already may be answered once more.
        """

    def decline(self, message: Consume[M], error: BaseException, /) -> None:
        """Like ``refuse``, at a peaceful end: the handles of the message are in our custody."""
        self.refuse(message, error)

    def abandon(self, error: BaseException, /) -> None:
        """Tell the callers who wait on this actor that it died. Must not post."""

    def has_business_with(self, name: CustodianId, /) -> bool:
        """Whether the death of ``name`` concerns this actor; its own never does."""
        return name != self.name


AnyActor = Actor[Any]
