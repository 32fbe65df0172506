"""Root-mean-square norms."""

import attrs
from torch import Tensor
from torch.nn import functional

__all__ = ["RmsNorm", "rms_norm"]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale the last dimension to a mean square of one, then by ``weight``."""
    return functional.rms_norm(x, x.shape[-1:], eps=eps) * weight


@attrs.frozen(eq=False)
class RmsNorm:
    """RMSNorm (Zhang and Sennrich 2019) over the last dimension.

    A family whose weights are stored around zero adds the one when it loads them.
    """

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x, result [..., channels]."""
        return rms_norm(x, self.weight, self.eps)
