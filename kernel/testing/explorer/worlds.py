"""The worlds of every run of the suite: each small, together all that can meet.

The product of everything with everything is far out of reach. So each world has a budget of moves
and faults, and there is one for each that matters, on one slot and on two.
"""

from collections.abc import Mapping, Sequence

from kernel.config import EngineConfig, SchedulingPolicy
from kernel.testing.explorer.kept_worlds import KEPT_SMALL
from kernel.testing.explorer.world import Conversation, Fault, Interrupt, MoveKind, Turn, World

__all__ = [
    "A1",
    "A2",
    "ALL_FAULTS",
    "ALL_MOVES",
    "B1",
    "B2",
    "CI",
    "KEEPS",
    "ONE_SHOT",
    "on_both",
]

A1 = Conversation("a", (Turn((1, 2)),))
_A3 = Conversation("a", (Turn((1, 2)), Turn((3,)), Turn((4,))))
A2 = Conversation("a", (Turn((1, 2)), Turn((3,))))
B1 = Conversation("b", (Turn((1, 2)),))
B2 = Conversation("b", (Turn((1, 2)), Turn((3,))))
ONE_SHOT = Conversation("o", (Turn((5,)),), is_one_shot=True)

ALL_MOVES: tuple[MoveKind, ...] = ("cancel", "interrupt", "close", "shutdown")
ALL_FAULTS: tuple[Fault, ...] = ("step fails", "device lost", "overdue", "kill", "crash")
KEEPS = (Interrupt(), Interrupt(0))
_SLOT_BYTES = 8
"""Of the fake models."""


def _engine(
    slots: int, policy: SchedulingPolicy = "fcfs", *, page_size: int = 16, host_slots: int = 0
) -> EngineConfig:
    """Two rows and two tokens a step, so that a prompt of two beside another is cut in chunks."""
    return EngineConfig(
        max_num_seqs=2,
        num_slots=slots,
        page_size=page_size,
        max_num_batched_tokens=2,
        scheduling_policy=policy,
        host_memory_bytes=host_slots * _SLOT_BYTES,
    )


def _paged(pages: int, slots: int = 2, host_bytes: int = 0) -> EngineConfig:
    return EngineConfig(
        max_num_seqs=2,
        num_slots=slots,
        num_pages=pages,
        page_size=2,
        max_num_batched_tokens=2,
        host_memory_bytes=host_bytes,
    )


def on_both(
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
    stops: tuple[int, ...] = (2, 1),
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
            interrupts=KEEPS,
            faults=faults,
            max_faults=max_faults,
            expects=(expects or {}).get(slots, ()),
            same=same,
            stops=slots in stops,
        )
        for slots in (2, 1)
    ]


_PREEMPTING = tuple(
    Conversation(name, (Turn((1, 2), max_tokens=2, priority=priority),))
    for name, priority in (("a", 0), ("b", -5))
)

