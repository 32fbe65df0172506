"""The prefix cache: states that no session owns, each valid at one position of one sequence.

A structure that the scheduler calls, not an actor: looking up, pinning and reserving are one
synchronous step, so nothing can be evicted in between. A state gets here by ``admit`` alone, which
the ledger refuses to a claim that no step of its own has written; it never changes; it leaves by
``evict``, and drains if copies out of it are under way.

The tree knows where states stand; ``states`` owns them, in the order of their last use. Using a
state is using all those that its sequence begins with, the shallowest as the last one: what more
sequences share stays longer.
"""

from collections.abc import Iterator
from typing import final

import attrs

from kernel.flight import Counters
from kernel.outputs import CacheMiss
from kernel.prefixes.cache_bytes import CacheBooks, CacheSizes
from kernel.prefixes.tree import Node, PrefixTree, Walk
from ownership import (
    ZEROS,
    Base,
    BaseName,
    BatchOwned,
    CacheOwned,
    CachePort,
    Consume,
    LedgerView,
    Owns,
    ReleaseSimulation,
)

__all__ = ["Match", "PrefixCache"]

_GHOSTS = 64
"""So many evicted states are remembered, so that a miss can say what it is for."""


@attrs.frozen
class Match:
    """What the cache has for a sequence."""

    base: Base
    """The state to start from; ``ZEROS``: none."""
    position: int
    miss: CacheMiss | None
    """Why there is none."""
    branch: int | None
    """Where the sequence parts from what is cached, beyond ``position``; ``None``: nowhere."""
    missed: tuple[int, ...]
    """Where evicted states would have served it better."""


@final
class PrefixCache:
    """The states of one engine's cache.

    Args:
        port: of the scheduler.
        view: of the same ledger.
        sizes: what a state takes, and what all of them may.
        counters: where publications and evictions are counted.
        least: sharing fewer tokens than that is no beginning worth a word.
    """

    states: Owns[dict[int, CacheOwned]]

    def __init__(
        self,
        port: CachePort,
        view: LedgerView,
        sizes: CacheSizes,
        counters: Counters,
        *,
        least: int,
    ) -> None:
        self.states = {}
        self.books = CacheBooks(sizes)
        self._port = port
        self._view = view
        self._counters = counters
        self._least = least
        self.tree = PrefixTree()
        self._nodes: dict[int, tuple[str, Node]] = {}
        self._ghosts: dict[Node, str] = {}
        self._is_closed = False

    # Looking up

    def match(self, salt: str, key: bytes, limit: int) -> Match:
        """Find the last state that a sequence begins with, and use it.

        Args:
            salt: nothing that stands under another salt is found.
            key: the known tokens.
            limit: the last position that leaves a token to compute.

        O(tokens shared), compared as bytes, and O(states on the way).
        """
        walk = self.tree.walk(salt, key, limit)
        self._use(walk)
        base: Base = ZEROS
        position = 0
        last = walk.states[-1] if walk.states else None
        if last is not None and last.state is not None:
            base, position = self.books[last.state].name, last.position
        parts = position < walk.shared < limit
        return Match(
            base,
            position,
            _why(walk, limit, self._least) if base is ZEROS else None,
            walk.shared if parts else None,
            tuple(ghost.position for ghost in walk.ghosts if ghost.position > position),
        )

    def reach(self, salt: str, key: bytes) -> int:
        """The tokens of a sequence that the last state on its way has absorbed. Uses that state.

        0 where none stands: to start from nothing is to have absorbed nothing.
        """
        walk = self.tree.walk(salt, key, len(key))
        self._use(walk)
        return walk.states[-1].position if walk.states else 0

    def _use(self, walk: Walk) -> None:
        for node in reversed(walk.states):
            if node.state is not None:
                self.states[node.state] = self.states.pop(node.state)

    # Publishing

    def fit_budget(self, position: int, shares: Base, *, may_evict: bool = True) -> bool:
        """Evict what was used longest ago until a state fits into the budget; False: it can't.

        Nothing is evicted in vain.

        Args:
            position: of the state.
            shares: the cached state that it started from; ``ZEROS``: none.
            may_evict: whether others may go for it.
        """
        books = self.books
        if self._is_closed or books.bytes_of(position, shares) > books.sizes.budget:
            return False
        if books.fits(books.bytes_of(position, shares)):
            return True
        if not may_evict:
            return False
        may_go = [name for name in self.evictable() if name != shares]
        stay = self.states.keys() - {name.version for name in may_go}
        if books.bytes_left(stay) + books.bytes_of(position, shares) > books.sizes.budget:
            return False
        for name in may_go:
            if books.fits(books.bytes_of(position, shares)):
                break
            self.evict(name)
        return True

    def admit(self, claim: Consume[BatchOwned], salt: str, key: bytes, shares: Base) -> BaseName:
        """Keep a claim that has landed at the end of ``key``; returns the name of the state.

        Raises:
            LedgerError: no step of the claim's own has landed; nothing has changed.
        """
        state = self._port.admit(claim)
        name = self._view.name_of(state)
        number = name.version
        position = self._view.position(state)
        self.states[number] = state
        node = self.tree.place(salt, key)
        before, node.state, node.is_ghost = node.state, number, False
        self._ghosts.pop(node, None)
        self._nodes[number] = salt, node
        self.books.add(name, position, shares)
        if before is not None:
            self._drop(before)
        self._counters.cache_published += 1
        return name

    # Evicting

    def evictable(self) -> Iterator[BaseName]:
        """States that nobody copies out of, the one used longest ago first."""
        for number in self.states:
            name = self.books[number].name
            found = self._view.find_base(name)
            if found is not None and not found.pinned:
                yield name

    def plan(
        self, gain: ReleaseSimulation, slots: int, pages: int, *, spare: Base
    ) -> list[BaseName]:
        """What to evict so that ``gain`` reaches so many slots and pages; all, if that won't do.

        Args:
            spare: the state that stays; ``ZEROS``, or one that is not cached: none has to.
        """
        chosen: list[BaseName] = []
        for name in self.evictable():
            if gain.slots >= slots and gain.pages >= pages:
                break
            if name != spare:
                gain.base(name)
                chosen.append(name)
        return chosen

    def evict(self, name: BaseName) -> None:
        """Give a state back; it drains if copies out of it are under way. Twice is once."""
        if name.version not in self.states:
            return
        salt, node = self._nodes[name.version]
        self._drop(name.version)
        node.state, node.is_ghost = None, True
        self._ghosts[node] = salt
        if len(self._ghosts) > _GHOSTS:
            self._forget(next(iter(self._ghosts)))
        self._counters.cache_evictions += 1

    def clear(self, *, forever: bool = False) -> None:
        """Evict everything, and forget that it was there; what is pinned drains.

        Args:
            forever: take no more.
        """
        self._is_closed = self._is_closed or forever
        for number in list(self.states):
            self.evict(self.books[number].name)
        for node in list(self._ghosts):
            self._forget(node)

    def _drop(self, number: int) -> None:
        self._port.evict(self.states.pop(number))
        self.books.remove(number)
        del self._nodes[number]

    def _forget(self, node: Node) -> None:
        salt = self._ghosts.pop(node)
        node.is_ghost = False
        self.tree.prune(salt, node)


def _why(walk: Walk, limit: int, least: int) -> CacheMiss:
    if limit < least:
        return "short"
    if walk.ghosts:
        return "evicted"
    return "parted" if walk.shared >= least else "cold"
