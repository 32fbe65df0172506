"""What the families of the gated delta rule have in common: names, keys, and the whole decoder.

They differ in how the input projection of a Gated DeltaNet layer is stored and in which layers
have experts; a family says both, and :func:`delta_decoder` does the rest. Norms are stored around
zero (``1 + weight``), but for the gated one; attention has a gate and norms on each head.
"""

from collections.abc import Callable, Sequence

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
_PERIOD = 4
"""Each so many layers one is attention, where the configuration doesn't list them."""


@attrs.frozen(eq=False, kw_only=True)
class DeltaFamily:
    """What a family says about itself."""

    input_projection: Callable[[TensorLoader, DeltaNetSizes], Tensor]
    """The joined projection of one layer, in the order of :class:`GatedDeltaNet`."""
    feed_forward: Callable[[TensorLoader, int], FeedForward]
    """The block of the layer with this number, from the loader under the block's prefix."""
    feed_forward_numbers: int
    """Numbers of the widest temporary that such a block makes for one token."""
    stem: str = "model."
    """Prefix of all but the output projection."""


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
            shared=parts.gated_mlp(weights.under("shared_expert."), self.hidden, self.shared_width),
            shared_gate=weights.vector("shared_expert_gate.weight", 1, self.hidden),
        )


def delta_decoder(config: ConfigReader, weights: TensorLoader, family: DeltaFamily) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("hidden_act", unless="silu", why="Gated DeltaNet is built with SiLU only")
    config.refuse("attn_output_gate", unless=True, why="attention is built with its gate only")
    sizes, attention = _delta_sizes(config), _attention_sizes(config)
    hidden, eps = sizes.hidden, config.number("rms_norm_eps", 1e-6)
    vocabulary, bias = config.integer("vocab_size"), config.boolean("attention_bias", False)
    recurrent = _recurrent_layers(config)

    stem = weights.under(family.stem)
    embed = stem.matrix("embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer, is_recurrent in enumerate(recurrent):
        own = stem.under(f"layers.{layer}.")
        place = recurrent[:layer].count(is_recurrent)
        mixer: Mixer
        if is_recurrent:
            projection = family.input_projection(own.under("linear_attn."), sizes)
            mixer = _delta_net(own.under("linear_attn."), sizes, place, eps, projection)
        else:
            mixer = _attention(own.under("self_attn."), attention, place, eps, bias=bias)
        norm = _centred_norm(own, "input_layernorm", hidden, eps)
        mlp_norm = _centred_norm(own, "post_attention_layernorm", hidden, eps)
        blocks.append(Block(norm, mixer, mlp_norm, family.feed_forward(own.under("mlp."), layer)))
    return Decoder(
        shape=_shape(config, sizes, attention, recurrent, family.feed_forward_numbers),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=_centred_norm(stem, "norm", hidden, eps),
        head=parts.output_head(config, weights, embed),
    )


def _shape(
    config: ConfigReader,
    sizes: DeltaNetSizes,
    attention: parts.AttentionSizes,
    recurrent: Sequence[bool],
    feed_forward_numbers: int,
) -> ModelShape:
    nets, others = recurrent.count(True), recurrent.count(False)
    gated = attention.projected + attention.heads * attention.width
    return ModelShape(
        name=parts.model_name(config),
        vocab_size=config.integer("vocab_size"),
        hidden_size=sizes.hidden,
        max_model_len=config.integer("max_position_embeddings", 32768),
        eos_token_ids=parts.eos_token_ids(config),
        states=sizes.states(nets) if nets else (),
        kv=KvSpec(others, attention.kv_heads, attention.width) if others else None,
        rope=read_rope(config, attention.width, partial=_ROTATED) if others else None,
        taps=sizes.taps if nets else 1,
        chunk_size=_CHUNK,
        token_numbers=max(sizes.projected, gated, feed_forward_numbers),
        chunk_numbers=sizes.chunk_numbers(_CHUNK) if nets else 1,
    )


def _recurrent_layers(config: ConfigReader) -> tuple[bool, ...]:
    if config.has("layer_types"):
        return parts.hybrid_layers(config, "layer_types")
    period = config.integer("full_attention_interval", _PERIOD)
    layers = config.integer("num_hidden_layers")
    return tuple((layer + 1) % period != 0 for layer in range(layers))


def _delta_sizes(config: ConfigReader) -> DeltaNetSizes:
    keys = config.integer("linear_num_key_heads", 16)
    values = config.integer("linear_num_value_heads", 32)
    if values % keys:
        raise config.wrong("linear_num_value_heads", values, f"a multiple of {keys} key heads")
    return DeltaNetSizes(
        hidden=config.integer("hidden_size"),
        key_heads=keys,
        value_heads=values,
        key_width=config.integer("linear_key_head_dim", 128),
        value_width=config.integer("linear_value_head_dim", 128),
        taps=config.integer("linear_conv_kernel_dim", 4),
    )


def _attention_sizes(config: ConfigReader) -> parts.AttentionSizes:
    width = config.integer("head_dim", _HEAD_DIM)
    return attrs.evolve(parts.AttentionSizes.read(config), width=width)


def _centred_norm(weights: TensorLoader, name: str, channels: int, eps: float) -> RmsNorm:
    """A norm whose weight is stored around zero."""
    return RmsNorm(weights.vector(f"{name}.weight", channels) + 1.0, eps)


def _delta_net(
    weights: TensorLoader, sizes: DeltaNetSizes, place: int, eps: float, projection: Tensor
) -> GatedDeltaNet:
    conv_weight, conv_bias = parts.conv_weights(weights, sizes.conv, sizes.taps, bias=False)
    norm = weights.vector("norm.weight", sizes.value_width)
    return GatedDeltaNet(
        state_layer=place,
        sizes=sizes,
        in_proj=projection,
        conv_weight=conv_weight,
        conv_bias=conv_bias,
        dt_bias=weights.vector("dt_bias", sizes.value_heads),
        a=-weights.vector("A_log", sizes.value_heads).exp(),
        norm=GatedNorm(norm.expand(sizes.value_heads, -1), eps, gate_first=False),
        out_proj=weights.matrix("out_proj.weight", sizes.hidden, sizes.values),
    )


def _attention(
    weights: TensorLoader, sizes: parts.AttentionSizes, place: int, eps: float, *, bias: bool
) -> Attention:
    """A layer whose q_proj gives each head's query, then its gate."""
    queries, shared = sizes.heads * sizes.width, sizes.kv_heads * sizes.width
    rows = {"q_proj": 2 * queries, "k_proj": shared, "v_proj": shared}
    names = {f"{name}.weight": count for name, count in rows.items()}
    biases = {f"{name}.bias": count for name, count in rows.items()}
    return Attention(
        kv_layer=place,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        width=sizes.width,
        qkv_proj=weights.stack(names, sizes.hidden),
        qkv_bias=weights.stack(biases) if bias else None,
        o_proj=weights.matrix("o_proj.weight", sizes.hidden, queries),
        o_bias=weights.tensor("o_proj.bias", sizes.hidden) if bias else None,
        query_norm=_centred_norm(weights, "q_norm", sizes.width, eps),
        key_norm=_centred_norm(weights, "k_norm", sizes.width, eps),
        gated=True,
    )
