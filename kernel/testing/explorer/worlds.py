"""The worlds that prove this kernel: each small, together all that can meet.

The product of everything with everything is far out of reach. So each world has a budget of moves
and faults, and there is one for each that matters, on one slot and on two.
"""

from collections.abc import Mapping, Sequence

import attrs

from kernel.config import EngineConfig, SchedulingPolicy
from kernel.testing.explorer.world import Conversation, Fault, Interrupt, MoveKind, Turn, World

__all__ = ["CI", "LARGE", "WORLDS"]

_A1 = Conversation("a", (Turn((1, 2)),))
_A2 = Conversation("a", (Turn((1, 2)), Turn((3,))))
_B1 = Conversation("b", (Turn((1, 2)),))
_B2 = Conversation("b", (Turn((1, 2)), Turn((3,))))
_ONE_SHOT = Conversation("o", (Turn((5,)),), is_one_shot=True)

_ALL_MOVES: tuple[MoveKind, ...] = ("cancel", "interrupt", "close", "shutdown")
_ALL_FAULTS: tuple[Fault, ...] = ("step fails", "device lost", "overdue", "kill", "crash")
_KEEPS = (Interrupt(), Interrupt(0))


def _engine(slots: int, policy: SchedulingPolicy = "fcfs") -> EngineConfig:
    """Two rows and two tokens a step, so that a prompt of two beside another is cut in chunks."""
    return EngineConfig(
        max_num_seqs=2, num_slots=slots, max_num_batched_tokens=2, scheduling_policy=policy
    )


def _paged(pages: int, slots: int = 2) -> EngineConfig:
    return EngineConfig(
        max_num_seqs=2, num_slots=slots, num_pages=pages, page_size=2, max_num_batched_tokens=2
    )


def _on_both(
    name: str,
    about: str,
    conversations: Sequence[Conversation],
    *,
    moves: tuple[MoveKind, ...] = (),
    faults: tuple[Fault, ...] = (),
    max_moves: int = 1,
    max_faults: int = 1,
    expects: Mapping[int, tuple[str, ...]] | None = None,
    same: tuple[str, ...] = (),
) -> list[World]:
    """One world on two slots, and one on one."""
    return [
        World(
            name=f"{name}-{slots}",
            about=f"{about}, on {slots} slot{'s' * (slots > 1)}",
            conversations=tuple(conversations),
            config=_engine(slots),
            moves=moves,
            max_moves=max_moves,
            interrupts=_KEEPS,
            faults=faults,
            max_faults=max_faults,
            expects=(expects or {}).get(slots, ()),
            same=same,
        )
        for slots in (2, 1)
    ]


_PREEMPTING = tuple(
    Conversation(name, (Turn((1, 2), max_tokens=2, priority=priority),))
    for name, priority in (("a", 0), ("b", -5))
)

_FORKS = (
    _A1,
    Conversation("c", (Turn((4,)),), fork_of="a"),
)

_DEADLINES = (
    Conversation(
        "a",
        (Turn((1, 2), timeout_s=5.0), Turn((3,), overlaps=True, queue_timeout_s=3.0)),
        idle_timeout_s=4.0,
    ),
)

_PAGE_TURNS = (
    Conversation("a", (Turn((1, 2, 3)), Turn((4,), max_tokens=3))),
    Conversation("b", (Turn((1, 2, 3), max_tokens=3),)),
)

_INTERRUPTED = (Conversation("a", (Turn((1, 2), max_tokens=3), Turn((3,), max_tokens=1))),)

