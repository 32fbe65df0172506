"""Falcon-H1: each layer mixes by Mamba-2 and by attention side by side, and adds both.

Trained with one multiplier for nearly every product (maximal update parametrisation); they are
applied here where the model applies them, and not folded into the weights, so that a narrow
number type rounds the weights as they were published.
"""

import attrs
import torch
from torch import Tensor

from adapters.layers.attention import Attention
from adapters.layers.mamba2_mixer import GatedNorm, Mamba2, Mamba2Sizes
from adapters.layers.norm import RmsNorm
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.models.rope import read_rope
from adapters.ragged.run import Pass
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["FAMILY"]


@attrs.frozen(eq=False, kw_only=True)
class _SideBySide:
    """Both mixers over the same normed input, each scaled on its way in and out."""

    mamba: Mamba2
    mamba_scales: tuple[float, float]
    attention: Attention
    attention_scales: tuple[float, float]

    def __call__(self, x: Tensor, run: Pass) -> Tensor:
        """Shapes: x, result [tokens, hidden]."""
        into, out = self.mamba_scales
        mixed = self.mamba(x * into, run) * out
        into, out = self.attention_scales
        return mixed.add_(self.attention(x * into, run), alpha=out)


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("hidden_act", unless="silu", why="Mamba-2 mixers are built with SiLU only")
    inner = config.integer("mamba_d_ssm") if config.has("mamba_d_ssm") else None
    mamba, attention = parts.mamba2_sizes(config, inner), parts.AttentionSizes.read(config)
    layers, vocabulary = config.integer("num_hidden_layers"), config.integer("vocab_size")
    hidden, width = attention.hidden, config.integer("intermediate_size")
    eps = config.number("rms_norm_eps", 1e-5)
    gate_scale, down_scale = _multipliers(config, "mlp_multipliers", 2)
    mlp_bias = config.boolean("mlp_bias", False)

    weights.skip("*.rotary_emb.inv_freq")
    weights.skip("*.mup_vector")
    embed = weights.matrix("model.embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer in range(layers):
        own = weights.under(f"model.layers.{layer}.")
        mlp = parts.gated_mlp(
            own.under("feed_forward."),
            hidden,
            width,
            bias=mlp_bias,
            gate_scale=gate_scale,
            scale=down_scale,
        )
        blocks.append(
            Block(
                parts.rms_norm(own, "input_layernorm", hidden, eps),
                _mixers(config, own, layer, mamba, attention),
                parts.rms_norm(own, "pre_ff_layernorm", hidden, eps),
                mlp,
            )
        )
    chunk = min(config.integer("mamba_chunk_size", 256), 64)
    return Decoder(
        shape=ModelShape(
            name=parts.model_name(config),
            vocab_size=vocabulary,
            hidden_size=hidden,
            max_model_len=config.integer("max_position_embeddings", 8192),
            eos_token_ids=parts.eos_token_ids(config),
            states=mamba.states(layers),
            kv=KvSpec(layers, attention.kv_heads, attention.width),
            rope=read_rope(config, attention.width),
            taps=mamba.taps,
            chunk_size=chunk,
            token_numbers=max(2 * width, mamba.projected, attention.projected),
            chunk_numbers=mamba.chunk_numbers(chunk),
        ),
        embed=embed,
        embed_scale=config.number("embedding_multiplier", 1.0),
        blocks=tuple(blocks),
        final_norm=_final_norm(weights, hidden, eps),
        head=parts.output_head(config, weights, embed),
        logit_scale=config.number("lm_head_multiplier", 1.0),
    )


def _final_norm(weights: TensorLoader, hidden: int, eps: float) -> RmsNorm:
    return parts.rms_norm(weights, "model.final_layernorm", hidden, eps)


def _multipliers(config: ConfigReader, name: str, count: int) -> tuple[float, ...]:
    numbers = config.numbers(name, [1.0] * count)
    if len(numbers) != count:
        raise config.wrong(name, list(numbers), f"a list of {count} numbers")
    return numbers


def _mixers(
    config: ConfigReader,
    own: TensorLoader,
    layer: int,
    mamba: Mamba2Sizes,
    attention: parts.AttentionSizes,
) -> _SideBySide:
    bias = config.boolean("attention_bias", False)
    attending = parts.attention(own.under("self_attn."), attention, layer, bias=bias, o_bias=bias)
    return _SideBySide(
        mamba=_mamba2(config, own.under("mamba."), mamba, layer),
        mamba_scales=(
            config.number("ssm_in_multiplier", 1.0),
            config.number("ssm_out_multiplier", 1.0),
        ),
        attention=attrs.evolve(attending, key_scale=config.number("key_multiplier", 1.0)),
        attention_scales=(
            config.number("attention_in_multiplier", 1.0),
            config.number("attention_out_multiplier", 1.0),
        ),
    )


def _mamba2(config: ConfigReader, own: TensorLoader, sizes: Mamba2Sizes, layer: int) -> Mamba2:
    norm: GatedNorm | None = None
    if config.boolean("mamba_rms_norm", False):
        gate_first = not config.boolean("mamba_norm_before_gate", True)
        eps = config.number("rms_norm_eps", 1e-5)
        norm = parts.grouped_norm(own, sizes.inner, sizes.groups, eps, gate_first=gate_first)
    shared = sizes.groups * sizes.state
    rows = (sizes.inner, sizes.inner, shared, shared, sizes.heads)
    scales = _multipliers(config, "ssm_multipliers", 5)
    in_scale = torch.empty(sum(rows), dtype=own.precision.compute, device=own.device)
    for part, scale in zip(torch.split_with_sizes(in_scale, rows), scales, strict=True):
        part.fill_(scale)
    return parts.mamba2(
        own,
        sizes,
        layer,
        norm=norm,
        bias=config.boolean("mamba_proj_bias", False),
        out_bias=config.boolean("projectors_bias", False),
        conv_bias=config.boolean("mamba_conv_bias", True),
        dt_limits=parts.step_limits(config),
        in_scale=in_scale,
    )


FAMILY = Family(("falcon_h1",), build)
