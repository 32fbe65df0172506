"""What can't be right about the copies of a step: the fake device refuses the step for it."""

from collections.abc import Sequence, Set

from kernel.state_image import StateImage
from kernel.step import CopyOf, StepRow
from ownership import Place

__all__ = ["PlanFault", "check_sources", "check_targets"]


class PlanFault(Exception):
    """The step's plan can't be right: two writers, a reader of what is written, out of bounds."""


def check_sources(fresh: Sequence[StepRow], slots: Set[object], pages: Set[int]) -> None:
    """Refuse a copy from a slot or a page of the device that a row of the step writes."""
    for row in fresh:
        initial, tail = row.initial, row.tail_copy
        if isinstance(initial, CopyOf) and initial.place is Place.DEVICE and initial.slot in slots:
            raise PlanFault(f"slot {initial.slot} is copied by one row, written by another")
        if tail is not None and tail.place is Place.DEVICE and tail.source in pages:
            raise PlanFault("the source of a tail copy is written by a row")
        for copy in row.page_copies:
            if copy.place is Place.DEVICE and copy.source in pages:
                raise PlanFault("the source of a page copy is written by a row")


def check_targets(fresh: Sequence[StepRow]) -> None:
    """Refuse a copy into a page that isn't the row's, or that something else goes into as well."""
    for row in fresh:
        if not row.page_copies:
            continue
        targets = {copy.target for copy in row.page_copies}
        if len(targets) != len(row.page_copies):
            raise PlanFault("two pages are copied into one")
        if row.tail_copy is not None and row.tail_copy.target in targets:
            raise PlanFault("the tail is copied twice")
        if not targets.issubset(row.pages):
            raise PlanFault("a page is copied into one that is not in the row's page table")
        if isinstance(row.initial, StateImage):
            raise PlanFault("a row loads an image and copies pages as well")
