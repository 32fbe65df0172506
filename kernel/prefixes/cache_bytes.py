"""What cached states take: each its own slot and pages, and pages that several share once."""

from collections.abc import Container
from typing import Self

import attrs

from kernel.step import DeviceLimits, ModelSpec
from ownership import Base, BaseName

__all__ = ["CacheBooks", "CacheSizes", "KeptState"]


@attrs.frozen
class CacheSizes:
    """What a state takes, and what all of them may."""

    slot_bytes: int
    page_bytes: int
    page_size: int
    budget: int
    """Bytes of all states together."""

    @classmethod
    def of(cls, model: ModelSpec, limits: DeviceLimits, budget: int | None) -> Self:
        """For a model in its pools; without a budget, half of what they hold."""
        slot_bytes = model.slot_bytes if limits.num_slots else 0
        page_bytes = model.page_token_bytes * limits.page_size if limits.num_pages else 0
        held = limits.num_slots * slot_bytes + limits.num_pages * page_bytes
        budget = held // 2 if budget is None else budget
        return cls(slot_bytes, page_bytes, limits.page_size, budget)

    def alone(self, position: int, shared: int) -> int:
        """Bytes of a state beyond the full pages that it shares with one at ``shared``."""
        pages = -(-position // self.page_size) - shared // self.page_size
        return self.slot_bytes + pages * self.page_bytes


@attrs.define(eq=False)
class KeptState:
    """Facts of a state in the cache."""

    name: BaseName
    position: int
    bytes: int
    shares: "KeptState | None"
    """Whose full pages it shares."""
    sharers: "set[KeptState]" = attrs.field(factory=set["KeptState"])


@attrs.define(eq=False)
class CacheBooks:
    """Adds up the bytes of all states.

    A state that starts from another shares its full pages, which then count for that one; when it
    is evicted they count for those that still share them. Where several do they count for each, so
    the sum is never less than what is taken.
    """

    sizes: CacheSizes
    bytes: int = 0
    _kept: dict[int, KeptState] = attrs.field(init=False, factory=dict[int, KeptState])

    def __getitem__(self, state: int) -> KeptState:
        return self._kept[state]

    def fits(self, more: int) -> bool:
        """Whether so many bytes more are within the budget."""
        return self.bytes + more <= self.sizes.budget

    def bytes_of(self, position: int, shares: Base) -> int:
        """Bytes that a state would add.

        Args:
            position: of the state.
            shares: the state that it started from; ``ZEROS``, or one that is gone: none.
        """
        source = self._source(shares)
        return self.sizes.alone(position, 0 if source is None else source.position)

    def bytes_left(self, stay: Container[int]) -> int:
        """Bytes of these states, were all others gone. O(states)."""
        return sum(
            self.sizes.alone(kept.position, _shared(kept, stay))
            for number, kept in self._kept.items()
            if number in stay
        )

    def _source(self, shares: Base) -> KeptState | None:
        return self._kept.get(shares.version) if isinstance(shares, BaseName) else None

    def add(self, name: BaseName, position: int, shares: Base) -> None:
        """Count a state."""
        size = self.bytes_of(position, shares)
        source = self._source(shares)
        kept = self._kept[name.version] = KeptState(name, position, size, source)
        if source is not None:
            source.sharers.add(kept)
        self.bytes += size

    def remove(self, state: int) -> None:
        """Count a state no longer; what it shared counts for those that go on sharing it."""
        kept = self._kept.pop(state)
        source = kept.shares
        if source is not None:
            source.sharers.discard(kept)
            source.sharers |= kept.sharers
        shared = 0 if source is None else source.position
        self.bytes -= kept.bytes
        for sharer in kept.sharers:
            sharer.shares = source
            self.bytes -= sharer.bytes
            sharer.bytes = self.sizes.alone(sharer.position, shared)
            self.bytes += sharer.bytes


def _shared(kept: KeptState, stay: Container[int]) -> int:
    """Position of the nearest state that stays, of those whose full pages a state shares."""
    source = kept.shares
    while source is not None and source.name.version not in stay:
        source = source.shares
    return 0 if source is None else source.position