_SMALL: list[World] = [
    *_on_both(
        "pair",
        "two sessions of two turns",
        (_A2, _B2),
        same=("a", "b"),
        expects={2: ("a base drains", "checkpoint dropped"), 1: ("state given up",)},
    ),
    *_on_both(
        "one-shot",
        "a session of two turns and a one-shot request",
        (_A2, _ONE_SHOT),
        expects={
            2: ("refused first turn", "refused later turn"),
            1: ("refused first turn", "refused later turn", "state given up"),
        },
    ),
    *_on_both(
        "moves",
        "two sessions of one turn; one cancel, interrupt, close or shutdown",
        (_A1, _B1),
        moves=_ALL_MOVES,
        same=("a", "b"),
        expects={2: ("cancel in flight", "close in flight", "interrupt below a chunk")},
    ),
    *_on_both(
        "faults",
        "two sessions of one turn; one fault of any kind",
        (_A1, _B1),
        faults=_ALL_FAULTS,
        same=("a", "b"),
        expects={
            2: (
                "kill between two posts",
                "quarantine and late completion",
                "death before a handler's first post",
                "death after a handler's first post",
            )
        },
    ),
    World(
        name="move-and-fault",
        about="a session of one turn; one move and one fault",
        conversations=(_A1,),
        config=_engine(1),
        moves=_ALL_MOVES,
        interrupts=_KEEPS,
        faults=_ALL_FAULTS,
    ),
    World(
        name="interrupts",
        about="a session of three tokens a turn, interrupted twice at any keep",
        conversations=_INTERRUPTED,
        config=_engine(2),
        moves=("interrupt",),
        max_moves=2,
        interrupts=(Interrupt(), Interrupt(0), Interrupt(1)),
        expects=("interrupt above a chunk", "late interrupt cuts"),
    ),
    World(
        name="preemption",
        about="an urgent turn takes the one slot of a running one; one move",
        conversations=_PREEMPTING,
        config=_engine(1, "priority"),
        moves=("cancel", "interrupt", "close"),
        expects=("preempted", "preempt then cancel"),
    ),
    World(
        name="forks",
        about="a session, and a fork of it at any moment; one move",
        conversations=_FORKS,
        config=_engine(2),
        moves=("cancel", "close"),
        expects=("fork of a state", "fork while the parent's turn runs"),
    ),
    World(
        name="forks-on-one-slot",
        about="a session, a one-shot that takes its state, and a fork of it",
        conversations=(*_FORKS, _ONE_SHOT),
        config=_engine(1),
        expects=("fork of a parent that gave up",),
    ),
    World(
        name="deadlines",
        about="turns with deadlines, one that waits in its session, and an idle timeout",
        conversations=_DEADLINES,
        config=_engine(1),
        moves=("alarm",),
        expects=("alarm: TurnAlarm", "alarm: ForgetIdle"),
    ),
    World(
        name="pages",
        about="two sessions on slots and pages: tails, runs, growth, preemption by growth",
        conversations=_PAGE_TURNS,
        model="fake",
        config=_paged(5),
        expects=("a run is shared", "a tail is copied", "preempted by growth"),
    ),
]


_BIG: list[World] = [
    *_on_both(
        "three",
        "two sessions of two turns and a one-shot request",
        (_A2, _B2, _ONE_SHOT),
        same=("a", "b"),
    ),
    *_on_both(
        "three-moves",
        "two sessions and a one-shot request; one move",
        (_A1, _B1, _ONE_SHOT),
        moves=_ALL_MOVES,
        same=("a", "b"),
    ),
    *_on_both(
        "three-faults",
        "two sessions and a one-shot request; one fault",
        (_A1, _B1, _ONE_SHOT),
        faults=_ALL_FAULTS,
        same=("a", "b"),
    ),
    *_on_both(
        "pair-moves",
        "two sessions of two turns; one move",
        (_A2, _B2),
        moves=_ALL_MOVES,
        same=("a", "b"),
    ),
    *_on_both(
        "pair-faults",
        "two sessions of two turns; one fault",
        (_A2, _B2),
        faults=_ALL_FAULTS,
        same=("a", "b"),
    ),
    *_on_both(
        "two-moves",
        "two sessions of one turn; two moves",
        (_A1, _B1),
        moves=_ALL_MOVES,
        max_moves=2,
        same=("a", "b"),
    ),
    *_on_both(
        "two-faults",
        "two sessions of one turn; two faults",
        (_A1, _B1),
        faults=_ALL_FAULTS,
        max_faults=2,
        same=("a", "b"),
    ),
    *_on_both(
        "move-and-fault-of-two",
        "two sessions of one turn; one move and one fault",
        (_A1, _B1),
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
        moves=tuple(dict.fromkeys((*world.moves, *_ALL_MOVES))),
        faults=_ALL_FAULTS,
        max_moves=max(1, world.max_moves),
        interrupts=_KEEPS,
        expects=(),
        max_together=1,
    )


_NAMED = {world.name: world for world in _SMALL}

CI: tuple[World, ...] = tuple(_SMALL)
"""Finish together within a minute on one core."""

LARGE: tuple[World, ...] = (
    *_SMALL,
    *_BIG,
    *(
        _with_all(f"{name}-and-all", _NAMED[name])
        for name in ("pages", "forks", "preemption", "deadlines", "one-shot-1", "one-shot-2")
    ),
)
"""All of them, with what takes minutes."""

WORLDS: dict[str, World] = {world.name: world for world in LARGE}
