"""What the families of the gated delta rule have in common: names, keys, and the whole decoder.

They differ in how the input projection of a Gated DeltaNet layer is stored and in which layers
have experts; a family says both, and :func:`delta_decoder` does the rest. Norms are stored around
zero (``1 + weight``), but for the gated one; attention has a gate and norms on each head.
"""

from collections.abc import Callable

import attrs
from torch import Tensor

from adapters.layers.attention import Attention
from adapters.layers.delta_net import DeltaNetSizes, GatedDeltaNet
from adapters.layers.mamba2_mixer import GatedNorm
from adapters.layers.moe import MixtureOfExperts
from adapters.layers.norm import RmsNorm
from adapters.layers.routers import SoftmaxRouter
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder, FeedForward, Mixer
from adapters.models.experts import load_experts
from adapters.models.loader import TensorLoader
from adapters.models.rope import read_rope
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["DeltaFamily", "ExpertSizes", "delta_decoder"]

_CHUNK = 64
_ROTATED = 0.25
"""Share of a head's channels that is rotated, where the configuration doesn't say."""
_HEAD_DIM = 256
"""Channels of an attention head, where the configuration doesn't say."""


@attrs.frozen(eq=False, kw_only=True)
class DeltaFamily:
    """What a family says about itself."""

    input_projection: Callable[[TensorLoader, DeltaNetSizes], Tensor]
    """The joined projection of one layer, in the order of :class:`GatedDeltaNet`."""
    feed_forward: Callable[[TensorLoader, int], FeedForward]
    """The block of the layer with this number, from the loader under its prefix."""
    feed_forward_numbers: int
    """Numbers of the widest temporary that such a block makes for one token."""
    stem: str = "model."
    """Prefix of all but the output projection."""
    head_config: ConfigReader | None = None
    """Says whether the embeddings are tied; ``None``: the configuration itself."""


@attrs.frozen(kw_only=True)
class ExpertSizes:
    """Dimensions of a block of experts beside one that every token sees."""

    hidden: int
    experts: int
    chosen: int
    width: int
    shared_width: int
    renormalise: bool
    """Let the weights of a token's experts add up to one."""

    @classmethod
    def read(cls, config: ConfigReader, *, renormalise: bool) -> "ExpertSizes":
        """Read them under num_experts, num_experts_per_tok and moe_intermediate_size."""
        experts, chosen = config.integer("num_experts"), config.integer("num_experts_per_tok")
        if chosen > experts:
            raise config.wrong("num_experts_per_tok", chosen, f"at most {experts} (num_experts)")
        return cls(
            hidden=config.integer("hidden_size"),
            experts=experts,
            chosen=chosen,
            width=config.integer("moe_intermediate_size", 512),
            shared_width=config.integer("shared_expert_intermediate_size", 512),
            renormalise=renormalise,
        )

    @property
    def numbers(self) -> int:
        """Numbers of the widest temporary for one token, routed experts apart."""
        return max(self.experts, 2 * self.shared_width)

    def load(self, weights: TensorLoader) -> MixtureOfExperts:
        """The block under gate, experts, shared_expert and shared_expert_gate."""
        return MixtureOfExperts(
            router=SoftmaxRouter(
                weight=weights.vector("gate.weight", self.experts, self.hidden),
                top_k=self.chosen,
                renormalise=self.renormalise,
            ),
            experts=load_experts(
                weights.under("experts."),
                experts=self.experts,
                hidden=self.hidden,
                width=self.width,
            ),
            shared=parts.gated_mlp(
                weights.under("shared_expert."), self.hidden, self.shared_width
            ),
            shared_gate=weights.vector("shared_expert_gate.weight", 1, self.hidden),
        )


def delta_decoder(config: ConfigReader, weights: TensorLoader, family: DeltaFamily) -> Decoder:
    """The model of one family: sizes read, all tensors asked for."""
    config.refuse("hidden_act", unless="silu", why="Gated DeltaNet is built with SiLU only")
    config.refuse("attn_output_gate", unless=True, why="attention is built with its gate only")
    sizes, attention = _delta_sizes(config), _attention_sizes(config)
    hidden, eps = sizes.hidden, config.number("rms_norm_eps", 1e-6)
    bias, recurrent = config.boolean("attention_bias", False), _recurrent_layers(config)
    vocabulary = config.integer("vocab_size")

    stem = weights.under(family.stem)
    embed = stem.matrix("embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer, is_recurrent in enumerate(recurrent):
        own = stem.under(f"layers.{layer}.")
        place = recurrent[:layer].count(is_recurrent)
        mixer: Mixer
        if is_recurrent:
            mixer = _delta_net(own.under("linear_attn."), sizes, place, eps, family)
        else:
            mixer = _attention(own.under("self_attn."), attention, place, eps, bias=bias)
        norm = _centred_norm(own, "input_layernorm", hidden, eps)
        mlp_norm = _centred_norm(own, "post_attention_layernorm", hidden, eps)
        blocks.append(Block(norm, mixer, mlp_norm, family.feed_forward(own, layer)))
    gated = attention.projected + attention.heads * attention.width
    return Decoder(
        shape=attrs.evolve(
            _memory(recurrent, sizes, attention),
            name=parts.model_name(config),
            vocab_size=vocabulary,
            hidden_size=hidden,
            max_model_len=config.integer("max_position_embeddings", 32768),
            eos_token_ids=parts.eos_token_ids(config),
            rope=read_rope(config, attention.width, partial=_ROTATED),
            token_numbers=max(sizes.projected, gated, family.feed_forward_numbers),
        ),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=_centred_norm(stem, "norm", hidden, eps),
        head=parts.output_head(family.head_config or config, weights, embed),
    )
