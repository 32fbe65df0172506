"""Worlds with a prefix cache, and worlds with a store of sessions."""

from typing import Any

import attrs

from kernel.config import EngineConfig
from kernel.testing.explorer.world import Conversation, Interrupt, Turn, World

__all__ = ["KEPT_SMALL", "KEPT_WORLDS"]


def _cached(slots: int, **config: Any) -> EngineConfig:
    """A page is a token, so that a state two tokens into a prompt is worth keeping."""
    given: dict[str, Any] = {
        "max_num_seqs": 2,
        "num_slots": slots,
        "page_size": 1,
        "max_num_batched_tokens": 2,
        "host_memory_bytes": 0,
        "enable_prefix_caching": True,
        **config,
    }
    return EngineConfig(**given)


def _asks(
    name: str, *tokens: int, salt: str | None = None, needs_cached: bool = False
) -> Conversation:
    turn = Turn(tokens, salt=salt)
    return Conversation(name, (turn,), is_one_shot=True, needs_cached=needs_cached)


_O = _asks("o", 1, 2, 3)
_P = _asks("p", 1, 2, 4)
_LATER = _asks("p", 1, 2, 4, needs_cached=True)

_CACHE_WORLDS: tuple[World, ...] = (
    World(
        name="cache",
        about="two one-shot requests that begin alike, on three slots",
        conversations=(_O, _P),
        config=_cached(3),
        stops=False,
        expects=("a state is published", "a cached state is used"),
    ),
    World(
        name="cache-cancel",
        about="a request finds what a longer one has left, and waits for its step; one cancel",
        # Long enough that a whole step of the first one comes after the other's match.
        conversations=(
            _asks("o", 1, 2, 3, 4, 5, 6, 7),
            _asks("p", 1, 2, 8, 9, needs_cached=True),
        ),
        config=_cached(4, prefix_cache_block=2),
        moves=("cancel",),
        stops=False,
        expects=("a cached state is used", "cancel between match and launch"),
    ),
    World(
        name="cache-pressure",
        about="a session and two one-shots that begin alike, on two slots: states make room",
        conversations=(Conversation("a", (Turn((7,)),)), _O, _LATER),
        config=_cached(2),
        stops=False,
        expects=("a state is published", "a cached state is used", "a cached state is evicted"),
    ),
    World(
        name="cache-reset",
        about="a request finds what another has left; the cache is reset, or the engine closes",
        conversations=(_O, _LATER),
        config=_cached(3),
        moves=("reset", "shutdown"),
        expects=("a cached state is evicted while pinned",),
    ),
    World(
        name="cache-faults",
        about="a request finds what another has left; a step fails, or the scheduler dies",
        conversations=(_O, _LATER),
        config=_cached(3),
        faults=("step fails", "kill", "crash", "overdue"),
        victims=("scheduler",),
        stops=False,
        expects=("the scheduler dies with cached states", "a cached state is used"),
    ),
    World(
        name="cache-salts",
        about="two who ask the same, one of them under a salt of its own",
        conversations=(
            _asks("o", 1, 2, 3, salt="x"),
            _asks("p", 1, 2, 3, needs_cached=True),
        ),
        config=_cached(4),
        stops=False,
        expects=("a state is published",),
    ),
    World(
        name="cache-pages",
        about="two one-shot requests share the pages of a beginning; one cancel or reset",
        conversations=(
            _asks("o", 1, 2, 3, 4, 5),
            _asks("p", 1, 2, 3, 4, 6, needs_cached=True),
        ),
        model="fake",
        config=_cached(3, num_pages=7, page_size=2),
        moves=("cancel", "reset"),
        stops=False,
        expects=("a state is published", "a cached state is used", "a run is shared"),
    ),
)


def _kept(slots: int = 1, **config: Any) -> EngineConfig:
    given: dict[str, Any] = {
        "max_num_seqs": 2,
        "num_slots": slots,
        "max_num_batched_tokens": 2,
        "host_memory_bytes": 0,
        "session_store": "in memory",
        # Sooner than a step, so that the two are never overdue at once.
        "session_store_timeout_s": 5.0,
        **config,
    }
    return EngineConfig(**given)


