"""Random weights with which a mistake shows: no norm is one, no bias is zero, no decay is mild."""

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["randomise"]

_TAPS = 0.6


def randomise(tensors: Mapping[str, Tensor], seed: int, gain: float) -> None:
    """Fill the tensors of a model in place, by what their names and shapes say they are.

    Tensors that share their memory (tied weights) are filled once.
    """
    generator = torch.Generator().manual_seed(seed)
    seen: set[int] = set()
    with torch.no_grad():
        for name, tensor in tensors.items():
            if not tensor.is_floating_point() or tensor.data_ptr() in seen:
                continue
            seen.add(tensor.data_ptr())
            tensor.copy_(_values(name, tensor, generator, gain))


def _values(name: str, tensor: Tensor, generator: torch.Generator, gain: float) -> Tensor:
    shape = tensor.shape

    def normal() -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def uniform(low: float, high: float) -> Tensor:
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
        return low + drawn * (high - low)

    if name.endswith(("dt_bias", "dt_proj.bias")):
        return uniform(-2, 1)  # steps from an eighth to one and a third: some heads forget at once
    if name.endswith("A_log"):
        return uniform(-1.5, 1)
    if tensor.ndim == 1:
        # Around what the model was made with: ones for most norms, zeros for those that add one.
        return tensor.double() + uniform(-0.5, 0.5)
    if "embed" in name and tensor.ndim == 2:
        return normal()
    if "conv" in name and tensor.ndim == 3:
        return _TAPS * normal()
    scaled: Tensor = normal() * (gain * float(shape[-1]) ** -0.5)
    return scaled
