"""What a ledger should say, in a few lines: claims that have a slot and a set of pages.

There are no counts here, no runs, no pins and no free lists. A page is an object; a claim that
starts from a base has the base's full pages and new ones after them. In another place it has the
copies of them that are there, as far as they go. What is used is the union over all claims that are
still needed, and what is free is the rest. A name is an object too, and moves with its state.
"""

import sys
from collections import Counter
from typing import Any, Literal

import attrs

from ownership import BatchOwned, CacheOwned, CustodianId, Lease, Owns, Place, SessionOwned

__all__ = ["Claim", "Launched", "Model", "Page"]


@attrs.define(eq=False)
class Page:
    """A page of some place."""

    chain: "list[Page]" = attrs.field(factory=list["Page"])
    """Once it is frozen: the pages of its history, itself the last."""
    twin: "Page | None" = None
    """What it was copied from or to."""


@attrs.define(eq=False)
class Claim:
    """One handle as the model knows it: who holds it, how far its state is, what it has."""

    handle: Owns[BatchOwned | SessionOwned | CacheOwned]
    kind: Literal["batch", "session", "cache"]
    holder: CustodianId
    content: Literal["zeros", "copy of base", "valid", "undefined"] = "zeros"
    position: int = 0
    pages: list[Page] = attrs.field(factory=list[Page])
    place: Place = Place.DEVICE
    first_page: int = 0
    base: "Claim | None" = None
    """What it starts from; copied by its first step."""
    name: object = None
    """Of a state at rest."""
    origin: object = None
    """The name that it started from, itself or by way of other working claims."""
    is_over: bool = False
    launch: "Launched | None" = None

    @property
    def may_be_kept(self) -> bool:
        return self.content == "valid" and self.position > 0

    @property
    def batch(self) -> Any:  # A spent one is used on purpose: not followed by the move checker.
        assert isinstance(self.handle, BatchOwned)
        return self.handle

    @property
    def session(self) -> Any:
        assert isinstance(self.handle, SessionOwned)
        return self.handle

    @property
    def cache(self) -> Any:
        assert isinstance(self.handle, CacheOwned)
        return self.handle


@attrs.define(eq=False)
class Launched:
    """A step on the device."""

    lease: Lease
    claims: list[Claim]
    hangs: bool = False


@attrs.define(eq=False)
class Model:
    """Who has what."""

    slots: dict[Place, int]
    pages: dict[Place, int]
    size: int
    claims: list[Claim] = attrs.field(factory=list[Claim])

    def pages_for(self, positions: int, place: Place, first_page: int) -> int:
        if place is Place.FILE or not self.pages[Place.DEVICE]:
            return 0
        return -(-positions // self.size) - first_page

    def room(self, claim: Claim) -> int:
        """Tokens that a claim can still absorb."""
        if claim.place is Place.FILE:
            return 0
        if not self.pages[Place.DEVICE]:
            return sys.maxsize
        return (claim.first_page + len(claim.pages)) * self.size - claim.position

    def least(self, claim: Claim) -> int:
        """Tokens that a claim must absorb at once: those of the window that it is loaded with."""
        return max(claim.first_page * self.size - claim.position, 0)

    def full(self, claim: Claim) -> int:
        """Pages of a claim that are full."""
        return min(claim.position // self.size - claim.first_page, len(claim.pages))

    def shared(self, base: Claim | None, place: Place, first_page: int) -> list[Page]:
        """The pages that a claim in a place has in common with its base, or with a copy of it."""
        if base is None or place is Place.FILE or first_page != base.first_page:
            return []
        if place is base.place:
            return base.pages[: self.full(base)]
        used = self.used()
        twins = [page.twin for page in base.pages[: self.full(base)]]
        there = [twin for twin in twins if twin is not None and twin in used]
        return there[-1].chain if there else []

    def freeze(self, claim: Claim, base: Claim | None) -> None:
        """A landing freezes what is full, and what came from another place is a twin of that."""
        used = self.used()
        for index, page in enumerate(claim.pages[: self.full(claim)]):
            if page.chain:
                continue
            page.chain = claim.pages[: index + 1]
            if base is not None and claim.place is not base.place and index < self.full(base):
                source = base.pages[index]
                if claim.first_page == base.first_page and source.twin not in used:
                    source.twin, page.twin = page, source

    def copying(self, base: Claim) -> list[Claim]:
        """Claims that have yet to copy out of this one."""
        return [
            claim
            for claim in self.claims
            if claim.base is base and claim.content == "copy of base" and not claim.is_over
        ]

    def needed(self) -> list[Claim]:
        return [claim for claim in self.claims if not claim.is_over or self.copying(claim)]

    def used(self) -> set[Page | None]:
        return {page for claim in self.needed() for page in claim.pages}

    def free_slots(self, place: Place) -> int:
        return self.slots[place] - sum(claim.place is place for claim in self.needed())

    def free_pages(self, place: Place) -> int:
        needed = [claim for claim in self.needed() if claim.place is place]
        return self.pages[place] - len({page for claim in needed for page in claim.pages})

    def column(self, claim: Claim) -> str:
        """In which column of the audit a needed claim stands."""
        last = self.copying(claim) if claim.is_over else [claim]
        if all(one.launch is not None and one.launch.hangs for one in last):
            return "quarantined"
        return "draining" if claim.is_over else claim.kind

    def columns(self) -> Counter[str]:
        self.claims = self.needed()
        return Counter(map(self.column, self.claims))
