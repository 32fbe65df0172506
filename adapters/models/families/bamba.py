"""Bamba: Mamba-2 layers and a few of attention, a gated block after each."""

from adapters.layers.mamba2_mixer import Mamba2Sizes
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder, Mixer
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.models.rope import read_rope
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["FAMILY"]

_ROTARY_SHARE = 0.5
"""Of a head's channels; the same in every Bamba, whatever older configurations leave out."""


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("hidden_act", unless="silu", why="Mamba-2 mixers are built with SiLU only")
    mamba, attention = parts.mamba2_sizes(config), parts.AttentionSizes.read(config)
    layers, vocabulary = config.integer("num_hidden_layers"), config.integer("vocab_size")
    hidden, width = attention.hidden, config.integer("intermediate_size")
    eps, mlp_bias = config.number("rms_norm_eps", 1e-5), config.boolean("mlp_bias", False)
    bias = config.boolean("attention_bias", False)
    attending = _attention_layers(config, layers)

    weights.skip("*.rotary_emb.inv_freq")
    embed = weights.matrix("model.embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer in range(layers):
        own = weights.under(f"model.layers.{layer}.")
        mixer: Mixer
        if layer in attending:
            place = attending.index(layer)
            mixer = parts.attention(
                own.under("self_attn."), attention, place, bias=bias, o_bias=bias
            )
        else:
            place = layer - sum(other < layer for other in attending)
            mixer = _mamba2(config, own.under("mamba."), mamba, place, eps)
        mlp = parts.gated_mlp(own.under("feed_forward."), hidden, width, bias=mlp_bias)
        norm = parts.rms_norm(own, "input_layernorm", hidden, eps)
        blocks.append(Block(norm, mixer, parts.rms_norm(own, "pre_ff_layernorm", hidden, eps), mlp))
    recurrent, chunk = layers - len(attending), min(config.integer("mamba_chunk_size", 256), 64)
    kv = KvSpec(len(attending), attention.kv_heads, attention.width)
    return Decoder(
        shape=ModelShape(
            name=parts.model_name(config),
            vocab_size=vocabulary,
            hidden_size=hidden,
            max_model_len=config.integer("max_position_embeddings", 262_144),
            eos_token_ids=parts.eos_token_ids(config),
            states=mamba.states(recurrent) if recurrent else (),
            kv=kv if attending else None,
            rope=read_rope(config, attention.width, partial=_ROTARY_SHARE),
            taps=mamba.taps,
            chunk_size=chunk,
            token_numbers=max(2 * width, mamba.projected, attention.projected),
            chunk_numbers=mamba.chunk_numbers(chunk),
        ),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, "model.final_layernorm", hidden, eps),
        head=parts.output_head(config, weights, embed),
    )


def _attention_layers(config: ConfigReader, layers: int) -> list[int]:
    indices = sorted(set(config.integers("attn_layer_indices", ())))
    if indices and indices[-1] >= layers:
        raise config.wrong("attn_layer_indices", indices, f"numbers of layers below {layers}")
    return indices


def _mamba2(
    config: ConfigReader, own: TensorLoader, sizes: Mamba2Sizes, place: int, eps: float
) -> Mixer:
    return parts.mamba2(
        own,
        sizes,
        place,
        norm=parts.grouped_norm(own, sizes.inner, sizes.groups, eps),
        bias=config.boolean("mamba_proj_bias", False),
        conv_bias=config.boolean("mamba_conv_bias", True),
        dt_limits=parts.step_limits(config),
    )


FAMILY = Family(("bamba",), build)
