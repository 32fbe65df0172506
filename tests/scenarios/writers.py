"""Who wrote what: replays a run's steps, each slot and page with the claim that wrote it last."""

from collections.abc import Mapping
from typing import Any, cast

import attrs

from kernel.step import CopyOf, DeviceStep, StepRow
from ownership import NO_SLOT

__all__ = ["EventLog", "assert_no_foreign_reads"]


@attrs.define(eq=False)
class EventLog:
    """An observer that keeps what the ledger tells."""

    events: list[tuple[str, Mapping[str, Any]]] = attrs.field(
        factory=list[tuple[str, Mapping[str, Any]]]
    )

    def record(self, event: str, fields: Mapping[str, object], /) -> None:
        self.events.append((event, cast("Mapping[str, Any]", fields)))

    def bases(self) -> dict[int, int | None]:
        """By claim: the claim that it started from."""
        return {
            fields["claim"]: fields["base"]
            for event, fields in self.events
            if event == "claim.reserved"
        }

    def rows(self) -> dict[int, list[int]]:
        """By step: the claim of each row."""
        return {
            fields["step"]: fields["claims"]
            for event, fields in self.events
            if event == "lease.launched"
        }


def assert_no_foreign_reads(
    steps: list[DeviceStep], log: EventLog, page_size: int
) -> dict[str, int]:
    """A row reads what its own claim, or one that it descends from, wrote last.

    Returns:
        How often each kind of row was seen, so that a test can tell that it saw something.
    """
    bases, rows_of = log.bases(), log.rows()
    slots: dict[object, int] = {}
    pages: dict[int, int] = {}
    seen = {"zeros": 0, "copied": 0, "kept": 0, "tail": 0, "shared": 0}

    def line_of(claim: int) -> set[int]:
        line: set[int] = set()
        ancestor: int | None = claim
        while ancestor is not None:
            line.add(ancestor)
            ancestor = bases[ancestor]
        return line

    for step in steps:
        claims = rows_of[step.step]
        for row, claim in zip(step.rows, claims, strict=True):
            _copy(row, claim, bases[claim], slots, pages, seen)
        for row, claim in zip(step.rows, claims, strict=True):
            end = row.position + len(row.tokens)
            if row.slot is not NO_SLOT:
                assert slots[row.slot] == claim, (step.step, row)
            line = line_of(claim)
            first = row.position // page_size
            for page in row.pages[:first]:
                assert pages[page] in line, (step.step, row, page)
                seen["shared"] += pages[page] != claim
            if row.position % page_size:
                assert pages[row.pages[first]] == claim, (step.step, row)
            for page in row.pages[first : -(-end // page_size)]:
                pages[page] = claim
    return seen


def _copy(
    row: StepRow,
    claim: int,
    base: int | None,
    slots: dict[object, int],
    pages: dict[int, int],
    seen: dict[str, int],
) -> None:
    if isinstance(row.initial, CopyOf):
        assert slots[row.initial.slot] == base, row
        slots[row.slot] = claim
        seen["copied"] += 1
    elif row.initial == "zeros":
        slots[row.slot] = claim
        seen["zeros"] += 1
    else:
        seen["kept"] += 1
    if row.tail_copy is not None:
        assert pages[row.tail_copy.source] == base, row
        pages[row.tail_copy.target] = claim
        seen["tail"] += 1
