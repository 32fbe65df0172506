"""What a caller knows of its session's log: what it was told, and what is open to doubt.

A turn whose end was told is in the log. One that is under way, or that was lost with an actor, may
be, whole or cut, as long as no later one was told: what comes after it has settled it.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Protocol

from kernel.actors.reply import Reply
from kernel.turn import TurnRequest

__all__ = ["Tokens", "kept_of", "possible_logs"]

Tokens = tuple[int, ...]
_outcome: Callable[[Reply[Any]], tuple[Any] | BaseException | None] = attrgetter("_outcome")


class _Asked(Protocol):
    @property
    def request(self) -> TurnRequest: ...

    @property
    def interrupts(self) -> Sequence[Reply[int]]: ...

    @property
    def is_refused(self) -> bool: ...


class _Knows(Protocol):
    @property
    def before(self) -> Tokens: ...

    @property
    def since(self) -> int: ...

    @property
    def asked(self) -> Sequence[_Asked]: ...


def kept_of(asked: _Asked) -> int | None:
    """How many generated tokens of a turn stand in the log, as its caller was told.

    ``None``: the turn has left nothing there, not even its input.
    """
    end = asked.request.output.end
    if end is None or end.error is not None:
        return None
    outcomes = map(_outcome, asked.interrupts)
    cuts: list[int] = [one[0] for one in outcomes if isinstance(one, tuple)]
    return min([end.kept, *cuts])


def possible_logs(caller: _Knows, *, has_died: bool, is_disk: bool = False) -> list[Tokens]:
    """What a session's log may be; the first one is what its caller was told.

    Args:
        caller: who was told.
        has_died: the session's actor did, so what it was doing may be done or not.
        is_disk: what the store may hold, which may be one change ahead of what was told.
    """
    told, others = caller.before, list[Tokens]()
    in_doubt = has_died or is_disk
    for asked in caller.asked[caller.since :]:
        kept = kept_of(asked)
        tokens = (*asked.request.tokens, *asked.request.output.tokens)
        start = len(asked.request.tokens)
        whole = [(*told, *tokens[:end]) for end in range(start, len(tokens) + 1)]
        if kept is not None:
            is_cut = any(not isinstance(_outcome(one), tuple) for one in asked.interrupts)
            others = whole[:kept] if is_cut and in_doubt else []
            told = whole[kept]
        elif in_doubt and not asked.is_refused:
            others += whole
    return [told, *others]
