"""What most families have in common: names of tensors, keys of config.json, and their defaults.

Each function asks a loader for the tensors of one part under the names that ``transformers``
gives them. A family whose names or shapes differ builds that part itself.
"""

import math
from collections.abc import Callable, Mapping

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers.attention import Attention
from adapters.layers.mamba2_mixer import GatedNorm, Mamba2, Mamba2Sizes
from adapters.layers.mlp import GatedMlp, relu_squared
from adapters.layers.norm import RmsNorm
from adapters.models.config_reader import ConfigReader
from adapters.models.loader import TensorLoader

__all__ = [
    "ACTIVATIONS",
    "AttentionSizes",
    "attention",
    "conv_weights",
    "eos_token_ids",
    "gated_mlp",
    "grouped_norm",
    "hybrid_layers",
    "mamba2",
    "mamba2_sizes",
    "model_name",
    "output_head",
    "rms_norm",
    "step_limits",
]


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu2": relu_squared,
}
"""Activations by the names of config.json's ``hidden_act``."""


def model_name(config: ConfigReader) -> str:
    """What events and errors call the model: its kind."""
    return config.text("model_type")


def eos_token_ids(config: ConfigReader) -> tuple[int, ...]:
    """End-of-sequence ids: none, one or a list."""
    return config.integers("eos_token_id", ())


def rms_norm(weights: TensorLoader, name: str, channels: int, eps: float) -> RmsNorm:
    """The norm whose weight is ``name``.weight."""
    return RmsNorm(weights.vector(f"{name}.weight", channels), eps)


def output_head(
    config: ConfigReader, weights: TensorLoader, embed: Tensor, name: str = "lm_head.weight"
) -> Tensor:
    """The matrix of the last product: the embedding itself where they are tied.

    Where the configuration doesn't say, they are tied if the weights have no other matrix. A
    matrix beside a tied embedding is that embedding once more, or, where the numbers differ, goes
    before it, as in ``transformers``.
    """
    if not config.boolean("tie_word_embeddings", not weights.has(name)):
        return weights.matrix(name, *embed.shape)
    return weights.copy_of(name, embed) if weights.has(name) else embed


_RECURRENT = ("mamba", "linear_attention")
_ATTENTION = ("attention", "full_attention")


def hybrid_layers(config: ConfigReader, name: str) -> tuple[bool, ...]:
    """For each layer, whether it is recurrent; the list stands under ``name``.

    Spelled "mamba" and "attention" before version 5 of ``transformers``, "linear_attention" and
    "full_attention" since.
    """
    kinds = config.texts(name, (*_RECURRENT, *_ATTENTION))
    layers = config.integer("num_hidden_layers", len(kinds))
    if len(kinds) != layers:
        raise config.wrong(name, list(kinds), f"a list of {layers} (num_hidden_layers)")
    return tuple(kind in _RECURRENT for kind in kinds)


def mamba2_sizes(config: ConfigReader, inner: int | None = None) -> Mamba2Sizes:
    """Dimensions under the keys mamba_n_heads, mamba_d_state, ... of the hybrid families.

    Args:
        config: the configuration.
        inner: channels of x; ``mamba_expand`` times the hidden size when ``None``.
    """
    hidden = config.integer("hidden_size")
    inner = inner or int(config.number("mamba_expand", 2.0) * hidden)
    heads, groups = config.integer("mamba_n_heads", 128), config.integer("mamba_n_groups", 1)
    if inner % heads:
        raise config.wrong("mamba_n_heads", heads, f"a divisor of {inner} channels")
    automatic = config.values.get("mamba_d_head", "auto") == "auto"
    head_dim = inner // heads if automatic else config.integer("mamba_d_head", inner // heads)
    if head_dim * heads != inner:
        raise config.wrong("mamba_d_head", head_dim, f"{inner} channels / {heads} heads")
    if heads % groups:
        raise config.wrong("mamba_n_groups", groups, f"a divisor of {heads} heads")
    return Mamba2Sizes(
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        state=config.integer("mamba_d_state", 256),
        groups=groups,
        taps=config.integer("mamba_d_conv", 4),
    )


