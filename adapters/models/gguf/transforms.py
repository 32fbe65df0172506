"""What conversion to GGUF does to tensors, undone.

The facts are those of llama.cpp's converter (``conversion/*.py``, as of the revisions
7bca1fd9ca2a, 32e9e0448790 and 03173d5e78f8) and of its graphs (``src/models``): each function
names the converter's step that it undoes. All work on meta tensors, for shapes.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from adapters.models.errors import DamagedWeights

__all__ = [
    "as_conv",
    "as_row",
    "flat",
    "join",
    "log_decay",
    "log_decay_flat",
    "minus_one",
    "unpermuted",
]


def unpermuted(heads: int) -> Callable[[Tensor], Tensor]:
    """Rows of queries or keys for rotating halves, as Hugging Face has them.

    Undoes ``LlamaModel.permute``, which interleaves the halves of each head, since ggml rotates
    neighbours: [heads, 2, half] became [heads, half, 2].
    """

    def undo(rows: Tensor) -> Tensor:
        half = rows.shape[0] // heads // 2
        split = rows.reshape(heads, half, 2, *rows.shape[1:])
        return split.swapaxes(1, 2).reshape(rows.shape)

    return undo


def log_decay(decay: Tensor) -> Tensor:
    """``A_log`` of ``A = -exp(A_log)``."""
    if decay.device.type != "meta" and not bool((decay < 0).all()):
        raise DamagedWeights("ssm_a must be below zero everywhere, and isn't; convert it again")
    return torch.log(-decay)


def log_decay_flat(decay: Tensor) -> Tensor:
    """The same for Mamba-2, where [heads] became [heads, 1]."""
    return log_decay(decay).reshape(-1)


def flat(values: Tensor) -> Tensor:
    """[channels] of [channels, 1] (``D``) or of [groups, channels / groups] (the gated norm)."""
    return values.reshape(-1)


def as_conv(taps: Tensor) -> Tensor:
    """[channels, 1, taps] of a squeezed convolution."""
    return taps.unsqueeze(1)


def as_row(values: Tensor) -> Tensor:
    """[1, channels] of a matrix of one row, which may have been squeezed."""
    return values.reshape(1, -1)


def minus_one(weight: Tensor) -> Tensor:
    """A norm's weight around zero, of one around one."""
    return weight - 1


def join(dim: int) -> Callable[..., Tensor]:
    """Tensors that were split along a dimension (gate and up projections)."""

    def joined(*tensors: Tensor) -> Tensor:
        return torch.cat(tensors, dim)

    return joined
