"""Number types of a model on a device."""

import attrs
import torch

__all__ = ["Precision"]


@attrs.frozen
class Precision:
    """Products run in the weights' type; all between them runs in the compute type."""

    weights: torch.dtype
    """Of products and of the key/value cache."""
    compute: torch.dtype
    """Of everything that isn't a product: float32 or float64."""
    state: torch.dtype
    """Of the recurrent state; the compute type unless asked otherwise."""
