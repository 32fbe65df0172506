"""Where a turn leaves states for others: a pure function of its prompt and of what is cached.

Each position is one more row that has to end there, one more slot, and one more copy, so few are
worth it: where others are likely to begin alike.
"""

import attrs

__all__ = ["CachePolicy", "Prospect"]


@attrs.frozen
class Prospect:
    """A turn that is about to be computed."""

    start: int
    """Position that it starts from."""
    end: int
    """The last position at which it has something left to compute."""
    prompt_end: int | None
    """The last position of its prompt at which something of that is left; ``None``: nobody else
    begins like it, so only what its caller has named is worth a state."""
    branch: int | None = None
    """Where it parts from what is cached; ``None``: nowhere."""
    missed: tuple[int, ...] = ()
    """Where states stood that would have served it."""
    named: tuple[int, ...] = ()
    """Positions that its caller has named."""


@attrs.frozen
class CachePolicy:
    """Keeps states where prompts part, at their ends, at multiples of a block, and where told."""

    block: int
    """Positions between two states of one long prompt."""
    least: int
    """Tokens that a state must spare over the one before it, unless it is named."""

    def positions(self, turn: Prospect) -> list[int]:
        """Positions at which the turn's state is wanted, the last one first.

        Where two are too close the first in this order stays: named, branch, missed, end of the
        prompt, block. A state behind the branch would hold what only this prompt says.
        """
        start, end = turn.start, turn.end
        chosen = [position for position in turn.named if start < position <= end]
        for position in (turn.branch, *turn.missed, turn.prompt_end):
            if (
                position is not None
                and position - start >= self.least
                and position <= end
                and self._is_apart(position, chosen)
            ):
                chosen.append(position)
        kept = [
            position
            for position in self._blocks(turn)
            if position - start >= self.least and self._is_apart(position, chosen)
        ]
        return sorted({*chosen, *kept}, reverse=True)

    def _blocks(self, turn: Prospect) -> range:
        """Multiples of a block in the part of a prompt that is computed."""
        if turn.prompt_end is None:
            return range(0)
        first = (turn.start // self.block + 1) * self.block
        return range(first, min(turn.end, turn.prompt_end) + 1, self.block)

    def _is_apart(self, position: int, others: list[int]) -> bool:
        return all(abs(other - position) >= self.least for other in others)
