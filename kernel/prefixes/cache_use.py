"""What one turn and the prefix cache have to do with each other. Values only."""

from collections.abc import Callable, Sequence

import attrs

from kernel.prefixes.tree import TOKEN_BYTES, key_of
from ownership import ZEROS, Base

__all__ = ["CacheUse"]


@attrs.define(eq=False)
class CacheUse:
    """A turn's side of the prefix cache."""

    salt: str = ""
    """It finds, and is found by, turns of the same salt only."""
    named: tuple[int, ...] = ()
    """Positions that its caller wants kept."""
    keeps_end: bool = False
    """Nobody commits its last state, so the cache may have it."""
    cuts: list[int] = attrs.field(init=False, factory=list[int])
    """Positions at which a row has to end because a state is wanted there; the next one last."""
    is_planned: bool = attrs.field(init=False, default=False)
    """Whether ``cuts`` are those of the phase that runs."""
    shares: Base = attrs.field(init=False, default=ZEROS)
    """The cached state whose pages its claim shares; ``ZEROS``: none."""
    _key: bytes = attrs.field(init=False, default=b"")

    def key(self, end: int, tokens: Callable[[int, int], Sequence[int]]) -> bytes:
        """The turn's first ``end`` tokens, as the tree compares them.

        Known tokens stay as they are, so each is converted once.
        """
        have = len(self._key) // TOKEN_BYTES
        if have < end:
            self._key += key_of(tokens(have, end))
        return self._key[: end * TOKEN_BYTES]

    def row_end(self, position: int, target: int) -> int:
        """How far a row from ``position`` may go on its way to ``target``."""
        cuts = self.cuts
        while cuts and cuts[-1] <= position:
            cuts.pop()
        return min(cuts[-1], target) if cuts else target
