"""Larger worlds: more callers, two things at once, every fault beside every special case."""

import attrs

from kernel.testing.explorer.kept_worlds import KEPT_WORLDS
from kernel.testing.explorer.world import World
from kernel.testing.explorer.worlds import (
    A1,
    A2,
    ALL_FAULTS,
    ALL_MOVES,
    B1,
    B2,
    CI,
    KEEPS,
    ONE_SHOT,
    on_both,
)

__all__ = ["LARGE", "WORLDS"]

_BOUND = 30_000

_BIG: list[World] = [
    *on_both(
        "three",
        "two sessions of two turns and a one-shot request",
        (A2, B2, ONE_SHOT),
        same=("a", "b"),
    ),
    *on_both(
        "three-moves",
        "two sessions and a one-shot request; one move",
        (A1, B1, ONE_SHOT),
        moves=ALL_MOVES,
        same=("a", "b"),
    ),
    *on_both(
        "three-faults",
        "two sessions and a one-shot request; one fault",
        (A1, B1, ONE_SHOT),
        faults=ALL_FAULTS,
        same=("a", "b"),
    ),
    *on_both(
        "pair-moves",
        "two sessions of two turns; one move",
        (A2, B2),
        moves=ALL_MOVES,
        same=("a", "b"),
    ),
    *on_both(
        "pair-faults",
        "two sessions of two turns; one fault",
        (A2, B2),
        faults=ALL_FAULTS,
        same=("a", "b"),
    ),
    *on_both(
        "two-moves",
        "two sessions of one turn; two moves",
        (A1, B1),
        moves=ALL_MOVES,
        max_moves=2,
        same=("a", "b"),
    ),
    *on_both(
        "two-faults",
        "two sessions of one turn; two faults",
        (A1, B1),
        faults=ALL_FAULTS,
        max_faults=2,
        same=("a", "b"),
    ),
    *on_both(
        "move-and-fault-of-two",
        "two sessions of one turn; one move and one fault",
        (A1, B1),
        moves=("cancel", "interrupt", "close"),
        faults=("step fails", "overdue", "crash"),
        same=("a", "b"),
    ),
]


def _with_all(name: str, world: World) -> World:
    """The same world with any one move, or any one fault."""
    return attrs.evolve(
        world,
        name=name,
        about=f"{world.about}; any one move or fault",
        moves=tuple(dict.fromkeys((*world.moves, *ALL_MOVES))),
        faults=ALL_FAULTS,
        max_moves=max(1, world.max_moves),
        interrupts=KEEPS,
        expects=(),
        max_together=1,
        max_states=_BOUND,
    )


_NAMED = {world.name: world for world in CI}

LARGE: tuple[World, ...] = (
    *CI,
    *(attrs.evolve(world, max_states=_BOUND) for world in KEPT_WORLDS),
    *(
        _with_all(f"{name}-and-all", _NAMED[name])
        for name in (
            *("pages", "forks", "preemption", "deadlines", "one-shot-1", "one-shot-2"),
            *("parking", "parking-late", "parking-pages", "preemption-to-host"),
        )
    ),
    *(attrs.evolve(world, max_states=_BOUND) for world in _BIG),
)
"""All of them, with what takes minutes.

The larger ones are walked up to a bound of states: breadth first, so up to a length of traces.
"""

WORLDS: dict[str, World] = {world.name: world for world in LARGE}
