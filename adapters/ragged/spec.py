"""What a model needs of the memory and of the layout of a pass; the only way these meet.

A family's file makes one :class:`ModelShape`. Arenas, the cutting of steps, the layout of a pass
and the memory plan are worked out from it, and know no family.
"""

import math
from typing import Literal

import attrs

__all__ = ["KvSpec", "ModelShape", "Rope", "StateSpec"]


@attrs.frozen
class StateSpec:
    """One kind of recurrent state; its arena is [layers, slots + 1, *shape]."""

    name: str
    shape: tuple[int, ...]
    """Of one layer's state of one sequence. ``"conv"``: (taps - 1, channels), the newest input
    last. ``"recurrent"``: as the layer wants it, (heads, width, state) for Mamba-2."""
    layers: int
    kind: Literal["conv", "recurrent"]

    @property
    def numbers(self) -> int:
        """Numbers that one sequence takes, all layers."""
        return self.layers * math.prod(self.shape)


@attrs.frozen
class KvSpec:
    """Keys and values of the attention layers."""

    layers: int
    kv_heads: int
    head_dim: int

    @property
    def token_numbers(self) -> int:
        """Numbers that one token takes, keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim


@attrs.frozen
class Rope:
    """Rotary position embedding, halves paired, of the first channels of a head."""

    frequencies: tuple[float, ...]
    """Radians a position, one for each pair of channels."""
    factor: float = 1.0
    """Scales both cosine and sine (YaRN's attention factor)."""

    @property
    def width(self) -> int:
        """Channels of a head that are rotated."""
        return 2 * len(self.frequencies)


@attrs.frozen(kw_only=True)
class ModelShape:
    """The numbers of a model that others than its layers need."""

    name: str
    vocab_size: int
    hidden_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...] = ()
    states: tuple[StateSpec, ...] = ()
    """Empty for a model of attention layers only: it needs no slot."""
    kv: KvSpec | None = None
    """``None`` for a model without attention layers: it needs no page."""
    rope: Rope | None = None
    """``None``: attention knows no positions."""
    slides: bool = True
    """Whether attention is still defined when the oldest positions are dropped: scores depend on
    the distance of two positions at most, as they do with rotary embeddings, or on no position at
    all. How good the text is then is another matter: a model of attention layers only, trained on
    whole contexts, leans on its first positions (Xiao et al. 2023, arXiv:2309.17453)."""
    taps: int = 1
    """Inputs that an output of the short convolution sees; 1: there is none."""
    chunk_size: int = 64
    """Tokens in a chunk of the chunked scan; changes speed, not meaning."""
    token_numbers: int
    """Numbers of the widest temporary that a layer makes for one token."""
    chunk_numbers: int = 1
    """Numbers of the largest temporary that a scan makes for one chunk."""

    @property
    def slot_numbers(self) -> int:
        """Numbers of one slot: all recurrent state of one sequence."""
        return sum(state.numbers for state in self.states)
