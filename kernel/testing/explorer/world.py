"""A world: one small engine, who talks to it, and what may go wrong in it.

Write your own by making a :class:`World`. Keep it small. Every order of everything in it is
walked, so one turn more can mean ten times the states.
"""

from typing import Literal

import attrs

from kernel.config import EngineConfig

__all__ = ["EVERYTHING", "Conversation", "Fault", "Interrupt", "MoveKind", "Turn", "World"]

Fault = Literal["crash", "kill", "step fails", "device lost", "overdue", "job fails", "job overdue"]
"""What may go wrong.

``crash``: an actor dies inside a handler, at any moment of it. ``kill``: between two messages.
``overdue``: a step passes its deadline; it may complete later, or never. ``job fails``: the store
says that it could not do a job; ``job overdue``: one passes its deadline, and may be done later.
"""

MoveKind = Literal["cancel", "interrupt", "close", "shutdown", "alarm", "reset"]
"""What callers may do beside starting their turns.

``alarm`` lets a deadline of a turn pass, or an idle timeout; ``reset`` evicts the prefix cache.
"""

Actors = Literal["session", "scheduler", "gpu-pool", "store"]
EVERYTHING: tuple[Actors, ...] = ("session", "scheduler", "gpu-pool", "store")


@attrs.frozen
class Turn:
    """One turn that a caller asks for, once the one before it has ended."""

    tokens: tuple[int, ...] = (1,)
    max_tokens: int = 1
    kind: Literal["generate", "append"] = "generate"
    overlaps: bool = False
    """It is asked for while the one before it runs, and waits for it."""
    timeout_s: float | None = None
    queue_timeout_s: float | None = None
    priority: int = 0
    salt: str | None = None
    """Under which it shares prefixes; ``None``: its session's."""


@attrs.frozen
class Interrupt:
    """A barge-in: keep so many of the tokens that were received; ``None`` keeps all."""

    keep: int | None = None


@attrs.frozen
class Conversation:
    """One caller: a session and its turns, a fork of one, or a one-shot request."""

    name: str
    turns: tuple[Turn, ...]
    is_one_shot: bool = False
    fork_of: str | None = None
    idle_timeout_s: float | None = None
    needs_cached: bool = False
    """It begins when the prefix cache holds something."""


def _two_slots() -> EngineConfig:
    return EngineConfig(max_num_seqs=2, num_slots=2, host_memory_bytes=0)


def _config(given: EngineConfig | None) -> EngineConfig:
    return given if given is not None else _two_slots()


@attrs.frozen(kw_only=True)
class World:
    """What is explored.

    Attributes:
        name: how it is called in reports and on the command line.
        about: one line for its reader.
        conversations: the callers.
        config: the engine's configuration; with ``session_store`` there is a store, whose jobs the
            explorer ends, and a session that is not in memory is woken for its next turn.
        model: the fake model: ``fake`` (slots and pages), ``fake-recurrent``, ``fake-attention``.
        moves: what callers may do beside starting their turns, at any moment.
        max_moves: most such moves in one trace.
        first_move: the first of them is of this kind.
        interrupts: the barge-ins that ``interrupt`` stands for.
        faults: what may go wrong, at any moment.
        max_faults: most faults in one trace.
        moves_first: faults happen only after the last of ``max_moves`` moves.
        max_together: most moves and faults in one trace, together.
        victims: which kinds of actors a crash or kill may strike.
        stops: from each state, also stop the engine at once and look what is left.
        expects: what must have been seen at least once in this world, by name.
        same: conversations that are alike, so that states which differ in their names are one.
        max_states: beyond so many states the exploration ends as incomplete.
    """

    name: str
    about: str = ""
    conversations: tuple[Conversation, ...]
    config: EngineConfig = attrs.field(default=None, converter=_config)
    model: str = "fake-recurrent"
    moves: tuple[MoveKind, ...] = ()
    max_moves: int = 1
    first_move: MoveKind | None = None
    interrupts: tuple[Interrupt, ...] = (Interrupt(),)
    faults: tuple[Fault, ...] = ()
    max_faults: int = 1
    moves_first: bool = False
    max_together: int = 8
    victims: tuple[Actors, ...] = EVERYTHING
    stops: bool = True
    expects: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    max_states: int = 1_000_000
