"""Which number types a ``dtype`` name stands for."""

import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.precision import Precision
from kernel.errors import ValidationError

__all__ = ["choose_precision", "stored_dtype"]

_PRECISIONS = {
    "float32": (torch.float32, torch.float32),
    "float64": (torch.float64, torch.float64),
    "bfloat16": (torch.bfloat16, torch.float32),
    "float16": (torch.float16, torch.float32),
}
"""Type of the weights and of what is computed between products, by name."""


_STATES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def choose_precision(
    dtype: str,
    device: torch.device,
    *,
    state_dtype: str = "auto",
    stored: str | None = None,
) -> Precision:
    """Number types for the names of a configuration.

    Args:
        dtype: ``"auto"`` is float32 on a CPU, where bfloat16 products are slower on processors
            without AMX; elsewhere it is ``stored``.
        device: where the model will run.
        state_dtype: ``"auto"`` is the type of what is computed between products: float32, or
            float64 for a float64 model. 16 bits halve a slot and round the state at each step.
        stored: what config.json says of its weights; bfloat16 where it says nothing.

    Raises:
        ValidationError: no such name.
    """
    if dtype == "auto":
        known_stored = stored if stored in _PRECISIONS else "bfloat16"
        dtype = "float32" if device.type == "cpu" else known_stored
    if dtype not in _PRECISIONS:
        known = ", ".join(["auto", *_PRECISIONS])
        raise ValidationError(parameter="dtype", value=dtype, why=f"use one of {known}")
    if state_dtype != "auto" and state_dtype not in _STATES:
        known = ", ".join(["auto", *_STATES])
        raise ValidationError(parameter="state_dtype", value=state_dtype, why=f"use one of {known}")
    weights, compute = _PRECISIONS[dtype]
    return Precision(weights=weights, compute=compute, state=_STATES.get(state_dtype, compute))


def stored_dtype(config: ConfigReader) -> str | None:
    """The number type that config.json gives for its weights, in old and new spelling.

    Raises:
        ConfigError: it isn't a text.
    """
    for part in (config, config.sub("text_config")):
        for name in ("dtype", "torch_dtype"):
            if part.has(name):
                return part.text(name).removeprefix("torch.")
    return None
