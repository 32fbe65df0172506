"""Known bugs that the demo can be run with, to show that its audit isn't blind.

``seed-rollback`` is the bug that this project is built against: a later turn of a session is
refused for lack of room, and the rollback gives back the slot that its session keeps. With typed
handles that call can't be written, so the bug is put in one level lower: the free list itself is
changed, behind the ledger's back.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from kernel.ids import TurnId
from kernel.scheduling.room import Moves, Room
from kernel.turn import OpenTurn
from ownership import (
    Base,
    BaseName,
    BatchOwned,
    CustodianId,
    Need,
    NoSlot,
    Place,
    Refused,
    admission,
)
from ownership.book import Book

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
    sound_reserve, sound_moves = admission.reserve, Room.moves_for
    books: list[Book] = []
    robbed: set[TurnId] = set()

    def reserve(
        book: Book,
        custodian: CustodianId,
        need: Need,
        base: Base | BatchOwned,
        turn: str,
        place: Place,
    ) -> BatchOwned | Refused:
        books[:] = [book]
        return sound_reserve(book, custodian, need, base, turn, place)

    def moves_for(
        self: Room,
        turn: OpenTurn,
        need: Need,
        claims: Mapping[TurnId, BatchOwned],
        start: Base | None,
        parked: Mapping[TurnId, BatchOwned],
    ) -> Moves | None:
        # The scheduler asks for moves when it has just refused the turn.
        for book in books:
            if turn.id not in claims and turn.id not in robbed:
                robbed.add(turn.id)
                _give_back_the_sessions_slot(book, turn.base)
        return sound_moves(self, turn, need, claims, start, parked)

    with (
        patch.object(admission, "reserve", reserve),
        patch.object(Room, "moves_for", moves_for),
    ):
        yield


def _give_back_the_sessions_slot(book: Book, base: Base) -> None:
    """What the rollback of a refused later turn must not do."""
    state = book.names.get((base.holder, base.version)) if isinstance(base, BaseName) else None
    if state is not None and not isinstance(state.slot, NoSlot):
        book.free_slots.append(state.slot)