_FORKS = (
    A1,
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

_IN_HOST_MEMORY = (
    Conversation("a", (Turn((1, 2), max_tokens=2),)),
    Conversation("b", (Turn((3,), priority=-5),), is_one_shot=True),
)

_APPENDS = Conversation("a", (Turn((1, 2)), Turn((3, 4, 5), kind="append")))

_LONGER = Conversation("a", (Turn((1, 2, 3)), Turn((4,))))

_INTERRUPTED = (Conversation("a", (Turn((1, 2), max_tokens=2), Turn((3,)))),)

_SMALL: list[World] = [
    *on_both(
        "pair",
        "two sessions of two turns",
        (A2, B2),
        same=("a", "b"),
        expects={2: ("a base drains", "checkpoint dropped"), 1: ("state given up",)},
    ),
    *on_both(
        "one-shot",
        "a session of two turns and a one-shot request",
        (A2, ONE_SHOT),
        expects={
            2: ("refused first turn", "refused later turn"),
            1: ("refused first turn", "refused later turn", "state given up"),
        },
    ),
    World(
        name="asks-2",
        about="a one-shot request asks for the checkpoint of a session that goes on",
        conversations=(_A3, ONE_SHOT),
        config=_engine(2),
        stops=False,
        expects=("checkpoint dropped", "asked for a state that is gone"),
    ),
    World(
        name="asks-1",
        about="a one-shot request asks for the state of a session that may close",
        conversations=(A1, ONE_SHOT),
        config=_engine(1),
        moves=("close",),
        expects=("state given up", "asked of the closed"),
    ),
    *on_both(
        "later-moves",
        "a session of two turns; one cancel, interrupt, close or shutdown",
        (A2,),
        moves=ALL_MOVES,
        expects={2: ("late claim rolled back",), 1: ("late claim rolled back",)},
    ),
    *on_both(
        "moves",
        "two sessions of one turn; one cancel, interrupt, close or shutdown",
        (A1, B1),
        moves=ALL_MOVES,
        same=("a", "b"),
        stops=(),
        expects={2: ("cancel in flight", "close in flight", "interrupt below a chunk")},
    ),
    *on_both(
        "faults",
        "two sessions of one turn; one fault of any kind",
        (A1, B1),
        faults=ALL_FAULTS,
        same=("a", "b"),
        stops=(2,),
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
        conversations=(A1,),
        config=_engine(1),
        moves=("cancel", "close"),
        faults=("step fails", "overdue", "crash"),
        stops=False,
    ),
    World(
        name="interrupts",
        about="a session that is cut short twice, and absorbs what that leaves in a first phase",
        conversations=_INTERRUPTED,
        # More than a page pending is absorbed and committed first, as a phase of its own.
        config=_engine(2, page_size=1),
        moves=("interrupt", "cancel"),
        max_moves=2,
        interrupts=(Interrupt(0),),
        stops=False,
        expects=(
            "interrupt above a chunk",
            "late interrupt cuts",
            "interrupt, then cancel",
            "first phase committed",
            "late phase rolled back",
        ),
    ),
    World(
        name="preemption",
        about="an urgent turn takes the one slot of a running one; one move",
        conversations=_PREEMPTING,
        config=_engine(1, "priority"),
        moves=("cancel",),
        stops=False,
        expects=("preempted", "preempt then cancel"),
    ),
    World(
        name="parking",
        about="a one-shot request has the one state of a session moved to host memory and back",
        conversations=(A2, ONE_SHOT),
        config=_engine(1, host_slots=1),
        stops=False,
        expects=("a park landed", "a state comes back from host memory"),
    ),
    World(
        name="parking-moves",
        about="a state moves to host memory; one close",
        conversations=(A1, ONE_SHOT),
        config=_engine(1, host_slots=1),
        moves=("close",),
        stops=False,
        expects=("a park landed", "a park of the closed"),
    ),
    World(
        name="parking-late",
        about="a session commits a newer state while the one before is moved to host memory",
        conversations=(_APPENDS, ONE_SHOT),
        config=_engine(2, host_slots=1),
        stops=False,
        expects=(
            "a park landed",
            "a park lost to a commit",
            "a park landed while its turn is open",
        ),
    ),
    World(
        name="parking-faults",
        about="a state moves to host memory; a copy or a step fails",
        conversations=(A1, ONE_SHOT),
        config=_engine(1, host_slots=1),
        faults=("step fails",),
        stops=False,
        expects=("a transfer lands as failed",),
    ),
    World(
        name="parking-pages",
        about="a chain of runs moves to host memory, comes back, grows and moves again",
        conversations=(_LONGER, ONE_SHOT),
        model="fake",
        config=_paged(3, slots=1, host_bytes=8 + 4 * 16),
        stops=False,
        expects=("a park landed", "a state comes back from host memory"),
    ),
    World(
        name="preemption-to-host",
        about="an urgent turn takes the slot of one that waits in host memory; one move",
        conversations=_IN_HOST_MEMORY,
        config=_engine(1, "priority", host_slots=1),
        moves=("cancel", "interrupt"),
        interrupts=(Interrupt(0),),
        stops=False,
        expects=(
            "preempted to host memory",
            "cancel on the way to host memory",
            "interrupt on the way to host memory",
            "cancel in host memory",
            "interrupt in host memory",
            "a state comes back from host memory",
        ),
    ),
    World(
        name="forks",
        about="a session that may close, and a fork of it at any moment",
        conversations=_FORKS,
        config=_engine(2),
        moves=("close",),
        expects=("fork of a state", "fork while the parent's turn runs"),
    ),
    World(
        name="forks-on-one-slot",
        about="a session, a one-shot that takes its state, and a fork of it",
        conversations=(*_FORKS, ONE_SHOT),
        config=_engine(1),
        stops=False,
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


CI: tuple[World, ...] = (*_SMALL, *KEPT_SMALL)
"""Finish together within a minute on one core."""
