"""Known bugs that the demo can be run with, to show that its audit isn't blind.

``seed-rollback`` is the bug that this project is built against: a later turn of a session is
refused for lack of room, and the rollback gives back the slot that its session keeps. With typed
handles that call can't be written, so the bug is put in one level lower: the free list itself is
changed, behind the ledger's back.
"""

from collections.abc import Generator
from contextlib import contextmanager

from ownership import BaseName, BatchOwned, CustodianId, Need, NoSlot, Refused, admission
from ownership.book import Book
from ownership.values import Base

__all__ = ["PLANTS", "plant"]

PLANTS = ("seed-rollback",)


@contextmanager
def plant(bug: str) -> Generator[None]:
    """Put a bug into this process until the block is left.

    Raises:
        ValueError: no such bug.
    """
    if bug not in PLANTS:
        raise ValueError(f"no bug {bug!r}; known are {', '.join(PLANTS)}")
    sound = admission.reserve
    robbed: set[str] = set()

    def reserve(
        book: Book, custodian: CustodianId, need: Need, base: Base, turn: str
    ) -> BatchOwned | Refused:
        claim = sound(book, custodian, need, base, turn)
        is_refused = isinstance(claim, Refused) and claim.reason == "room"
        if is_refused and turn not in robbed and _give_back_the_sessions_slot(book, base):
            robbed.add(turn)
        return claim

    admission.reserve = reserve
    try:
        yield
    finally:
        admission.reserve = sound


def _give_back_the_sessions_slot(book: Book, base: Base) -> bool:
    """What the rollback of a refused later turn must not do."""
    if not isinstance(base, BaseName):
        return False
    state = book.names.get((base.holder, base.version))
    if state is None or isinstance(state.slot, NoSlot):
        return False
    book.free_slots.append(state.slot)
    return True
