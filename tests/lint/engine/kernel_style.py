"""The classes around which programs in the styles of kernel code are written."""

__all__ = ["KEEPER"]

KEEPER = """\
import enum
from typing import Generic, assert_never

class NoState(enum.Enum):
    NO_STATE = "no state"

NO_STATE = NoState.NO_STATE

class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2

    def other(self) -> "Side": ...

@attrs.frozen
class Pair:
    carries: ClassVar[tuple[str, ...]] = ("one", "two")
    one: BatchOwned
    two: BatchOwned

class Keeper:
    kept: Owns[dict[int, SessionOwned]]
    claims: Owns[dict[str, BatchOwned]]
    rows: Owns[list[BatchOwned]]
    held: Owns[BatchOwned | None]
    current: int | NoState
    port: SessionPort
    batch: BatchPort
    view: LedgerView

"""
