"""Frozen pages: chains of runs, shared by count, so that sharing a history is one increment.

A run is a node: pages that are full and never written again, and the run before them. Its count
is the number of claims whose tip it is plus the number of runs whose parent it is. At zero its
pages go back, and its parent loses one.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import cast

import attrs

from ownership.ids import PageIndex, RunId

__all__ = ["Run", "RunTable"]


@attrs.define(eq=False, weakref_slot=False)
class Run:
    """Some frozen pages after ``parent``; alive while its count is above zero."""

    number: RunId
    parent: "Run | None"
    pages: tuple[PageIndex, ...]
    count: int
    length: int
    """Pages of the whole chain, this run's included."""
    twin: "Run | None" = None
    """The run in the other place that holds the same, bit for bit, as long as both are alive. So do
    the runs before them, though these need not be twins: of two copies of a run, one is."""

    def chain(self) -> "Iterator[Run]":
        """This run and those before it, the newest first."""
        run: Run | None = self
        while run is not None:
            yield run
            run = run.parent

    def table(self) -> list[PageIndex]:
        """All pages of the chain, in order of position."""
        return [page for run in reversed(list(self.chain())) for page in run.pages]


@attrs.define(eq=False)
class RunTable:
    """All runs of a ledger."""

    alive: dict[RunId, Run] = attrs.field(init=False, factory=dict[RunId, Run])
    _numbers: Iterator[RunId] = attrs.field(
        init=False, factory=lambda: cast("Iterator[RunId]", itertools.count())
    )

    def freeze(self, parent: Run | None, pages: tuple[PageIndex, ...]) -> Run:
        """Make a run of pages that a claim has just filled; the claim's tip moves on to it.

        The claim gives up its count of ``parent`` and the new run takes one, so that the parent's
        count stays as it is.
        """
        before = 0 if parent is None else parent.length
        run = Run(next(self._numbers), parent, pages, 1, before + len(pages))
        self.alive[run.number] = run
        return run

    def drop(self, tip: Run, freed: list[PageIndex]) -> Sequence[RunId]:
        """Take one from the count of ``tip``; the pages of runs that end are added to ``freed``.

        Returns the runs that ended, the newest first. O(number of them).
        """
        ended: list[RunId] = []
        run: Run | None = tip
        while run is not None:
            run.count -= 1
            if run.count:
                break
            del self.alive[run.number]
            if run.twin is not None:
                run.twin.twin = None
                run.twin = None
            ended.append(run.number)
            freed.extend(run.pages)
            run = run.parent
        return ended
