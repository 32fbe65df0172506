"""Nemotron-H and Nemotron 3: every block is one thing, Mamba-2, attention, a block or experts.

Attention has no positions of its own: the recurrent layers tell them.
"""

import math

import attrs
from torch import Tensor

from adapters.layers.mamba2_mixer import Mamba2Sizes
from adapters.layers.mlp import Mlp
from adapters.layers.moe import LatentProjection, MixtureOfExperts
from adapters.layers.routers import SigmoidRouter
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder, FeedForward, Mixer
from adapters.models.experts import load_experts
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["FAMILY"]

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_KINDS = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}


@attrs.frozen(kw_only=True)
class _Sizes:
    """What the blocks are built from."""

    mamba: Mamba2Sizes
    attention: parts.AttentionSizes
    eps: float
    mlp: int
    experts: int
    expert_width: int
    shared_width: int
    latent: int
    """Channels that the experts work on."""

    @classmethod
    def read(cls, config: ConfigReader) -> "_Sizes":
        hidden = config.integer("hidden_size")
        mamba = Mamba2Sizes(
            hidden=hidden,
            heads=config.integer("mamba_num_heads", 128),
            head_dim=config.integer("mamba_head_dim", 64),
            state=config.integer("ssm_state_size", 128),
            groups=_older(config, "n_groups", "mamba_n_groups", 8),
            taps=_older(config, "conv_kernel", "mamba_d_conv", 4),
        )
        if mamba.heads % mamba.groups:
            raise config.wrong("n_groups", mamba.groups, f"a divisor of {mamba.heads} heads")
        return cls(
            mamba=mamba,
            # Not what the hidden size gives: the two have nothing to do with each other here.
            attention=attrs.evolve(
                parts.AttentionSizes.read(config),
                width=_older(config, "head_dim", "attention_head_dim", 128),
            ),
            eps=config.number("layer_norm_epsilon", 1e-5),
            mlp=config.integer("intermediate_size", 21_504),
            experts=config.integer("n_routed_experts", 8),
            expert_width=config.integer("moe_intermediate_size", 7688),
            shared_width=config.integer("moe_shared_expert_intermediate_size", 7688),
            latent=config.integer("moe_latent_size", hidden),
        )


def _older(config: ConfigReader, name: str, older: str, default: int) -> int:
    return config.integer(older if config.has(older) else name, default)


def _kinds(config: ConfigReader) -> tuple[str, ...]:
    """What each block is, from a list of names or from a pattern of letters."""
    for name in ("layers_block_type", "layer_types"):
        if config.has(name):
            return tuple(_KINDS[kind] for kind in config.texts(name, tuple(_KINDS)))
    pattern = config.text("hybrid_override_pattern")
    unknown = sorted(set(pattern) - set(_LETTERS))
    if unknown or not pattern:
        raise config.wrong("hybrid_override_pattern", pattern, "letters of " + "".join(_LETTERS))
    return tuple(_LETTERS[letter] for letter in pattern)


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("mamba_hidden_act", unless="silu", why="Mamba-2 is built with SiLU only")
    config.refuse("sliding_window", unless=None, why="sliding windows aren't built")
    sizes, kinds = _Sizes.read(config), _kinds(config)
    hidden, vocabulary = sizes.attention.hidden, config.integer("vocab_size")
    weights.skip("mtp.*")
    # Published under "backbone"; the library's own format of version 5 says "model".
    root = "model." if weights.has("model.embeddings.weight") else "backbone."
    embed = weights.matrix(f"{root}embeddings.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer, kind in enumerate(kinds):
        own = weights.under(f"{root}layers.{layer}.")
        norm, place = parts.rms_norm(own, "norm", hidden, sizes.eps), kinds[:layer].count(kind)
        mixer = own.under("mixer.")
        if kind == "mamba":
            blocks.append(Block(norm, _mamba2(config, mixer, sizes, place)))
        elif kind == "attention":
            attending = parts.attention(mixer, sizes.attention, place, rotates=False)
            blocks.append(Block(norm, attending))
        elif kind == "mlp":
            blocks.append(Block(norm, None, mlp=_mlp(config, mixer, hidden, sizes.mlp)))
        else:
            blocks.append(Block(norm, None, mlp=_experts(config, mixer, sizes)))
    return Decoder(
        shape=_shape(config, sizes, kinds, vocabulary),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, f"{root}norm_f", hidden, sizes.eps),
        head=parts.output_head(config, weights, embed),
    )


