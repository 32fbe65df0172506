"""A feed-forward block of many experts, of which each token sees a few.

Tokens are sorted by expert, so that each expert makes one product over all tokens that chose it,
and the weights of an expert that nobody chose aren't read. Each choice's result has a place of its
own and a token adds up its own places in the order of its choice: the same input gives the same
bits, on an accelerator too, and other tokens change no more than the rounding of a product.
"""

from collections.abc import Callable
from typing import cast

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers.linear import linear
from adapters.layers.routers import Choice, Router

__all__ = ["Experts", "LatentProjection", "MixtureOfExperts"]

_MOST_NUMBERS = 16 << 20
"""In one temporary; more tokens than that allows go through the experts in parts."""


@attrs.frozen(eq=False)
class Experts:
    """Feed-forward blocks of one shape, stacked: ``down(act(gate(x)) * up(x))`` each.

    Without a gate: ``down(act(up(x)))``.
    """

    up_proj: Tensor
    """[experts, 2 * width, hidden], gate then up; [experts, width, hidden] without a gate"""
    down_proj: Tensor
    """[experts, hidden, width]"""
    activation: Callable[[Tensor], Tensor] = functional.silu

    @property
    def gated(self) -> bool:
        return self.up_proj.shape[1] == 2 * self.down_proj.shape[2]

    def __call__(self, x: Tensor, choice: Choice) -> Tensor:
        """Each token's weighted sum over its experts. Shapes: x, result [tokens, hidden]."""
        chosen = choice.experts.shape[1]
        most = max(1, _MOST_NUMBERS // (chosen * max(self.up_proj.shape[1:])))
        if x.shape[0] <= most:
            return self._mix(x, choice.experts, choice.weights)
        parts = [slice(start, start + most) for start in range(0, x.shape[0], most)]
        return torch.cat([self._mix(x[at], choice.experts[at], choice.weights[at]) for at in parts])

    def _mix(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        tokens, chosen = experts.shape
        by_expert = experts.flatten().argsort(stable=True)
        # An accelerator is waited for here: how many tokens each expert has shapes its product.
        counts = _as_list(torch.bincount(experts.flatten(), minlength=self.up_proj.shape[0]))
        places = x.to(self.up_proj.dtype).index_select(0, by_expert // chosen)
        start = 0
        for expert, count in enumerate(counts):
            if count:
                rows = places[start : start + count]
                rows.copy_(self._expert(expert, rows, x.dtype))
                start += count
        results = torch.empty_like(places).index_copy_(0, by_expert, places)
        # One small product for each token: its places, in the order of its choice.
        by_token = results.view(tokens, chosen, x.shape[1]).to(x.dtype)
        return torch.bmm(weights[:, None], by_token)[:, 0]

    def _expert(self, expert: int, rows: Tensor, compute: torch.dtype) -> Tensor:
        """Shapes: rows, result [tokens, hidden] in the weights' type."""
        widened = functional.linear(rows, self.up_proj[expert]).to(compute)
        if self.gated:
            gate, up = widened.chunk(2, dim=-1)
            widened = self.activation(gate).mul_(up)
        else:
            widened = self.activation(widened)
        return functional.linear(widened.to(rows.dtype), self.down_proj[expert])


def _as_list(numbers: Tensor) -> list[int]:
    # torch leaves the result of tolist() untyped.
    return cast(list[int], numbers.tolist())  # pyright: ignore[reportUnknownMemberType]


@attrs.frozen(eq=False, kw_only=True)
class LatentProjection:
    """Experts that work on fewer channels than the model has: the way in and the way out."""

    enter: Tensor
    """[latent, hidden]"""
    enter_bias: Tensor | None = None
    leave: Tensor
    """[hidden, latent]"""
    leave_bias: Tensor | None = None


@attrs.frozen(eq=False)
class MixtureOfExperts:
    """Routed experts, and beside them what every token sees."""

    router: Router
    experts: Experts
    shared: Callable[[Tensor], Tensor] | None = None
    """A block over the same input, added to what the experts give."""
    shared_gate: Tensor | None = None
    """[1, hidden], compute type: scales the shared block by a sigmoid of the input."""
    latent: LatentProjection | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x, result [tokens, hidden]."""
        mixed = self._routed(x)
        if self.shared is None:
            return mixed
        shared = self.shared(x)
        if self.shared_gate is not None:
            shared = shared * functional.linear(x, self.shared_gate).sigmoid()
        return mixed + shared

    def _routed(self, x: Tensor) -> Tensor:
        choice = self.router(x)
        if self.latent is None:
            return self.experts(x, choice)
        entered = linear(x, self.latent.enter, self.latent.enter_bias)
        mixed = self.experts(entered, choice)
        return linear(mixed, self.latent.leave, self.latent.leave_bias)
