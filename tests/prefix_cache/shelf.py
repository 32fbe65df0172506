"""A prefix cache over a ledger, put together without a scheduler."""

from collections.abc import Sequence

from kernel.flight import Counters
from kernel.ids import SCHEDULER
from kernel.prefixes.cache import Match, PrefixCache
from kernel.prefixes.cache_bytes import CacheSizes
from kernel.prefixes.tree import key_of
from ownership import ZEROS, Absorbed, Base, BaseName, BatchOwned, Capacity, Ledger, Need, Refused

__all__ = ["PAGE", "Shelf"]

PAGE = 4


class Shelf:
    """Slots of 100 bytes, pages of 4 tokens and 10 bytes."""

    def __init__(self, *, slots: int = 20, pages: int = 100, budget: int = 10_000) -> None:
        self.ledger = Ledger(Capacity(slots, pages, PAGE))
        self.view = self.ledger.view
        self.batch = self.ledger.batch_port(SCHEDULER)
        self.counters = Counters()
        sizes = CacheSizes(100 if slots else 0, 10 if pages else 0, PAGE, budget)
        port = self.ledger.cache_port(SCHEDULER)
        self.cache = PrefixCache(port, self.view, sizes, self.counters, least=PAGE)

    def reserve(self, positions: int, base: Base = ZEROS) -> BatchOwned:
        claim = self.batch.reserve(Need(positions), base, turn="turn")
        assert not isinstance(claim, Refused), claim
        return claim

    def landed(self, positions: int, base: Base = ZEROS) -> BatchOwned:
        """A working claim that has absorbed so many positions in one step."""
        claim = self.reserve(positions, base)
        start = self.view.position(claim)
        (claim,) = self.batch.land(
            self.batch.launch([claim], step=1), Absorbed((positions - start,))
        )
        return claim

    def keep(self, tokens: Sequence[int], *, salt: str = "", shares: Base = ZEROS) -> BaseName:
        """Keep a state at the end of some tokens; it starts from state ``shares``, if given."""
        return self.cache.admit(self.landed(len(tokens), shares), salt, key_of(tokens), shares)

    def match(self, tokens: Sequence[int], limit: int | None = None, salt: str = "") -> Match:
        return self.cache.match(salt, key_of(tokens), len(tokens) if limit is None else limit)

    @property
    def order(self) -> list[BaseName]:
        """Names of the states, the one that goes next first."""
        return [self.cache.books[number].name for number in self.cache.states]

    def assert_conserved(self) -> None:
        audit = self.ledger.audit()
        assert audit.conserved, audit.problems
        assert audit.cache == len(self.cache.states)
