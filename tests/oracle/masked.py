"""Sessions that slide, in the simplest form: one forward pass in which attention has a mask.

Nothing here asks the kernel which positions are kept: it is counted out, token by token, from what
``docs/endless-sessions.md`` says.
"""

import math
from collections.abc import Mapping
from functools import partial
from unittest import mock

import attrs
import torch
from torch import Tensor

from adapters.models import reference
from adapters.models.hybrid import HybridConfig

__all__ = ["Window", "masked_attention", "masked_logits"]


@attrs.frozen
class Window:
    """When ``length`` positions are kept, the next token drops the oldest ``hop`` of them."""

    length: int
    hop: int

    @classmethod
    def of_pool(cls, pages: int, page_size: int) -> "Window":
        """Half of the pool in whole pages, and half of that in whole pages."""
        return cls(pages // 2 * page_size, pages // 2 // 2 * page_size)

    def first_seen(self, positions: int) -> list[int]:
        """For each position, the first one that attention layers see from there."""
        first, seen = 0, list[int]()
        for position in range(positions):
            if position - first == self.length:
                first += self.hop
            seen.append(first)
        return seen


def masked_attention(
    first_seen: list[int], config: HybridConfig, own: reference.Weights, x: Tensor
) -> Tensor:
    """As the reference's attention, where each position sees the positions that are kept then."""
    batch, length, _ = x.shape
    width, each = config.attn_head_dim, config.num_heads // config.num_kv_heads
    positions = torch.arange(length)

    def heads(name: str) -> Tensor:
        projected = x @ own[f"mixer.{name}.weight"].T
        return projected.view(batch, length, -1, width).transpose(1, 2)

    query = reference.rotate(heads("q_proj"), positions, config.rope_theta)
    key = reference.rotate(heads("k_proj"), positions, config.rope_theta)
    first = torch.tensor(first_seen)
    seen = (positions <= positions[:, None]) & (positions >= first[:, None])
    scores = query @ key.repeat_interleave(each, dim=1).mT / math.sqrt(width)
    shares = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    mixed = (shares @ heads("v_proj").repeat_interleave(each, dim=1)).transpose(1, 2)
    return mixed.reshape(batch, length, -1) @ own["mixer.o_proj.weight"].T


def masked_logits(
    config: HybridConfig, weights: Mapping[str, Tensor], tokens: Tensor, window: Window
) -> Tensor:
    """Logits after every token of a session that slides.

    Shapes: tokens [1, L] int64; result [1, L, V].
    """
    mixer = partial(masked_attention, window.first_seen(tokens.shape[1]))
    with mock.patch.object(reference, "attention_mixer", mixer):
        return reference.reference_logits(config, weights, tokens)
