"""Which number types a ``dtype`` name stands for."""

import torch

from adapters.models.precision import Precision
from kernel.errors import ValidationError

__all__ = ["choose_precision"]

_PRECISIONS = {
    "float32": (torch.float32, torch.float32),
    "float64": (torch.float64, torch.float64),
    "bfloat16": (torch.bfloat16, torch.float32),
    "float16": (torch.float16, torch.float32),
}
"""Type of the weights and of what is computed between products, by name."""


def choose_precision(dtype: str, device: torch.device) -> Precision:
    """Number types for a ``dtype`` name; ``"auto"`` is float32 on a CPU, else bfloat16.

    bfloat16 products are slower than float32 ones on processors without AMX.

    Raises:
        ValidationError: no such name.
    """
    if dtype == "auto":
        dtype = "float32" if device.type == "cpu" else "bfloat16"
    if dtype not in _PRECISIONS:
        known = ", ".join(["auto", *_PRECISIONS])
        raise ValidationError(parameter="dtype", value=dtype, why=f"use one of {known}")
    weights, compute = _PRECISIONS[dtype]
    return Precision(weights=weights, compute=compute, state=compute)
