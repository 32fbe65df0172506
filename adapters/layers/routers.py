"""Routers: which experts see a token, and how much each of them counts.

Scores and shares are worked out in the compute type; a router's weight is small enough to be kept
in it. A token's choice depends on that token alone.
"""

from typing import Protocol

import attrs
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Choice", "Router", "SigmoidRouter", "SoftmaxRouter"]


@attrs.frozen(eq=False)
class Choice:
    """The experts of each token."""

    experts: Tensor
    """[tokens, chosen] int64, each expert at most once in a row"""
    weights: Tensor
    """[tokens, chosen] what each one's result is multiplied by; compute type"""


class Router(Protocol):
    """Chooses experts for each token alone."""

    def __call__(self, x: Tensor, /) -> Choice:
        """Shapes: x [tokens, hidden]."""
        ...


@attrs.frozen(eq=False)
class SoftmaxRouter:
    """The ``top_k`` likeliest experts of a softmax over all (Shazeer et al. 2017)."""

    weight: Tensor
    """[experts, hidden], compute type"""
    top_k: int
    renormalise: bool
    """Divide by the sum over the chosen ones. That is a softmax over the chosen scores alone, so
    it makes no difference whether a family takes the softmax before or after the choice."""

    def __call__(self, x: Tensor) -> Choice:
        """Shapes: x [tokens, hidden]."""
        scores = functional.linear(x, self.weight)
        if self.renormalise:
            chosen, experts = scores.topk(self.top_k, dim=-1)
            return Choice(experts, chosen.softmax(dim=-1))
        weights, experts = scores.softmax(dim=-1).topk(self.top_k, dim=-1)
        return Choice(experts, weights)


@attrs.frozen(eq=False)
class SigmoidRouter:
    """Experts by their own sigmoid, corrected for the choice only (DeepSeek-V3 2024, 2.1.2).

    The correction keeps the load of experts even; it decides who is chosen, and never how much a
    chosen one counts. With groups, an expert can be chosen only if its group is among the
    ``kept_groups`` best, a group being as good as its two best experts together.
    """

    weight: Tensor
    """[experts, hidden], compute type"""
    correction: Tensor
    """[experts], compute type"""
    top_k: int
    groups: int = 1
    kept_groups: int = 1
    renormalise: bool = True
    """Divide by the sum over the chosen ones."""
    least_sum: float = 1e-20
    """Added to that sum: shares stay finite where all chosen scores underflow."""
    scale: float = 1.0
    """Multiplies every weight, after the division."""

    def __call__(self, x: Tensor) -> Choice:
        """Shapes: x [tokens, hidden]."""
        scores = functional.linear(x, self.weight).sigmoid()
        candidates = scores + self.correction
        if self.kept_groups < self.groups:
            candidates = self._in_best_groups(candidates)
        experts = candidates.topk(self.top_k, dim=-1).indices
        weights = scores.gather(1, experts)
        if self.renormalise:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + self.least_sum)
        return Choice(experts, weights * self.scale)

    def _in_best_groups(self, candidates: Tensor) -> Tensor:
        """Minus infinity for every expert of a group that isn't kept."""
        by_group = candidates.view(candidates.shape[0], self.groups, -1)
        best = by_group.topk(2, dim=-1).values.sum(dim=-1)
        kept = best.topk(self.kept_groups, dim=-1).indices
        left_out = torch.ones_like(best, dtype=torch.bool).scatter_(1, kept, value=False)
        return by_group.masked_fill(left_out[..., None], float("-inf")).view_as(candidates)
