"""Jamba (Lieber et al. 2024): Mamba and attention layers, a gated block or experts after each.

Attention has no positions of its own: the recurrent layers tell them.
"""

import attrs

from adapters.layers.mamba1_mixer import Mamba1Norms, Mamba1Sizes
from adapters.layers.moe import MixtureOfExperts
from adapters.layers.routers import SoftmaxRouter
from adapters.models import mamba1_parts, parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder, FeedForward, Mixer
from adapters.models.experts import load_experts
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["FAMILY"]


@attrs.frozen(kw_only=True)
class _Sizes:
    """What the layers are built from."""

    mamba: Mamba1Sizes
    attention: parts.AttentionSizes
    eps: float
    width: int
    """Channels of a gated block, and of each expert."""
    attending: tuple[bool, ...]
    """For each layer, whether it is one of attention."""
    experts: tuple[int, ...]
    """For each layer, how many experts follow it; 1 is a plain block."""

    @classmethod
    def read(cls, config: ConfigReader) -> "_Sizes":
        attention = parts.AttentionSizes.read(config)
        hidden, layers = attention.hidden, range(config.integer("num_hidden_layers", 32))
        mamba = Mamba1Sizes(
            hidden=hidden,
            inner=int(config.number("mamba_expand", 2.0) * hidden),
            state=config.integer("mamba_d_state", 16),
            rank=mamba1_parts.rank(config, "mamba_dt_rank", hidden),
            taps=config.integer("mamba_d_conv", 4),
        )
        attends, routes = _every(config, "attn", 8, 4), _every(config, "expert", 2, 1)
        experts = config.integer("num_experts", 16)
        return cls(
            mamba=mamba,
            attention=attention,
            eps=config.number("rms_norm_eps", 1e-6),
            width=config.integer("intermediate_size", 14336),
            attending=tuple(layer % attends[0] == attends[1] for layer in layers),
            experts=tuple(experts if layer % routes[0] == routes[1] else 1 for layer in layers),
        )


def _every(config: ConfigReader, what: str, period: int, offset: int) -> tuple[int, int]:
    """Period and offset of the layers that are of some kind."""
    period = config.integer(f"{what}_layer_period", period)
    name = f"{what}_layer_offset"
    offset = config.integer(name, offset, least=0)
    if offset >= period:
        raise config.wrong(name, offset, f"less than {what}_layer_period, {period}")
    return period, offset


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("hidden_act", unless="silu", why="Mamba mixers are built with SiLU only")
    sizes = _Sizes.read(config)
    hidden, vocabulary = sizes.attention.hidden, config.integer("vocab_size")
    embed = weights.matrix("model.embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer, attends in enumerate(sizes.attending):
        own = weights.under(f"model.layers.{layer}.")
        place = sizes.attending[:layer].count(attends)
        mixer: Mixer
        if attends:
            mixer = parts.attention(own.under("self_attn."), sizes.attention, place, rotates=False)
        else:
            mixer = _mamba1(config, own.under("mamba."), sizes, place)
        mlp = _feed_forward(config, own.under("feed_forward."), sizes, sizes.experts[layer])
        norm = parts.rms_norm(own, "input_layernorm", hidden, sizes.eps)
        mlp_norm = parts.rms_norm(own, "pre_ff_layernorm", hidden, sizes.eps)
        blocks.append(Block(norm, mixer, mlp_norm, mlp))
    return Decoder(
        shape=_shape(config, sizes, vocabulary),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, "model.final_layernorm", hidden, sizes.eps),
        head=parts.output_head(config, weights, embed),
    )


def _shape(config: ConfigReader, sizes: _Sizes, vocabulary: int) -> ModelShape:
    mamba, attention = sizes.mamba, sizes.attention
    kv_layers, states = sizes.attending.count(True), sizes.attending.count(False)
    kv = KvSpec(kv_layers, attention.kv_heads, attention.width)
    return ModelShape(
        name=parts.model_name(config),
        vocab_size=vocabulary,
        hidden_size=attention.hidden,
        max_model_len=config.integer("max_position_embeddings", 262_144),
        eos_token_ids=parts.eos_token_ids(config),
        states=mamba.states(states) if states else (),
        kv=kv if kv_layers else None,
        taps=mamba.taps if states else 1,
        chunk_size=mamba1_parts.CHUNK,
        token_numbers=max(
            mamba.token_numbers, attention.projected, 2 * sizes.width, *sizes.experts
        ),
        chunk_numbers=mamba.chunk_numbers(mamba1_parts.CHUNK),
    )


def _mamba1(config: ConfigReader, own: TensorLoader, sizes: _Sizes, place: int) -> Mixer:
    mamba = sizes.mamba
    return mamba1_parts.mamba1(
        own,
        mamba,
        place,
        bias=config.boolean("mamba_proj_bias", False),
        conv_bias=config.boolean("mamba_conv_bias", True),
        norms=Mamba1Norms(
            dt=parts.rms_norm(own, "dt_layernorm", mamba.rank, sizes.eps),
            b=parts.rms_norm(own, "b_layernorm", mamba.state, sizes.eps),
            c=parts.rms_norm(own, "c_layernorm", mamba.state, sizes.eps),
        ),
    )


def _feed_forward(
    config: ConfigReader, own: TensorLoader, sizes: _Sizes, experts: int
) -> FeedForward:
    hidden = sizes.attention.hidden
    if experts == 1:
        return parts.gated_mlp(own, hidden, sizes.width)
    chosen = config.integer("num_experts_per_tok", 2)
    if chosen > experts:
        raise config.wrong("num_experts_per_tok", chosen, f"at most num_experts, {experts}")
    router = own.vector("router.weight", experts, hidden)
    return MixtureOfExperts(
        SoftmaxRouter(router, chosen, renormalise=False),
        load_experts(own.under("experts."), experts=experts, hidden=hidden, width=sizes.width),
    )


FAMILY = Family(("jamba",), build)