_TWICE = (Conversation("a", (Turn((1,)), Turn((2,)))),)
# Much sooner than a job of the store is overdue, which only a fault may be.
_IDLE = (attrs.evolve(_TWICE[0], idle_timeout_s=0.5),)

_STORE_WORLDS: tuple[World, ...] = (
    World(
        name="store",
        about="a turn is kept before it is told; one cancel, interrupt or close",
        conversations=(Conversation("a", (Turn((1,)),)),),
        config=_kept(),
        moves=("cancel", "interrupt", "close"),
        interrupts=(Interrupt(0),),
        expects=("a turn is kept", "close while the turn is being kept", "late interrupt cuts"),
    ),
    World(
        name="store-moves",
        about="turns are kept before they are told; one cancel, interrupt, close or shutdown",
        conversations=_TWICE,
        config=_kept(),
        moves=("cancel", "interrupt", "close", "shutdown"),
        interrupts=(Interrupt(0),),
        stops=False,
        expects=(
            "a turn is kept",
            "cancel while the turn is being kept",
            "interrupt while the turn is being kept",
            "close while the turn is being kept",
            "late interrupt cuts",
        ),
    ),
    World(
        name="store-refusals",
        about="the store refuses a job, or is overdue",
        conversations=_TWICE,
        config=_kept(),
        faults=("job fails", "job overdue"),
        stops=False,
        expects=(
            "a turn is refused by the store",
            "the store dies with a change under way",
        ),
    ),
    World(
        name="store-deaths",
        about="the session or the store dies, at any moment, and the session is taken up again",
        conversations=_TWICE,
        config=_kept(),
        faults=("kill", "crash"),
        victims=("session", "store"),
        stops=False,
        expects=(
            "the store dies with a change under way",
            "a session that died is taken up again",
        ),
    ),
    World(
        name="store-deaths-late",
        about="a late interrupt that the store may refuse, and the death of its session",
        conversations=(Conversation("a", (Turn((1,)), Turn((2,)))),),
        config=_kept(),
        moves=("interrupt",),
        interrupts=(Interrupt(0),),
        faults=("kill", "job fails"),
        max_faults=2,
        moves_first=True,
        victims=("session",),
        stops=False,
        expects=("late interrupt cuts", "a change of the log is refused by the store"),
    ),
    World(
        name="dormant",
        about="a session goes dormant when it is idle, and is woken for its next turn; one close",
        conversations=_IDLE,
        config=_kept(),
        moves=("alarm",),
        stops=False,
        expects=(
            "a session goes dormant",
            "a dormant session is woken",
            "a snapshot is kept",
            "a turn starts from a snapshot",
        ),
    ),
    World(
        name="dormant-moves",
        about="a session goes dormant and is woken; one cancel",
        conversations=_IDLE,
        config=_kept(),
        moves=("alarm", "cancel"),
        max_moves=2,
        first_move="alarm",
        stops=False,
        expects=("a dormant session is woken", "a snapshot too late"),
    ),
    World(
        name="dormant-faults",
        about="a session goes dormant and is woken; the store refuses, or one of the two dies",
        conversations=_IDLE,
        config=_kept(),
        moves=("alarm",),
        faults=("job fails", "kill", "step fails"),
        moves_first=True,
        victims=("session", "store"),
        stops=False,
        expects=("a snapshot is refused", "a dormant session is woken", "kill of store"),
    ),
    World(
        name="dormant-pair",
        about="two sessions, of which one may stay in memory: each makes the other one go",
        conversations=(
            Conversation("a", (Turn((1,)), Turn((2,)))),
            Conversation("b", (Turn((4,)),)),
        ),
        config=_kept(max_resident_sessions=1),
        stops=False,
        expects=("a session goes dormant", "a dormant session is woken"),
    ),
)

_OF_THE_SUITE = ("cache", "cache-salts", "store", "dormant")

KEPT_SMALL: tuple[World, ...] = tuple(
    world for world in (*_CACHE_WORLDS, *_STORE_WORLDS) if world.name in _OF_THE_SUITE
)
"""Those of every run of the suite."""

KEPT_WORLDS: tuple[World, ...] = tuple(
    world for world in (*_CACHE_WORLDS, *_STORE_WORLDS) if world not in KEPT_SMALL
)
"""The others, which take some seconds each."""
