"""The ways that a text can take through the device, each measured against the same oracle."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

import attrs
import torch
from torch import Tensor

from adapters.torch_device import TorchDevice
from tests.parity.ours import Desk, Sequenced

__all__ = ["PATHS", "Text", "measure"]

_SHORT = 6
"""Tokens of a prompt that is cut in every way: 2 to the power of 5."""


@attrs.frozen(eq=False)
class Text:
    """Tokens, and the oracle's logits after each of them."""

    tokens: tuple[int, ...]
    logits: Tensor
    """[tokens, vocabulary] float64"""

    def error(self, position: int, found: Tensor) -> float:
        """Largest difference of a logit after ``position`` tokens, relative to the largest one.

        Infinite when a logit isn't a number.
        """
        difference = (found - self.logits[position - 1]).abs().max() / self.logits.abs().max()
        return float(difference) if torch.isfinite(difference) else float("inf")


def measure(
    device: TorchDevice, texts: Sequence[Text], paths: Iterable[str] | None = None
) -> dict[str, list[float]]:
    """The error after each step of each path, or of those that are named."""
    return {name: list(PATHS[name](device, texts, random.Random(name))) for name in paths or PATHS}


def _prompts(device: TorchDevice, texts: Sequence[Text], _draw: random.Random) -> Iterator[float]:
    """Each beginning of a text at once."""
    text = texts[0]
    desk = Desk(device)
    for length in range(1, len(text.tokens) + 1):
        sequence = desk.begin(text.tokens)
        yield text.error(length, desk.run([(sequence, length)])[0])
        desk.end(sequence)


def _decode(device: TorchDevice, texts: Sequence[Text], draw: random.Random) -> Iterator[float]:
    """A prompt, then token by token."""
    for text in texts[:2]:
        desk = Desk(device)
        sequence = desk.begin(text.tokens)
        count = draw.randint(1, len(text.tokens) // 2)
        while sequence.left:
            found = desk.run([(sequence, count)])[0]
            yield text.error(sequence.position, found)
            count = 1


def _chunks(device: TorchDevice, texts: Sequence[Text], draw: random.Random) -> Iterator[float]:
    """A short prompt in every cutting, a long one in some; logits after each piece."""
    text = texts[0]
    desk = Desk(device)
    for cuts in (*_every_cutting(_SHORT), *(_cutting(draw, len(text.tokens)) for _ in range(6))):
        sequence = desk.begin(text.tokens)
        for count in cuts:
            found = desk.run([(sequence, count)])[0]
            yield text.error(sequence.position, found)
        desk.end(sequence)


def _mixed(device: TorchDevice, texts: Sequence[Text], draw: random.Random) -> Iterator[float]:
    """Steps of some rows that decode and some that prefill; sequences come and go."""
    desk = Desk(device)
    waiting = [text for text in texts for _ in range(3)]
    draw.shuffle(waiting)
    running: list[tuple[Text, Sequenced]] = []
    while waiting or running:
        while waiting and len(running) < 4:
            text = waiting.pop()
            running.append((text, desk.begin(text.tokens)))
        chosen = draw.sample(running, draw.randint(1, len(running)))
        parts = [
            (sequence, draw.choice([1, min(2, sequence.left), draw.randint(1, sequence.left)]))
            for _, sequence in chosen
        ]
        for (text, sequence), found in zip(chosen, desk.run(parts), strict=True):
            yield text.error(sequence.position, found)
            if not sequence.left:
                running.remove((text, sequence))
                desk.end(sequence)


def _turns(device: TorchDevice, texts: Sequence[Text], draw: random.Random) -> Iterator[float]:
    """A session's turns, each on a copy of the state before it; some are taken back first."""
    for text in texts[:2]:
        desk = Desk(device)
        session = desk.begin(text.tokens)
        yield text.error(2, desk.run([(session, 2)])[0])
        while session.left:
            turn = desk.turn(session)
            for count in _cutting(draw, min(turn.left, draw.randint(1, 7))):
                found = desk.run([(turn, count)])[0]
                yield text.error(turn.position, found)
            if draw.random() < 0.3:
                desk.end(turn, kept=session)
            else:
                desk.end(session, kept=turn)
                session = turn


def _every_cutting(length: int) -> Iterator[list[int]]:
    for many in range(length):
        for at in combinations(range(1, length), many):
            edges = [0, *at, length]
            yield [end - begin for begin, end in pairwise(edges)]


def _cutting(draw: random.Random, length: int) -> list[int]:
    cuts: list[int] = []
    while length:
        cuts.append(draw.choice([1, min(2, length), draw.randint(1, length)]))
        length -= cuts[-1]
    return cuts


_Path = Callable[[TorchDevice, Sequence[Text], random.Random], Iterator[float]]
PATHS: Mapping[str, _Path] = {
    "prompt": _prompts,
    "decode": _decode,
    "chunks": _chunks,
    "mixed": _mixed,
    "turns": _turns,
}
