"""Mamba (Gu and Dao 2023) and Falcon Mamba: recurrent layers only, nothing between them.

Falcon Mamba is Mamba with norms over dt, B and C, whose weights are one and aren't stored.
"""

import torch

from adapters.layers.mamba1_mixer import Mamba1Norms, Mamba1Sizes
from adapters.layers.norm import RmsNorm
from adapters.models import mamba1_parts, parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.ragged.spec import ModelShape

__all__ = ["FAMILY"]

_UNBOUNDED = 1 << 20
"""Most tokens of a sequence: the model itself has no bound."""


def _sizes(config: ConfigReader) -> Mamba1Sizes:
    hidden = config.integer("hidden_size")
    return Mamba1Sizes(
        hidden=hidden,
        inner=config.integer("intermediate_size", int(config.number("expand", 2.0) * hidden)),
        state=config.integer("state_size", 16),
        rank=mamba1_parts.rank(config, "time_step_rank", hidden),
        taps=config.integer("conv_kernel", 4),
    )


def _weightless(config: ConfigReader, sizes: Mamba1Sizes, weights: TensorLoader) -> Mamba1Norms:
    eps = config.number("mixer_rms_eps", 1e-6)

    def norm(channels: int) -> RmsNorm:
        ones = torch.ones(channels, dtype=weights.precision.compute, device=weights.device)
        return RmsNorm(ones, eps)

    return Mamba1Norms(dt=norm(sizes.rank), b=norm(sizes.state), c=norm(sizes.state))


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("hidden_act", unless="silu", why="Mamba mixers are built with SiLU only")
    sizes = _sizes(config)
    layers, vocabulary = config.integer("num_hidden_layers"), config.integer("vocab_size")
    eps, bias = config.number("layer_norm_epsilon", 1e-5), config.boolean("use_bias", False)
    falcon = config.text("model_type") == "falcon_mamba"
    norms = _weightless(config, sizes, weights) if falcon else None

    # The first published checkpoints call it "embedding".
    older = weights.has("backbone.embedding.weight")
    embed_name = "backbone.embedding.weight" if older else "backbone.embeddings.weight"
    embed = weights.matrix(embed_name, vocabulary, sizes.hidden)
    blocks: list[Block] = []
    for layer in range(layers):
        own = weights.under(f"backbone.layers.{layer}.")
        mixer = mamba1_parts.mamba1(
            own.under("mixer."),
            sizes,
            layer,
            bias=bias,
            conv_bias=config.boolean("use_conv_bias", True),
            norms=norms,
        )
        blocks.append(Block(parts.rms_norm(own, "norm", sizes.hidden, eps), mixer))
    return Decoder(
        shape=ModelShape(
            name=parts.model_name(config),
            vocab_size=vocabulary,
            hidden_size=sizes.hidden,
            max_model_len=_UNBOUNDED,
            eos_token_ids=parts.eos_token_ids(config),
            states=sizes.states(layers),
            taps=sizes.taps,
            chunk_size=mamba1_parts.CHUNK,
            token_numbers=sizes.token_numbers,
            chunk_numbers=sizes.chunk_numbers(mamba1_parts.CHUNK),
        ),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, "backbone.norm_f", sizes.hidden, eps),
        head=parts.output_head(config, weights, embed),
    )


FAMILY = Family(("mamba", "falcon_mamba"), build)
