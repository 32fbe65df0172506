"""The step that the device has, and what the scheduler counts. Values only."""

import attrs

from kernel.turn import OpenTurn
from ownership import Lease

__all__ = ["Counters", "Flight"]


@attrs.define(eq=False)
class Counters:
    """What the scheduler has done; read by ``Engine.stats``, outlives a scheduler.

    Who owns what is counted by the ledger alone.
    """

    steps: int = 0
    rows: int = 0
    absorbed_tokens: int = 0
    """Tokens put through the model, recomputed ones included."""
    generated_tokens: int = 0
    steps_beside_a_copy: int = 0
    """Most steps that were launched between the launch and the landing of one transfer."""
    preemptions: int = 0
    forced_parks: int = 0
    recomputed_tokens: int = 0
    cached_tokens: int = 0
    cache_hits: int = 0
    """Turns that started from a state of the prefix cache."""
    cache_misses: int = 0
    """Turns that started from nothing although there is a prefix cache."""
    cache_published: int = 0
    cache_evictions: int = 0


@attrs.frozen
class Flight:
    """The step that the device has: whose rows, and how many tokens each absorbs."""

    lease: Lease
    step: int
    launched_at: float
    turns: tuple[OpenTurn, ...]
    absorbs: tuple[int, ...]
    advances: tuple[int, ...]
    """By how many positions each claim moves on: what it absorbs, and the image that it loads."""
    pool_incarnation: int = 0
    """Which life of the GPU pool was asked: the end of an earlier one is none of its business."""
