"""What a ledger should say, in a few lines: claims that have a slot and a set of pages.

There are no counts here, no runs, no pins and no free lists. A page is an object; a claim that
starts from a base has the base's full pages and new ones after them. What is used is the union over
all claims that are still needed, and what is free is the rest.
"""

import sys
from collections import Counter
from typing import Any, Literal

import attrs

from ownership import BatchOwned, CacheOwned, CustodianId, Lease, Owns, SessionOwned

__all__ = ["Claim", "Launched", "Model"]


@attrs.define(eq=False)
class Claim:
    """One handle as the model knows it: who holds it, how far its state is, what it has."""

    handle: Owns[BatchOwned | SessionOwned | CacheOwned]
    kind: Literal["batch", "session", "cache"]
    holder: CustodianId
    content: Literal["zeros", "copy of base", "valid", "undefined"] = "zeros"
    position: int = 0
    pages: list[object] = attrs.field(factory=list[object])
    origin: "Claim | None" = None
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

    slots: int
    pages: int
    size: int
    claims: list[Claim] = attrs.field(factory=list[Claim])

    def pages_for(self, positions: int) -> int:
        return -(-positions // self.size) if self.pages else 0

    def room(self, claim: Claim) -> int:
        """Tokens that a claim can still absorb."""
        return len(claim.pages) * self.size - claim.position if self.pages else sys.maxsize

    def copying(self, base: Claim) -> list[Claim]:
        """Claims that have yet to copy out of this one."""
        return [
            claim
            for claim in self.claims
            if claim.origin is base and claim.content == "copy of base" and not claim.is_over
        ]

    def needed(self) -> list[Claim]:
        return [claim for claim in self.claims if not claim.is_over or self.copying(claim)]

    @property
    def free_slots(self) -> int:
        return self.slots - len(self.needed())

    @property
    def free_pages(self) -> int:
        return self.pages - len({page for claim in self.needed() for page in claim.pages})

    def column(self, claim: Claim) -> str:
        """In which column of the audit a needed claim stands."""
        last = self.copying(claim) if claim.is_over else [claim]
        if all(one.launch is not None and one.launch.hangs for one in last):
            return "quarantined"
        return "draining" if claim.is_over else claim.kind

    def columns(self) -> Counter[str]:
        self.claims = self.needed()
        return Counter(map(self.column, self.claims))
