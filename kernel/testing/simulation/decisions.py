"""The one source of every decision of a run, recorded as it is drawn.

Decisions lie on named *tracks* (the plan, the order of tasks, faults, ...), so that a tape can be
cut on one of them without shifting the others. Each is a small number below the number of choices,
and 0 is always the plainest one: first in line, no fault, nothing to do. A replay that has reached
the end of a track goes on with zeros.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

__all__ = ["Decisions", "Track"]

T = TypeVar("T")


class Track:
    """One kind of decisions, drawn at random or read off a tape."""

    __slots__ = ("_given", "_rng", "made")

    def __init__(self, rng: random.Random, given: Sequence[int] | None) -> None:
        self._rng = rng
        self._given = given
        self.made: list[int] = []

    def draw(self, count: int) -> int:
        """One of ``count`` choices, all alike."""
        if count <= 1:
            return 0
        given = self._given
        value = int(self._rng.random() * count) if given is None else self._read(given, count)
        self.made.append(value)
        return value

    def weighted(self, weights: Sequence[int]) -> int:
        """One of the choices, each as likely as its weight says."""
        given = self._given
        if given is not None:
            value = self._read(given, len(weights))
        else:
            left = self._rng.random() * sum(weights)
            value = 0
            while left >= weights[value]:
                left -= weights[value]
                value += 1
        self.made.append(value)
        return value

    def chance(self, percent: int) -> bool:
        """True so often in a hundred."""
        return bool(self.weighted((100 - percent, percent)))

    def pick(self, choices: Sequence[T]) -> T:
        """One of a few values; the first is the plainest."""
        return choices[self.draw(len(choices))]

    def decide(self, keys: Sequence[int], fresh: Callable[[Sequence[int]], int]) -> int:
        """Which of the keys is next: as a strategy says, or as the tape has it."""
        given = self._given
        value = fresh(keys) if given is None else self._read(given, len(keys))
        self.made.append(value)
        return value

    def _read(self, given: Sequence[int], count: int) -> int:
        place = len(self.made)
        return min(given[place], count - 1) if place < len(given) else 0


class Decisions:
    """All tracks of a run.

    Args:
        seed: what is drawn at random is a function of it and of the track's name.
        tracks: of a tape; ``None`` draws afresh.
    """

    def __init__(self, seed: int, tracks: Mapping[str, Sequence[int]] | None = None) -> None:
        self._seed = seed
        self._given = tracks
        self._tracks: dict[str, Track] = {}

    def track(self, name: str) -> Track:
        """The track of that name."""
        track = self._tracks.get(name)
        if track is None:
            given = None if self._given is None else self._given.get(name, ())
            rng = random.Random(f"{name} {self._seed}")
            track = self._tracks[name] = Track(rng, given)
        return track

    @property
    def made(self) -> dict[str, list[int]]:
        """What was decided so far, by track; the zeros at the end say nothing and are left out."""
        made: dict[str, list[int]] = {}
        for name, track in self._tracks.items():
            values = list(track.made)
            while values and not values[-1]:
                values.pop()
            if values:
                made[name] = values
        return made
