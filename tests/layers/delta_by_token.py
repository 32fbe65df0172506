"""The gated delta rule written token by token, and inputs for it."""

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.ragged.indices import ChunkLayout
from tests.layers.laying_out import numbers

__all__ = ["Inputs", "by_token"]


@attrs.frozen(eq=False)
class Inputs:
    """Of so many tokens, in the order of the kernels' parameters."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor

    @classmethod
    def draw(cls, tokens: int, heads: tuple[int, int], widths: tuple[int, int]) -> "Inputs":
        """Heads of keys and of values, widths of both; decays from hardly any to total."""
        (key_heads, value_heads), (key_width, value_width) = heads, widths
        return cls(
            q=functional.normalize(numbers(tokens, key_heads, key_width, seed=1), dim=-1),
            k=functional.normalize(numbers(tokens, key_heads, key_width, seed=2), dim=-1),
            v=numbers(tokens, value_heads, value_width, seed=3),
            g=-functional.softplus(3 * numbers(tokens, value_heads, seed=4)),
            beta=torch.sigmoid(2 * numbers(tokens, value_heads, seed=5)),
        )

    @property
    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.q, self.k, self.v, self.g, self.beta

    def at(self, tokens: slice) -> "Inputs":
        return Inputs(*(each[tokens] for each in self.all))

    def to(self, dtype: torch.dtype) -> "Inputs":
        return Inputs(*(each.to(dtype) for each in self.all))

    def cells(self, layout: ChunkLayout) -> "Inputs":
        shape, filled = (layout.chunks, layout.size), layout.filled[:, None]
        q, k, v, g, beta = (each.index_select(0, layout.token_of_cell) for each in self.all)
        g, beta = g * filled, beta * filled
        return Inputs(*(each.view(*shape, *each.shape[1:]) for each in (q, k, v, g, beta)))


def by_token(state: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The rule as it is written: the state after, and what each token reads."""
    state, read = state.clone(), torch.empty_like(inputs.v)
    each = inputs.v.shape[1] // inputs.k.shape[1]
    for token, (q, k, v, g, beta) in enumerate(zip(*inputs.all, strict=True)):
        for head in range(v.shape[0]):
            key, query = k[head // each], q[head // each]
            decayed = torch.exp(g[head]) * state[head]
            correction = beta[head] * (v[head] - key @ decayed)
            state[head] = decayed + torch.outer(key, correction)
            read[token, head] = query @ state[head]
    return state, read
