"""LFM2 (Liquid AI 2025): gated short convolutions, some attention layers, dense or with experts."""

import attrs
import torch

from adapters.layers.mlp import GatedMlp
from adapters.layers.moe import MixtureOfExperts
from adapters.layers.routers import SigmoidRouter
from adapters.layers.short_conv import ShortConv, short_conv_state
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder, Mixer
from adapters.models.experts import load_experts
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.models.rope import read_rope
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["FAMILY"]

_CONV, _ATTENTION = "conv", "full_attention"
_THETA = 1_000_000.0
_LEAST_SUM = 1e-6


@attrs.frozen(kw_only=True)
class _Sizes:
    attention: parts.AttentionSizes
    layer_types: tuple[str, ...]
    taps: int
    conv_bias: bool
    width: int
    """Of a dense feed-forward block."""
    dense_layers: int
    """So many layers from the first have no experts."""
    eps: float

    @classmethod
    def read(cls, config: ConfigReader) -> "_Sizes":
        layers = config.integer("num_hidden_layers")
        is_moe = config.text("model_type") == "lfm2_moe"
        return cls(
            attention=parts.AttentionSizes.read(config),
            layer_types=_layer_types(config, layers),
            taps=config.integer("conv_L_cache", 3),
            conv_bias=config.boolean("conv_bias", False),
            width=config.integer("intermediate_size") if is_moe else _dense_width(config),
            dense_layers=config.integer("num_dense_layers", 2, least=0) if is_moe else layers,
            eps=config.number("norm_eps", 1e-5),
        )

    @property
    def hidden(self) -> int:
        return self.attention.hidden


def _layer_types(config: ConfigReader, layers: int) -> tuple[str, ...]:
    if not config.has("layer_types"):
        attention = config.integers("full_attn_idxs", range(layers))
        return tuple(_ATTENTION if layer in attention else _CONV for layer in range(layers))
    types = config.texts("layer_types", (_CONV, _ATTENTION))
    if len(types) != layers:
        raise config.wrong("layer_types", list(types), f"a list of {layers} names")
    return types


def _dense_width(config: ConfigReader) -> int:
    """Two thirds of what config.json says, scaled, and rounded up, unless it says otherwise."""
    width = config.integer("block_ff_dim" if config.has("block_ff_dim") else "intermediate_size")
    if not config.boolean("block_auto_adjust_ff_dim", True):
        return width
    width = int(config.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
    multiple = config.integer("block_multiple_of", 256)
    return -(-width // multiple) * multiple


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    sizes = _Sizes.read(config)
    hidden, types = sizes.hidden, sizes.layer_types
    vocabulary, attention = config.integer("vocab_size"), types.count(_ATTENTION)
    embed = weights.matrix("model.embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer, kind in enumerate(types):
        own = weights.under(f"model.layers.{layer}.")
        place = types[:layer].count(kind)  # among the layers of its kind
        mixer = _conv(own, sizes, place) if kind == _CONV else _attention(own, sizes, place)
        feed = own.under("feed_forward.")
        is_dense = layer < sizes.dense_layers
        mlp = _dense(feed, hidden, sizes.width) if is_dense else _experts(feed, config, hidden)
        norm = parts.rms_norm(own, "operator_norm", hidden, sizes.eps)
        blocks.append(Block(norm, mixer, parts.rms_norm(own, "ffn_norm", hidden, sizes.eps), mlp))
    heads = sizes.attention
    convolutions = len(types) - attention
    return Decoder(
        shape=ModelShape(
            name=parts.model_name(config),
            vocab_size=vocabulary,
            hidden_size=hidden,
            max_model_len=config.integer("max_position_embeddings", 128_000),
            eos_token_ids=parts.eos_token_ids(config),
            states=(short_conv_state(convolutions, sizes.taps, hidden),) if convolutions else (),
            kv=KvSpec(attention, heads.kv_heads, heads.width) if attention else None,
            rope=read_rope(config, heads.width, theta=_THETA),
            taps=sizes.taps,
            token_numbers=max(2 * sizes.width, 3 * hidden, heads.projected),
        ),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, "model.embedding_norm", hidden, sizes.eps),
        head=parts.output_head(config, weights, embed),
    )


def _conv(own: TensorLoader, sizes: _Sizes, place: int) -> Mixer:
    own, hidden, bias = own.under("conv."), sizes.hidden, sizes.conv_bias
    weight, offset = parts.conv_weights(own, hidden, sizes.taps, bias=bias, name="conv")
    return ShortConv(
        state_layer=place,
        in_proj=own.matrix("in_proj.weight", 3 * hidden, hidden),
        in_bias=own.tensor("in_proj.bias", 3 * hidden) if bias else None,
        conv_weight=weight,
        conv_bias=offset,
        out_proj=own.matrix("out_proj.weight", hidden, hidden),
        out_bias=own.tensor("out_proj.bias", hidden) if bias else None,
    )


def _attention(own: TensorLoader, sizes: _Sizes, place: int) -> Mixer:
    return parts.attention(
        own.under("self_attn."),
        sizes.attention,
        place,
        out="out_proj",
        norms=("q_layernorm", "k_layernorm"),
        norm_eps=sizes.eps,
    )


def _dense(own: TensorLoader, hidden: int, width: int) -> GatedMlp:
    return GatedMlp(
        gate_up_proj=own.stack({"w1.weight": width, "w3.weight": width}, hidden),
        down_proj=own.matrix("w2.weight", hidden, width),
    )


def _experts(own: TensorLoader, config: ConfigReader, hidden: int) -> MixtureOfExperts:
    count = config.integer("num_experts")
    weight = own.vector("gate.weight", count, hidden)
    correction = torch.zeros_like(weight[:, 0])
    if config.boolean("use_expert_bias", True):
        correction = own.vector("expert_bias", count)
    return MixtureOfExperts(
        router=SigmoidRouter(
            weight=weight,
            correction=correction,
            top_k=config.integer("num_experts_per_tok"),
            renormalise=config.boolean("norm_topk_prob", True),
            least_sum=_LEAST_SUM,
            scale=config.number("routed_scaling_factor", 1.0),
        ),
        experts=load_experts(
            own.under("experts."),
            experts=count,
            hidden=hidden,
            width=config.integer("moe_intermediate_size"),
            split=("w1", "w3", "w2"),
        ),
    )


FAMILY = Family(("lfm2", "lfm2_moe"), build)
