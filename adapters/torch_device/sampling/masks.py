"""Masks of allowed tokens, packed 32 to a word, as a tensor of truth values."""

import numpy as np
import torch
from torch import Tensor

__all__ = ["WORD", "cleared"]

WORD = 32
"""Tokens of a word; bit ``token % 32`` stands for a token."""


def cleared(words: Tensor, vocabulary: int, device: torch.device) -> Tensor:
    """Which tokens a mask leaves out: [rows, vocabulary] on ``device``.

    Args:
        words: int32 [rows, ceil(vocabulary / 32)] on the CPU.
        vocabulary: tokens of a row.
        device: where the logits are.
    """
    return (
        _by_numpy(words, vocabulary)
        if device.type == "cpu"
        else _by_torch(words.to(device), vocabulary)
    )


def _by_numpy(words: Tensor, vocabulary: int) -> Tensor:
    octets = ~words.numpy().view(np.uint8)
    bits = np.unpackbits(octets, axis=1, count=vocabulary, bitorder="little")
    return torch.as_tensor(bits.view(np.bool_))


def _by_torch(words: Tensor, vocabulary: int) -> Tensor:
    """Five times as much work, and none of it on the CPU: the words travel packed."""
    places = torch.arange(WORD, dtype=torch.int32, device=words.device)
    bits = (words[:, :, None] >> places) & 1
    return bits.flatten(1)[:, :vocabulary] == 0
