"""Products with a model's matrices, whose number type may be narrower than the layer's."""

from torch import Tensor
from torch.nn import functional

__all__ = ["linear"]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias`` in the weight's type, the result in the type of ``x``."""
    if x.dtype == weight.dtype:
        return functional.linear(x, weight, bias)
    return functional.linear(x.to(weight.dtype), weight, bias).to(x.dtype)
