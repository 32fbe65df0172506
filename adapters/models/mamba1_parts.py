"""What the families of Mamba-1 layers have in common."""

import math

from adapters.layers.mamba1_mixer import Mamba1, Mamba1Norms, Mamba1Sizes
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.loader import TensorLoader

__all__ = ["CHUNK", "mamba1", "rank"]

CHUNK = 64
"""Tokens in a chunk of the scan; the recurrence runs token by token inside it all the same."""


def rank(config: ConfigReader, name: str, hidden: int) -> int:
    """Rank of the step's projection: a number, or "auto" for a sixteenth of the hidden size."""
    automatic = config.values.get(name, "auto") == "auto"
    default = math.ceil(hidden / 16)
    return default if automatic else config.integer(name, default)


def mamba1(
    weights: TensorLoader,
    sizes: Mamba1Sizes,
    state_layer: int,
    *,
    bias: bool,
    conv_bias: bool,
    norms: Mamba1Norms | None = None,
) -> Mamba1:
    """A Mamba-1 mixer from in_proj, conv1d, x_proj, dt_proj, A_log, D and out_proj.

    Args:
        weights: under the mixer's prefix.
        sizes: its dimensions.
        state_layer: its place among the layers with recurrent state.
        bias: whether the input and output projections have one.
        conv_bias: whether the short convolution has one.
        norms: over dt, B and C, loaded already.
    """
    conv_weight, conv_offset = parts.conv_weights(weights, sizes.inner, sizes.taps, bias=conv_bias)
    return Mamba1(
        state_layer=state_layer,
        sizes=sizes,
        in_proj=weights.matrix("in_proj.weight", 2 * sizes.inner, sizes.hidden),
        in_bias=weights.tensor("in_proj.bias", 2 * sizes.inner) if bias else None,
        conv_weight=conv_weight,
        conv_bias=conv_offset,
        x_proj=weights.matrix("x_proj.weight", sizes.selected, sizes.inner),
        norms=norms,
        dt_proj=weights.matrix("dt_proj.weight", sizes.inner, sizes.rank),
        dt_bias=weights.vector("dt_proj.bias", sizes.inner),
        # Stored as [channels, state].
        a=-weights.vector("A_log", sizes.inner, sizes.state).exp().T.contiguous(),
        skip=weights.vector("D", sizes.inner),
        out_proj=weights.matrix("out_proj.weight", sizes.hidden, sizes.inner),
        out_bias=weights.tensor("out_proj.bias", sizes.hidden) if bias else None,
    )
