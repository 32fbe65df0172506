"""The usual shape of a model: embedding, blocks with residual connections, norm, head."""

from collections.abc import Callable
from typing import Protocol

import attrs
from torch import Tensor

from adapters.layers.linear import linear
from adapters.layers.norm import RmsNorm
from adapters.ragged.run import Pass
from adapters.ragged.spec import ModelShape

__all__ = ["Block", "CausalModel", "Decoder", "FeedForward", "Mixer"]

Mixer = Callable[[Tensor, Pass], Tensor]
"""Mixes along the sequence: (x [tokens, hidden], the pass) to [tokens, hidden]."""
FeedForward = Callable[[Tensor], Tensor]
"""Works on each token by itself: [tokens, hidden] to [tokens, hidden]."""


class CausalModel(Protocol):
    """A language model that takes the rows of a pass one stretch of tokens on."""

    @property
    def shape(self) -> ModelShape: ...

    @property
    def head(self) -> Tensor:
        """[vocabulary, hidden] the matrix of the last product."""
        ...

    def hidden(self, run: Pass) -> Tensor:
        """Hidden state after every token of the pass: [tokens, hidden], compute type.

        Writes the rows' new recurrent state, keys and values into the arenas.
        """
        ...

    def logits(self, x: Tensor) -> Tensor:
        """Logits after some tokens. x: [rows, hidden]; result [rows, vocabulary]."""
        ...


@attrs.frozen(eq=False)
class Block:
    """One residual step: ``x + scale * part(norm(x))``, for a mixer, a feed-forward or both."""

    norm: RmsNorm
    mixer: Mixer | None
    mlp_norm: RmsNorm | None = None
    mlp: FeedForward | None = None
    scale: float = 1.0
    """Multiplies what is added (Granite)."""

    def __call__(self, x: Tensor, run: Pass) -> Tensor:
        """Add the block's parts to x [tokens, hidden], in place."""
        if self.mixer is not None:
            x.add_(self.mixer(self.norm(x), run), alpha=self.scale)
        if self.mlp is not None:
            norm = self.norm if self.mlp_norm is None else self.mlp_norm
            x.add_(self.mlp(norm(x)), alpha=self.scale)
        return x


@attrs.frozen(eq=False, kw_only=True)
class Decoder:
    """A :class:`CausalModel` of blocks one after another."""

    shape: ModelShape
    embed: Tensor
    """[vocabulary, hidden]"""
    embed_scale: float = 1.0
    blocks: tuple[Callable[[Tensor, Pass], Tensor], ...]
    """Usually :class:`Block`; each may change its input in place."""
    final_norm: RmsNorm
    head: Tensor
    """[vocabulary, hidden]; the embedding itself where they are tied."""
    logit_scale: float = 1.0

    def hidden(self, run: Pass) -> Tensor:
        """Hidden state after every token of the pass: [tokens, hidden], compute type."""
        x = self.embed.index_select(0, run.plan.tokens).to(self.final_norm.weight.dtype)
        if self.embed_scale != 1.0:
            x = x * self.embed_scale
        for block in self.blocks:
            x = block(x, run)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Logits after some tokens. x: [rows, hidden]; result [rows, vocabulary]."""
        logits = linear(self.final_norm(x), self.head)
        return logits if self.logit_scale == 1.0 else logits * self.logit_scale
