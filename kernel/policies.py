"""Who goes first: each policy gives a turn one rank, fixed when the turn is submitted.

The same rank orders admission, growth and victims, and a turn takes from its juniors only. So
the most senior turn always finishes, and by induction every turn does, whatever the policy; no
aging of running turns is needed, and no cap on preemptions.
"""

import math
from collections.abc import Mapping
from typing import Protocol, TypeAlias

import attrs

from kernel.config import EngineConfig

__all__ = [
    "Deadline",
    "FirstCome",
    "Policy",
    "PriorityWithAging",
    "Rank",
    "TurnFacts",
    "WeightedFair",
    "make_policy",
]

Rank: TypeAlias = tuple[float, int]
"""Smaller is more senior. The second part is the arrival number, so no two ranks are equal."""


@attrs.frozen(kw_only=True)
class TurnFacts:
    """What a policy may know of a turn."""

    arrival_s: float
    """Time of submission, by the engine's clock."""
    arrival_number: int
    """Turns submitted to the engine before this one."""
    priority: int = 0
    """A lower number is more urgent, as in vLLM."""
    tenant: str = ""
    deadline_s: float | None = None
    """Time by which the turn is to end, by the engine's clock."""
    cost_tokens: int = 1
    """Tokens to absorb and generate, as far as known at submission."""


class Policy(Protocol):
    """Ranks turns. ``rank`` is called once a turn, in order of arrival."""

    def rank(self, facts: TurnFacts, /) -> Rank: ...

    def admitted(self, rank: Rank, /) -> None:
        """Take note that a turn with this rank was admitted (again, after a preemption)."""
        ...


@attrs.frozen
class FirstCome:
    """First come, first served."""

    def rank(self, facts: TurnFacts, /) -> Rank:
        return (float(facts.arrival_number), facts.arrival_number)

    def admitted(self, rank: Rank, /) -> None:
        """Nothing to note: arrival numbers don't change."""


@attrs.frozen
class PriorityWithAging:
    """By priority, but waiting counts: ``weight_s`` seconds are worth one level.

    A turn of priority p goes before one of priority q > p that came up to ``(q - p) * weight_s``
    earlier; one that has waited longer goes first. So no priority starves.
    """

    weight_s: float

    def rank(self, facts: TurnFacts, /) -> Rank:
        return (facts.arrival_s + self.weight_s * facts.priority, facts.arrival_number)

    def admitted(self, rank: Rank, /) -> None:
        """Nothing to note: the rank holds the whole aging."""


@attrs.frozen
class Deadline:
    """Earliest deadline first; turns without one come last, in order of arrival."""

    def rank(self, facts: TurnFacts, /) -> Rank:
        deadline_s = math.inf if facts.deadline_s is None else facts.deadline_s
        return (deadline_s, facts.arrival_number)

    def admitted(self, rank: Rank, /) -> None:
        """Nothing to note: deadlines don't move."""


@attrs.define(eq=False)
class WeightedFair:
    """Tokens are shared between tenants by weight (self-clocked fair queueing, Golestani 1994).

    A turn's rank is its virtual finish time: its tenant's last one, or the virtual clock if that
    is later, plus cost over weight. The clock is the highest rank admitted so far, so a tenant
    that was away gets its share from now on and no credit for the past.
    """

    weights: Mapping[str, float] = attrs.field(factory=dict[str, float])
    _clock: float = attrs.field(default=0.0, init=False)
    _finish: dict[str, float] = attrs.field(factory=dict[str, float], init=False)
    _prune_at: int = attrs.field(default=1024, init=False)

    def rank(self, facts: TurnFacts, /) -> Rank:
        start = max(self._clock, self._finish.get(facts.tenant, 0.0))
        finish = start + facts.cost_tokens / self.weights.get(facts.tenant, 1.0)
        self._finish[facts.tenant] = finish
        if len(self._finish) > self._prune_at:
            self._forget_the_idle()
        return (finish, facts.arrival_number)

    def admitted(self, rank: Rank, /) -> None:
        self._clock = max(self._clock, rank[0])

    def _forget_the_idle(self) -> None:
        # A finish time that the clock has passed says nothing any more. Doubling the threshold
        # keeps this O(1) a turn when all tenants are busy.
        self._finish = {name: at for name, at in self._finish.items() if at > self._clock}
        self._prune_at = max(1024, 2 * len(self._finish))


def make_policy(config: EngineConfig) -> Policy:
    """Build the policy that the configuration names; each engine gets one of its own."""
    match config.scheduling_policy:
        case "fcfs":
            return FirstCome()
        case "priority":
            return PriorityWithAging(config.priority_weight_s)
        case "fair":
            return WeightedFair(config.tenant_weights)
        case "deadline":
            return Deadline()
