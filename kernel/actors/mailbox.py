"""A mailbox moves handles in synchronous code only.

A channel of an async library hands an item over inside an ``await``: a task that is cancelled
natively at the wrong tick has received the item and never sees it, or both sides have it. A
handle that is lost like that is a leaked slot; one that is doubled is a slot with two owners. So
the two halves of a receive are apart here. Waiting carries nothing (the dispatcher waits, for all
mailboxes at once, in :mod:`kernel.engine.shell`); taking is a plain call.

* ``post`` moves the handles of a message from the sender to the mailbox and returns ``None``. When
  the addressee is gone it moves nothing and returns the message: the sender still owns what is in
  it, and gives it back.
* ``take`` moves them on to the actor.
* ``close`` returns what was not delivered; its handles stay in the custody of the mailbox until
  supervision reclaims them, by type and counted.

Custody is checked on every hop by the ledger (identity and custodian, O(1)), so a message that
carries a handle which its sender doesn't hold fails at ``post``, in the sender's handler.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import ClassVar, Generic, Protocol, TypeVar, final

from ownership import Consume, CustodianId, Ledger

__all__ = ["Mailbox", "MailboxOverflow", "Message"]


class Message(Protocol):
    """A concrete frozen class that says which of its fields are handles."""

    carries: ClassVar[tuple[str, ...]]


class MailboxOverflow(RuntimeError):
    """More mail than the protocol allows: a bug in the kernel, never a matter of load."""


M = TypeVar("M", bound=Message)


@final
class Mailbox(Generic[M]):
    """The mail of one actor, in order of posting.

    Args:
        owner: the actor that takes from it.
        ledger: where custody of carried handles is moved.
        bound: most messages that the protocol can have under way to this actor.
        ready: called when mail arrives and the mailbox isn't on the run queue already.

    Attributes:
        waiting: the mail under way, oldest first, only to be looked at; ``None`` when there is
            none, since an empty queue would be a third of what a session at rest takes.
    """

    __slots__ = ("_bound", "_closed", "_move", "_ready", "custodian", "owner", "queued", "waiting")

    def __init__(
        self,
        owner: CustodianId,
        ledger: Ledger,
        *,
        bound: int,
        ready: Callable[["Mailbox[M]"], None],
    ) -> None:
        self.owner = owner
        self.custodian = CustodianId(f"mail:{owner}")
        self.queued = False
        self.waiting: deque[M] | None = None
        self._move = ledger.mover()
        self._bound = bound
        self._ready = ready
        self._closed = False

    def __len__(self) -> int:
        return 0 if self.waiting is None else len(self.waiting)

    def __iter__(self) -> Iterator[M]:
        """The mail under way, oldest first; only to be looked at."""
        return iter(self.waiting or ())

    def post(self, message: Consume[M], sender: CustodianId) -> M | None:
        """Put a message in; return it untouched when the addressee is gone.

        Raises:
            StaleHandle: ``sender`` doesn't hold a handle that the message carries.
            MailboxOverflow: the bound is exceeded; nothing was moved.
        """
        if self._closed:
            return message
        mail: deque[M] | None = self.waiting
        if mail is None:
            mail = deque()
        if len(mail) >= self._bound:
            raise MailboxOverflow(f"{self.owner}: more than {self._bound} messages under way")
        carries = message.carries
        if carries:
            move, custodian, site = self._move, self.custodian, type(message).__name__
            for name in carries:
                move(getattr(message, name), sender, custodian, site)
        mail.append(message)
        self.waiting = mail
        if not self.queued:
            self.queued = True
            self._ready(self)
        return None

    def take(self) -> M:
        """Take the oldest message; its handles are now in the custody of the owner.

        Raises:
            IndexError: there is no mail.
        """
        mail = self.waiting
        if mail is None:
            raise IndexError(f"{self.owner}: there is no mail")
        message = mail.popleft()
        if not mail:
            self.waiting = None
        carries = message.carries
        if carries:
            move, site = self._move, type(message).__name__
            for name in carries:
                move(getattr(message, name), self.custodian, self.owner, site)
        return message

    def close(self) -> list[M]:
        """Accept nothing more and return what was not delivered. Idempotent."""
        self._closed = True
        left = list(self)
        self.waiting = None
        return left
