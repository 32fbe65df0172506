"""What the sampler remembers of a turn between two draws; all of it follows from the turn itself.

Remembered weakly, by the turn's rules: when the turn has ended, so has this. A new worker starts
with nothing and builds it again.
"""

from collections.abc import Iterable
from weakref import WeakKeyDictionary

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kernel.requests.logit_rules import LogitRules

Array = npt.NDArray[np.int64]

__all__ = ["BadWords", "SamplingMemory", "SeenTokens", "TurnMemory"]


@attrs.define(eq=False)
class SeenTokens:
    """The distinct tokens of a turn, and how often each was generated."""

    _place: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    _ids: Array = attrs.field(factory=lambda: np.zeros(64, np.int64), init=False)
    _counts: Array = attrs.field(factory=lambda: np.zeros(64, np.int64), init=False)
    _generated: int = attrs.field(default=-1, init=False)

    def after(self, rules: LogitRules, generated: int) -> tuple[Array, Array]:
        """Distinct ids and their counts after so many generated tokens: lent, for one draw.

        The prompt's ids are among them where a repetition penalty looks at them.
        """
        if not 0 <= self._generated <= generated:
            self._start(rules)
        for token in rules.known.generated(generated, last=generated - self._generated):
            at = self._place_of(token)  # first: it may make room in new arrays
            self._counts[at] += 1
        self._generated = generated
        size = len(self._place)
        return self._ids[:size], self._counts[:size]

    def _start(self, rules: LogitRules) -> None:
        self._place.clear()
        self._counts[:] = 0
        self._generated = 0
        if rules.repetition_penalty != 1:
            for token in rules.known.prompt():
                self._place_of(token)

    def _place_of(self, token: int) -> int:
        at = self._place.setdefault(token, len(self._place))
        if at == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[at] = token
        return at


class BadWords:
    """Bad words by what comes before their last token."""

    def __init__(self, words: Iterable[tuple[int, ...]]) -> None:
        self._after: dict[tuple[int, ...], list[int]] = {}
        for word in words:
            self._after.setdefault(word[:-1], []).append(word[-1])
        self._lengths = sorted({len(before) for before in self._after})

    def banned(self, rules: LogitRules, generated: int) -> list[int]:
        """Tokens that would complete a bad word after so many generated tokens."""
        longest = self._lengths[-1]
        recent = tuple(rules.known.generated(generated, last=longest))
        return [
            token
            for length in self._lengths
            if length <= len(recent)
            for token in self._after.get(recent[len(recent) - length :], ())
        ]


class TurnMemory:
    """What one turn's rules come to on one device; each part is made when it is first asked for."""

    def __init__(self, rules: LogitRules, device: torch.device) -> None:
        self.seen = SeenTokens()
        self.bad_words = BadWords(rules.bad_words) if rules.bad_words else None
        bias = rules.logit_bias
        self.biased = torch.tensor([token for token, _ in bias], dtype=torch.int64, device=device)
        self.bias = torch.tensor([value for _, value in bias], dtype=torch.float64, device=device)
        self.allowed: Tensor | None = None
        if rules.allowed_token_ids is not None:
            self.allowed = torch.tensor(rules.allowed_token_ids, dtype=torch.int64, device=device)


class SamplingMemory:
    """Turn memories of one worker; used by its thread alone."""

    def __init__(self) -> None:
        self._turns: WeakKeyDictionary[LogitRules, TurnMemory] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._turns)

    def of(self, rules: LogitRules, device: torch.device) -> TurnMemory:
        """What is remembered of a turn, from now on if nothing was."""
        found = self._turns.get(rules)
        if found is None:
            found = self._turns[rules] = TurnMemory(rules, device)
        return found