@attrs.frozen(kw_only=True)
class AttentionSizes:
    """Dimensions of an attention layer."""

    hidden: int
    heads: int
    kv_heads: int
    width: int
    """Channels of a head."""

    @classmethod
    def read(cls, config: ConfigReader) -> "AttentionSizes":
        """Read them under the usual keys; ``head_dim`` may be left out."""
        hidden = config.integer("hidden_size")
        heads = config.integer("num_attention_heads")
        kv_heads = config.integer("num_key_value_heads", heads)
        if heads % kv_heads:
            raise config.wrong("num_key_value_heads", kv_heads, f"a divisor of {heads} heads")
        width = config.integer("head_dim", max(1, hidden // heads))
        return cls(hidden=hidden, heads=heads, kv_heads=kv_heads, width=width)

    @property
    def projected(self) -> int:
        """Rows of queries, keys and values together."""
        return (self.heads + 2 * self.kv_heads) * self.width


def attention(
    weights: TensorLoader,
    sizes: AttentionSizes,
    kv_layer: int,
    *,
    bias: bool = False,
    o_bias: bool = False,
    out: str = "o_proj",
    norms: tuple[str, str] | None = None,
    norm_eps: float = 1e-6,
    scale: float | None = None,
    rotates: bool = True,
) -> Attention:
    """An attention layer from q_proj, k_proj, v_proj and ``out``.

    Args:
        weights: under the layer's prefix.
        sizes: its dimensions.
        kv_layer: its place among the attention layers.
        bias: whether queries, keys and values have one.
        o_bias: whether the output projection has one.
        out: name of the output projection.
        norms: names of the norms of queries and of keys, over the channels of a head.
        norm_eps: of these.
        scale: of the scores.
        rotates: whether positions are told by rotation.
    """
    queries, shared = sizes.heads * sizes.width, sizes.kv_heads * sizes.width
    parts = {"q_proj": queries, "k_proj": shared, "v_proj": shared}
    names = {f"{name}.weight": rows for name, rows in parts.items()}
    biases = {f"{name}.bias": rows for name, rows in parts.items()}
    query_norm, key_norm = (
        (rms_norm(weights, name, sizes.width, norm_eps) for name in norms)
        if norms
        else (None, None)
    )
    return Attention(
        kv_layer=kv_layer,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        width=sizes.width,
        qkv_proj=weights.stack(names, sizes.hidden),
        qkv_bias=weights.stack(biases) if bias else None,
        o_proj=weights.matrix(f"{out}.weight", sizes.hidden, queries),
        o_bias=weights.tensor(f"{out}.bias", sizes.hidden) if o_bias else None,
        query_norm=query_norm,
        key_norm=key_norm,
        scale=scale,
        rotates=rotates,
    )


def gated_mlp(
    weights: TensorLoader,
    hidden: int,
    width: int,
    *,
    bias: bool = False,
    activation: Callable[[Tensor], Tensor] = functional.silu,
    gate_scale: float = 1.0,
    scale: float = 1.0,
) -> GatedMlp:
    """A gated block from gate_proj, up_proj and down_proj."""
    rows = {"gate_proj.weight": width, "up_proj.weight": width}
    biases = {"gate_proj.bias": width, "up_proj.bias": width}
    return GatedMlp(
        gate_up_proj=weights.stack(rows, hidden),
        gate_up_bias=weights.stack(biases) if bias else None,
        down_proj=weights.matrix("down_proj.weight", hidden, width),
        down_bias=weights.tensor("down_proj.bias", hidden) if bias else None,
        activation=activation,
        gate_scale=gate_scale,
        scale=scale,
    )


def conv_weights(
    weights: TensorLoader, channels: int, taps: int, *, bias: bool, name: str = "conv1d"
) -> tuple[Tensor, Tensor]:
    """A depthwise convolution as [taps, channels] and its bias (zeros where it has none)."""
    weight = weights.vector(f"{name}.weight", channels, 1, taps)[:, 0].T.contiguous()
    if bias:
        return weight, weights.vector(f"{name}.bias", channels)
    return weight, torch.zeros_like(weight[0])


def step_limits(config: ConfigReader, name: str = "time_step_limit") -> tuple[float, float]:
    """Bounds of Mamba-2's step after its softplus."""
    limits = config.numbers(name, (0.0, math.inf))
    if len(limits) != 2 or not 0 <= limits[0] <= limits[1]:
        raise config.wrong(name, list(limits), "two numbers, the lower one first")
    return limits[0], limits[1]


def mamba2(
    weights: TensorLoader,
    sizes: Mamba2Sizes,
    state_layer: int,
    *,
    norm: GatedNorm | None,
    bias: bool,
    conv_bias: bool,
    dt_limits: tuple[float, float] = (0.0, math.inf),
    in_scale: Tensor | None = None,
    out_bias: bool | None = None,
) -> Mamba2:
    """A Mamba-2 mixer from in_proj, conv1d, dt_bias, A_log, D and out_proj.

    Args:
        weights: under the mixer's prefix.
        sizes: its dimensions.
        state_layer: its place among the layers with recurrent state.
        norm: the gated norm, loaded already; ``None`` where there is none.
        bias: whether the input projection has one.
        conv_bias: whether the short convolution has one.
        dt_limits: bounds of the step.
        in_scale: [rows of in_proj], multiplies what the projection gives.
        out_bias: whether the output projection has one; as ``bias`` when ``None``.
    """
    conv_weight, conv_offset = conv_weights(weights, sizes.conv, sizes.taps, bias=conv_bias)
    has_out_bias = bias if out_bias is None else out_bias
    return Mamba2(
        state_layer=state_layer,
        sizes=sizes,
        in_proj=weights.matrix("in_proj.weight", sizes.projected, sizes.hidden),
        in_bias=weights.tensor("in_proj.bias", sizes.projected) if bias else None,
        in_scale=in_scale,
        conv_weight=conv_weight,
        conv_bias=conv_offset,
        dt_bias=weights.vector("dt_bias", sizes.heads),
        dt_limits=dt_limits,
        a=-weights.vector("A_log", sizes.heads).exp(),
        skip=weights.vector("D", sizes.heads)[:, None],
        norm=norm,
        out_proj=weights.matrix("out_proj.weight", sizes.hidden, sizes.inner),
        out_bias=weights.tensor("out_proj.bias", sizes.hidden) if has_out_bias else None,
    )


def grouped_norm(
    weights: TensorLoader, channels: int, groups: int, eps: float, *, gate_first: bool = True
) -> GatedNorm:
    """A gated norm from norm.weight, over each of ``groups`` groups of channels."""
    weight = weights.vector("norm.weight", channels).view(groups, -1)
    return GatedNorm(weight, eps, gate_first)
