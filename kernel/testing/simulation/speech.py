"""A chat format for simulated clients: what it writes shows which history it was told of.

Its first token is a mark of the history, so that a turn that was composed for another log than the
one it starts from is seen at its start. At times it refuses, or fails as no ``Exception`` does.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from kernel.chat import ChatPrompt, Composition, Exchange, Message
from kernel.errors import ModelError
from kernel.testing.simulation.decisions import Track

__all__ = ["SimulatedChat", "mark_of", "said"]

_FATES = ("writes", "refuses", "panics")
_WEIGHTS = (90, 7, 3)


class Panic(BaseException):
    """Planted: what a library in another language raises."""


class _World(Protocol):
    @property
    def seen(self) -> dict[str, int]: ...


def said(tokens: Sequence[int]) -> list[Message]:
    """A message that is written as these tokens."""
    return [{"role": "user", "content": list(tokens)}]


def mark_of(history: Sequence[int]) -> int:
    """A token that differs for histories that differ, as a rule."""
    return 1 + sum(place * token for place, token in enumerate(history, 1)) % 199


class SimulatedChat:
    """Writes a message as the tokens in it, after a mark of the history."""

    def __init__(self, world: _World, track: Track) -> None:
        self._world = world
        self._track = track

    def compose(
        self, history: Sequence[Exchange], prompt: ChatPrompt, /, *, answers: bool
    ) -> Composition:
        """What the messages add; it doesn't matter whether an answer is to follow."""
        del answers
        fate = _FATES[self._track.weighted(_WEIGHTS)]
        self._world.seen[f"a template {fate}"] += 1
        if fate == "refuses":
            raise ModelError("the template refuses: simulated")
        if fate == "panics":
            raise Panic("simulated")
        told = [token for one in history for token in (*one.input.token_ids, *one.answer_ids)]
        tokens = [token for message in prompt.messages for token in _tokens_in(message)]
        return Composition((mark_of(told), *tokens), str(tokens))


def _tokens_in(message: Mapping[str, object]) -> list[int]:
    return cast("list[int]", message["content"])
