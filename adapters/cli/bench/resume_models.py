"""The random models that resuming is measured on: one whose state grows with its history, one not.

Small enough that a CPU computes a hundred thousand tokens in a minute or two, with the proportions
of larger ones: state and history cost what they cost by bytes and by tokens, and the text that
random weights write has no say in that.
"""

import torch

from adapters.models.hybrid import HybridConfig
from adapters.models.weights import random_weights
from adapters.torch_device import TorchDevice
from kernel.step import Device

__all__ = ["MODELS", "open_model"]

_LONGEST = 1 << 17

MODELS = {
    "hybrid": HybridConfig(
        vocab_size=1024,
        hidden_size=256,
        layer_types=("mamba2", "mamba2", "attention", "mamba2"),
        num_heads=2,
        num_kv_heads=2,
        attn_head_dim=32,
        max_model_len=_LONGEST,
        name="random-hybrid",
    ),
    "recurrent": HybridConfig(
        vocab_size=1024,
        hidden_size=256,
        layer_types=("mamba2",) * 4,
        max_model_len=_LONGEST,
        name="random-recurrent",
    ),
}


def open_model(name: str) -> Device:
    """One of them on the CPU, in float32, with the same weights each time."""
    model = MODELS[name]
    weights = random_weights(model, 0, torch.float32)
    return TorchDevice.of_weights(model.to_dict(), weights, dtype="float32", device="cpu")
