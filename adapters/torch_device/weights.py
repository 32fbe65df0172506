"""A model's named tensors, made ready for steps: types chosen, projections joined.

Products run in the weights' type; everything between them (norms, gates, the recurrence) runs in
the compute type, float32 or float64. Small vectors are kept in the compute type.
"""

from collections.abc import Mapping

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from adapters.models.hybrid import HybridConfig
from adapters.models.weights import check_weights

__all__ = [
    "AttentionWeights",
    "LayerWeights",
    "MambaWeights",
    "MlpWeights",
    "ModelWeights",
    "Precision",
    "linear",
    "prepare_weights",
    "rms_norm",
]


@attrs.frozen
class Precision:
    """Number types of a model on the device."""

    weights: torch.dtype
    """Of products and of the key/value cache."""
    compute: torch.dtype
    """Of the recurrent state and of everything that isn't a product."""


@attrs.frozen(eq=False)
class MambaWeights:
    """Of one Mamba-2 mixer."""

    in_proj: Tensor
    conv_weight: Tensor
    """[taps, channels]"""
    conv_bias: Tensor
    dt_bias: Tensor
    a: Tensor
    """[heads], negative"""
    skip: Tensor
    """[heads, 1]"""
    norm: Tensor
    """[groups, channels / groups]"""
    out_proj: Tensor


@attrs.frozen(eq=False)
class AttentionWeights:
    """Of one attention mixer."""

    qkv_proj: Tensor
    """Queries, then keys, then values, stacked."""
    o_proj: Tensor


@attrs.frozen(eq=False)
class MlpWeights:
    """Of one SwiGLU block."""

    norm: Tensor
    gate_up_proj: Tensor
    """Gate, then up, stacked."""
    down_proj: Tensor


@attrs.frozen(eq=False)
class LayerWeights:
    """Of one layer."""

    norm: Tensor
    mixer: MambaWeights | AttentionWeights
    mlp: MlpWeights | None


@attrs.frozen(eq=False)
class ModelWeights:
    """Of a whole model."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor
    num_parameters: int


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T`` in the weight's type, the result in the type of ``x``."""
    if x.dtype == weight.dtype:
        return functional.linear(x, weight)
    return functional.linear(x.to(weight.dtype), weight).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale the last dimension to a mean square of one, then by ``weight``."""
    return functional.rms_norm(x, x.shape[-1:], eps=eps) * weight


def prepare_weights(
    config: HybridConfig,
    named: Mapping[str, Tensor],
    precision: Precision,
    device: torch.device,
) -> ModelWeights:
    """Check names and shapes, then convert, join and move the tensors.

    Raises:
        MissingTensor, MisshapenTensor: the weights aren't those of this configuration.
    """
    check_weights(config, named)
    source = _Source(named, precision, device)
    embed = source.matrix("embed.weight")
    return ModelWeights(
        embed=embed,
        layers=tuple(_layer(config, source, layer) for layer in range(config.num_layers)),
        final_norm=source.vector("final_norm.weight"),
        head=embed if config.tie_embeddings else source.matrix("lm_head.weight"),
        num_parameters=sum(tensor.numel() for tensor in named.values()),
    )


@attrs.frozen(eq=False)
class _Source:
    named: Mapping[str, Tensor]
    precision: Precision
    device: torch.device

    def matrix(self, *names: str) -> Tensor:
        parts = [self.named[name].detach() for name in names]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        return joined.to(self.device, self.precision.weights).contiguous()

    def vector(self, name: str) -> Tensor:
        return self.named[name].detach().to(self.device, self.precision.compute)


def _layer(config: HybridConfig, source: _Source, layer: int) -> LayerWeights:
    own = f"layers.{layer}."
    recurrent = config.layer_types[layer] == "mamba2"
    return LayerWeights(
        norm=source.vector(own + "norm.weight"),
        mixer=_mamba(config, source, own) if recurrent else _attention(source, own),
        mlp=_mlp(source, own) if config.intermediate_size else None,
    )


def _mamba(config: HybridConfig, source: _Source, own: str) -> MambaWeights:
    mixer = own + "mixer."
    return MambaWeights(
        in_proj=source.matrix(mixer + "in_proj.weight"),
        conv_weight=source.vector(mixer + "conv1d.weight")[:, 0].T.contiguous(),
        conv_bias=source.vector(mixer + "conv1d.bias"),
        dt_bias=source.vector(mixer + "dt_bias"),
        a=-torch.exp(source.vector(mixer + "A_log")),
        skip=source.vector(mixer + "D")[:, None],
        norm=source.vector(mixer + "norm.weight").view(config.n_groups, -1),
        out_proj=source.matrix(mixer + "out_proj.weight"),
    )


def _attention(source: _Source, own: str) -> AttentionWeights:
    names = [f"{own}mixer.{which}_proj.weight" for which in "qkv"]
    return AttentionWeights(
        qkv_proj=source.matrix(*names), o_proj=source.matrix(own + "mixer.o_proj.weight")
    )


def _mlp(source: _Source, own: str) -> MlpWeights:
    return MlpWeights(
        norm=source.vector(own + "mlp_norm.weight"),
        gate_up_proj=source.matrix(own + "mlp.gate_proj.weight", own + "mlp.up_proj.weight"),
        down_proj=source.matrix(own + "mlp.down_proj.weight"),
    )
