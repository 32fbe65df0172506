"""Who owns which slot right now, drawn from the events and from nothing else."""

from collections.abc import Mapping, Sequence
from typing import cast

import attrs

__all__ = ["FREE", "Board", "Cell"]


OWNERS: tuple[str, ...] = ("batch", "session", "cache", "draining", "quarantined")


@attrs.frozen
class Cell:
    """One slot."""

    owner: str
    """``free``, ``batch``, ``session``, ``cache``, ``draining`` or ``quarantined``."""
    label: str = ""
    """The turn or the session that it belongs to."""
    in_flight: bool = False
    """A step on the device may write into it."""


FREE = Cell("free")


class Board:
    """Follows the events of one engine; a watcher for :func:`adapters.logs.open_event_log`."""

    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}
        self.num_slots = 0
        """Of the device; slots of host memory are numbered after these."""
        self.num_host_slots = 0
        self.rollbacks = 0
        self._slot_of: dict[int, int] = {}

    @property
    def owned(self) -> dict[str, int]:
        """How many slots of the device each kind of owner has."""
        return self._owned(in_host=False)

    @property
    def owned_in_host(self) -> dict[str, int]:
        """The same in host memory."""
        return self._owned(in_host=True)

    def _owned(self, *, in_host: bool) -> dict[str, int]:
        owned: dict[str, int] = dict.fromkeys(OWNERS, 0)
        for slot, cell in self.cells.items():
            if cell.owner != "free" and (slot >= self.num_slots) == in_host:
                owned[cell.owner] = owned.get(cell.owner, 0) + 1
        return owned

    def in_order(self) -> list[tuple[int, Cell]]:
        """Every slot that was seen, by its number."""
        return sorted(self.cells.items())

    def watch(self, event: str, fields: Mapping[str, object]) -> None:
        """Take one event."""
        match event:
            case "ledger.opened":
                self.num_slots = _integer(fields.get("slots"))
                self.num_host_slots = _integer(fields.get("host_slots"))
            case "claim.reserved":
                self._own(fields, Cell("batch", str(fields.get("turn", ""))))
            case "claim.committed" | "claim.admitted":
                self._own(fields, Cell(str(fields.get("owner")), str(fields.get("to", ""))))
            case "claim.drained":
                self._own(fields, Cell("draining"))
            case "lease.launched" | "lease.quarantined":
                self._flight(_numbers(fields.get("claims")), event == "lease.quarantined")
            case "lease.landed":
                rows = cast("Sequence[Mapping[str, object]]", fields.get("rows", ()))
                self._land([_integer(row.get("claim")) for row in rows])
            case "claim.rolled_back":
                self.rollbacks += 1
                self._release(fields)
            case "claim.closed" | "claim.evicted" | "claim.reclaimed" | "claim.drain_ended":
                self._release(fields)
            case _:
                pass

    def _own(self, fields: Mapping[str, object], cell: Cell) -> None:
        slot = fields.get("slot")
        if isinstance(slot, int):
            self._slot_of[_integer(fields.get("claim"))] = slot
            self.cells[slot] = cell

    def _release(self, fields: Mapping[str, object]) -> None:
        self._slot_of.pop(_integer(fields.get("claim")), None)
        slot = fields.get("returned_slot")
        if isinstance(slot, int):
            self.cells[slot] = FREE

    def _flight(self, claims: Sequence[int], quarantined: bool) -> None:
        for slot in self._slots(claims):
            cell = self.cells[slot]
            owner = "quarantined" if quarantined else cell.owner
            self.cells[slot] = attrs.evolve(cell, owner=owner, in_flight=True)

    def _land(self, claims: Sequence[int]) -> None:
        for slot in self._slots(claims):
            self.cells[slot] = Cell("batch", self.cells[slot].label)

    def _slots(self, claims: Sequence[int]) -> list[int]:
        return [self._slot_of[claim] for claim in claims if claim in self._slot_of]


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _numbers(value: object) -> Sequence[int]:
    return cast("Sequence[int]", value) if isinstance(value, (list, tuple)) else ()
