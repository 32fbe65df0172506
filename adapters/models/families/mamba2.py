"""Mamba-2 (Dao and Gu 2024): recurrent layers only, no feed-forward blocks between them."""

from adapters.layers.mamba2_mixer import Mamba2Sizes
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.ragged.spec import ModelShape

__all__ = ["FAMILY"]

_UNBOUNDED = 1 << 20
"""Most tokens of a sequence: the model itself has no bound."""


def _sizes(config: ConfigReader) -> Mamba2Sizes:
    sizes = Mamba2Sizes(
        hidden=config.integer("hidden_size"),
        heads=config.integer("num_heads"),
        head_dim=config.integer("head_dim"),
        state=config.integer("state_size"),
        groups=config.integer("n_groups"),
        taps=config.integer("conv_kernel"),
    )
    inner = int(config.number("expand", 2.0) * sizes.hidden)
    if sizes.inner != inner:
        raise config.wrong("num_heads", sizes.heads, f"{inner} channels / {sizes.head_dim} a head")
    if sizes.heads % sizes.groups:
        raise config.wrong("n_groups", sizes.groups, f"a divisor of {sizes.heads} heads")
    return sizes


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("hidden_act", unless="silu", why="Mamba-2 mixers are built with SiLU only")
    sizes = _sizes(config)
    hidden, layers = sizes.hidden, config.integer("num_hidden_layers")
    vocabulary, eps = config.integer("vocab_size"), config.number("layer_norm_epsilon", 1e-5)
    bias, conv_bias = config.boolean("use_bias", False), config.boolean("use_conv_bias", True)
    limits, chunk_size = parts.step_limits(config), config.integer("chunk_size", 256)

    embed = weights.matrix("backbone.embeddings.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer in range(layers):
        own = weights.under(f"backbone.layers.{layer}.")
        mixer = own.under("mixer.")
        gated = parts.grouped_norm(mixer, sizes.inner, sizes.groups, eps)
        mamba = parts.mamba2(
            mixer, sizes, layer, norm=gated, bias=bias, conv_bias=conv_bias, dt_limits=limits
        )
        blocks.append(Block(parts.rms_norm(own, "norm", hidden, eps), mamba))
    chunk = min(chunk_size, 64)  # longer chunks cost more memory and no less time
    return Decoder(
        shape=ModelShape(
            name=parts.model_name(config),
            vocab_size=vocabulary,
            hidden_size=hidden,
            max_model_len=_UNBOUNDED,
            eos_token_ids=parts.eos_token_ids(config),
            states=sizes.states(layers),
            taps=sizes.taps,
            chunk_size=chunk,
            token_numbers=sizes.projected,
            chunk_numbers=sizes.chunk_numbers(chunk),
        ),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, "backbone.norm_f", hidden, eps),
        head=parts.output_head(config, weights, embed),
    )


FAMILY = Family(("mamba2",), build)
