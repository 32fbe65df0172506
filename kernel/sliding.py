"""Which positions a session that slides keeps in its attention layers: a function of the position.

A sequence without an end needs memory that has one. The recurrent state has a fixed size anyway;
of keys and values the oldest pages are dropped, a stretch (*hop*) at a time, whenever as many are
kept as the window is long. Whatever is computed at a position sees the same keys, however often the
turn was preempted, restored or computed again from its log, because the schedule says so and not
the history of the claim.

After the recipe of StreamingLLM (https://arxiv.org/abs/2309.17453) without its sinks: a hybrid
model carries what came before in its recurrent state.
"""

import attrs

from kernel.step import DeviceLimits, ModelSpec

__all__ = ["SlidingWindow", "why_not"]


@attrs.frozen
class SlidingWindow:
    """At most ``length`` positions are kept; then ``hop`` of them are dropped. Both whole pages."""

    length: int
    hop: int
    page_size: int

    @classmethod
    def fitting(cls, positions: int, page_size: int) -> "SlidingWindow | None":
        """The window of a pool or a model of so many positions; ``None``: less than two pages."""
        pages = positions // page_size
        if pages < 2:
            return None
        return cls(pages * page_size, (pages // 2) * page_size, page_size)

    def first_page(self, position: int) -> int:
        """Pages that are dropped before the token at ``position`` is computed."""
        if position < self.length:
            return 0
        return ((position - self.length) // self.hop + 1) * self.hop // self.page_size

    def end(self, position: int) -> int:
        """The next position at which pages are dropped, above ``position``."""
        if position < self.length:
            return self.length
        return self.length + ((position - self.length) // self.hop + 1) * self.hop


def why_not(
    model: ModelSpec, limits: DeviceLimits, longest: int, window: SlidingWindow | None
) -> str:
    """Why no session of an engine can slide; empty: they can.

    Args:
        model: that computes.
        limits: of its pools.
        longest: positions of one sequence, at most.
        window: that fits into both.
    """
    if not model.slides:
        return f"the attention layers of {model.name} need every position; use refuse"
    if not limits.num_pages:
        return ""
    if window is None:
        return (
            f"a window is two pages or more, of {limits.page_size} positions each; num_pages must"
            f" hold two windows and is {limits.num_pages}, max_model_len one and is {longest}"
        )
    if limits.num_slots == 1:
        return "a session slides from one slot into another; raise num_slots to 2"
    return ""
