"""Granite 4: Mamba-2 and attention layers, each followed by experts, a shared block or both.

Granite scales four things: the embedding, what each layer adds, the scores of attention, and
the logits.
"""

import attrs
from torch import Tensor

from adapters.layers.mamba2_mixer import Mamba2Sizes
from adapters.layers.mlp import GatedMlp
from adapters.layers.moe import MixtureOfExperts
from adapters.layers.routers import SoftmaxRouter
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder, FeedForward, Mixer
from adapters.models.experts import load_granite_experts
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.models.rope import read_rope
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["FAMILY"]


@attrs.frozen(kw_only=True)
class _Sizes:
    """What the blocks are built from."""

    mamba: Mamba2Sizes
    attention: parts.AttentionSizes
    eps: float
    rotates: bool
    experts: int
    expert_width: int
    chosen: int
    """Experts that each token goes to."""
    shared_width: int

    @classmethod
    def read(cls, config: ConfigReader) -> "_Sizes":
        positions = {"rope": True, "nope": False, "none": False}
        experts = config.integer("num_local_experts", 8, least=0)
        return cls(
            mamba=parts.mamba2_sizes(config),
            attention=parts.AttentionSizes.read(config),
            eps=config.number("rms_norm_eps", 1e-6),
            rotates=config.choice("position_embedding_type", positions, "nope"),
            experts=experts,
            expert_width=config.integer("intermediate_size", 11008),
            chosen=config.integer("num_experts_per_tok", 2) if experts else 0,
            shared_width=config.integer("shared_intermediate_size", 1024),
        )


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    sizes, recurrent = _Sizes.read(config), parts.hybrid_layers(config, "layer_types")
    hidden, vocabulary = sizes.attention.hidden, config.integer("vocab_size")
    weights.skip("*.rotary_emb.inv_freq")
    embed = weights.matrix("model.embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer, is_recurrent in enumerate(recurrent):
        own = weights.under(f"model.layers.{layer}.")
        place = sum(kind == is_recurrent for kind in recurrent[:layer])
        make = _mamba2 if is_recurrent else _attention
        blocks.append(
            Block(
                parts.rms_norm(own, "input_layernorm", hidden, sizes.eps),
                make(config, own, sizes, place),
                parts.rms_norm(own, "post_attention_layernorm", hidden, sizes.eps),
                _feed_forward(config, own, sizes),
                scale=config.number("residual_multiplier", 1.0),
            )
        )
    return Decoder(
        shape=_shape(config, sizes, recurrent, vocabulary),
        embed=embed,
        embed_scale=config.number("embedding_multiplier", 1.0),
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, "model.norm", hidden, sizes.eps),
        head=parts.output_head(config, weights, embed),
        logit_scale=1.0 / config.number("logits_scaling", 1.0),
    )


def _shape(
    config: ConfigReader, sizes: _Sizes, recurrent: tuple[bool, ...], vocabulary: int
) -> ModelShape:
    mamba, attention, states = sizes.mamba, sizes.attention, sum(recurrent)
    chunk = min(config.integer("mamba_chunk_size", 256), 64)
    widest = (2 * sizes.shared_width, sizes.experts, attention.projected)
    kv_layers = len(recurrent) - states
    kv = KvSpec(kv_layers, attention.kv_heads, attention.width)
    return ModelShape(
        name=parts.model_name(config),
        vocab_size=vocabulary,
        hidden_size=attention.hidden,
        max_model_len=config.integer("max_position_embeddings", 2048),
        eos_token_ids=parts.eos_token_ids(config),
        states=mamba.states(states) if states else (),
        kv=kv if kv_layers else None,
        rope=read_rope(config, attention.width) if sizes.rotates else None,
        taps=mamba.taps,
        chunk_size=chunk,
        token_numbers=max(*widest, mamba.projected if states else 1),
        chunk_numbers=mamba.chunk_numbers(chunk),
    )


def _mamba2(config: ConfigReader, own: TensorLoader, sizes: _Sizes, place: int) -> Mixer:
    config.refuse("hidden_act", unless="silu", why="Mamba-2 mixers are built with SiLU only")
    mixer, mamba = own.under("mamba."), sizes.mamba
    return parts.mamba2(
        mixer,
        mamba,
        place,
        norm=parts.grouped_norm(mixer, mamba.inner, mamba.groups, sizes.eps),
        bias=config.boolean("mamba_proj_bias", False),
        conv_bias=config.boolean("mamba_conv_bias", True),
        dt_limits=parts.step_limits(config),
    )


def _attention(config: ConfigReader, own: TensorLoader, sizes: _Sizes, place: int) -> Mixer:
    bias = config.boolean("attention_bias", False)
    return parts.attention(
        own.under("self_attn."),
        sizes.attention,
        place,
        bias=bias,
        o_bias=bias,
        scale=config.number("attention_multiplier", 1.0),
        rotates=sizes.rotates,
    )


def _feed_forward(config: ConfigReader, own: TensorLoader, sizes: _Sizes) -> FeedForward:
    hidden, width = sizes.attention.hidden, sizes.shared_width
    activation = config.choice("hidden_act", parts.ACTIVATIONS, "silu")
    shared = GatedMlp(
        gate_up_proj=own.matrix("shared_mlp.input_linear.weight", 2 * width, hidden),
        down_proj=own.matrix("shared_mlp.output_linear.weight", hidden, width),
        activation=activation,
    )
    if not sizes.experts:
        return shared
    router: Tensor
    router, experts = load_granite_experts(
        own.under("block_sparse_moe."),
        experts=sizes.experts,
        hidden=hidden,
        width=sizes.expert_width,
        activation=activation,
    )
    # The highest logits, then a softmax over these: the same numbers as the other way round
    # and divided by their sum.
    chosen = SoftmaxRouter(router, sizes.chosen, renormalise=True)
    return MixtureOfExperts(chosen, experts, shared)


FAMILY = Family(("granitemoehybrid",), build)