def _shape(
    config: ConfigReader, sizes: _Sizes, kinds: tuple[str, ...], vocabulary: int
) -> ModelShape:
    mamba, attention = sizes.mamba, sizes.attention
    states, kv_layers = kinds.count("mamba"), kinds.count("attention")
    widest = {
        "mamba": mamba.projected,
        "attention": attention.projected,
        "mlp": sizes.mlp,
        "moe": max(sizes.experts, sizes.shared_width),
    }
    chunk = min(_older(config, "chunk_size", "mamba_chunk_size", 128), 64)
    kv = KvSpec(kv_layers, attention.kv_heads, attention.width)
    return ModelShape(
        name=parts.model_name(config),
        vocab_size=vocabulary,
        hidden_size=attention.hidden,
        max_model_len=config.integer("max_position_embeddings", 4096),
        eos_token_ids=parts.eos_token_ids(config),
        states=mamba.states(states) if states else (),
        kv=kv if kv_layers else None,
        taps=mamba.taps,
        chunk_size=chunk,
        token_numbers=max(widest[kind] for kind in kinds),
        chunk_numbers=mamba.chunk_numbers(chunk),
    )


def _mamba2(config: ConfigReader, own: TensorLoader, sizes: _Sizes, place: int) -> Mixer:
    mamba = sizes.mamba
    # Steps have a lower bound only; time_step_limit is written and means nothing here.
    least = "mamba_dt_min" if config.has("mamba_dt_min") else "time_step_min"
    conv_bias = "mamba_conv_bias" if config.has("mamba_conv_bias") else "use_conv_bias"
    return parts.mamba2(
        own,
        mamba,
        place,
        norm=parts.grouped_norm(own, mamba.inner, mamba.groups, sizes.eps),
        bias=config.boolean("use_bias", False),
        conv_bias=config.boolean(conv_bias, True),
        dt_limits=(config.number(least, 0.001), math.inf),
    )


def _mlp(config: ConfigReader, own: TensorLoader, hidden: int, width: int) -> Mlp:
    bias = config.boolean("mlp_bias", False)
    return Mlp(
        up_proj=own.matrix("up_proj.weight", width, hidden),
        up_bias=own.tensor("up_proj.bias", width) if bias else None,
        down_proj=own.matrix("down_proj.weight", hidden, width),
        down_bias=own.tensor("down_proj.bias", hidden) if bias else None,
        activation=config.choice("mlp_hidden_act", parts.ACTIVATIONS, "relu2"),
    )


def _experts(config: ConfigReader, own: TensorLoader, sizes: _Sizes) -> FeedForward:
    hidden = sizes.attention.hidden
    router = SigmoidRouter(
        weight=own.vector("gate.weight", sizes.experts, hidden),
        correction=own.vector("gate.e_score_correction_bias", sizes.experts),
        top_k=config.integer("num_experts_per_tok", 2),
        groups=config.integer("n_group", 1),
        kept_groups=config.integer("topk_group", 1),
        renormalise=config.boolean("norm_topk_prob", True),
        scale=config.number("routed_scaling_factor", 1.0),
    )
    experts = load_experts(
        own.under("experts."),
        experts=sizes.experts,
        hidden=sizes.latent,
        width=sizes.expert_width,
        gated=False,
        activation=config.choice("mlp_hidden_act", parts.ACTIVATIONS, "relu2"),
    )
    return MixtureOfExperts(
        router=router,
        experts=experts,
        shared=_mlp(config, own.under("shared_experts."), hidden, sizes.shared_width),
        latent=_latent(config, own, sizes) if config.has("moe_latent_size") else None,
    )


def _latent(config: ConfigReader, own: TensorLoader, sizes: _Sizes) -> LatentProjection:
    bias = config.boolean("mlp_bias", False)
    hidden = sizes.attention.hidden

    def offset(name: str, rows: int) -> Tensor | None:
        return own.tensor(f"{name}.bias", rows) if bias else None

    return LatentProjection(
        enter=own.matrix("fc1_latent_proj.weight", sizes.latent, hidden),
        enter_bias=offset("fc1_latent_proj", sizes.latent),
        leave=own.matrix("fc2_latent_proj.weight", hidden, sizes.latent),
        leave_bias=offset("fc2_latent_proj", hidden),
    )


FAMILY = Family(("nemotron_h",), build)
