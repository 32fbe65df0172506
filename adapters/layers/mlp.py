"""Feed-forward blocks without experts."""

from collections.abc import Callable

import attrs
from torch import Tensor
from torch.nn import functional

from adapters.layers.linear import linear

__all__ = ["GatedMlp", "Mlp", "relu_squared"]


def relu_squared(x: Tensor) -> Tensor:
    """The square of the positive part (So et al. 2021)."""
    return functional.relu(x).square()


@attrs.frozen(eq=False, kw_only=True)
class GatedMlp:
    """``down(act(gate(x)) * up(x))`` (Shazeer 2020)."""

    gate_up_proj: Tensor
    """Gate, then up, stacked: [2 * width, hidden]."""
    gate_up_bias: Tensor | None = None
    down_proj: Tensor
    down_bias: Tensor | None = None
    activation: Callable[[Tensor], Tensor] = functional.silu
    gate_scale: float = 1.0
    """Multiplies the gate before its activation (Falcon-H1)."""
    scale: float = 1.0
    """Multiplies the result (Falcon-H1)."""

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x, result [tokens, hidden]."""
        return self.narrow(linear(x, self.gate_up_proj, self.gate_up_bias))

    def narrow(self, widened: Tensor) -> Tensor:
        """The same from gate and up: [tokens, 2 * width]."""
        gate, up = widened.chunk(2, dim=-1)
        if self.gate_scale != 1.0:
            gate = gate * self.gate_scale
        result = linear(self.activation(gate).mul_(up), self.down_proj, self.down_bias)
        return result if self.scale == 1.0 else result * self.scale


@attrs.frozen(eq=False, kw_only=True)
class Mlp:
    """``down(act(up(x)))``."""

    up_proj: Tensor
    up_bias: Tensor | None = None
    down_proj: Tensor
    down_bias: Tensor | None = None
    activation: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x, result [tokens, hidden]."""
        widened = self.activation(linear(x, self.up_proj, self.up_bias))
        return linear(widened, self.down_proj, self.down_bias)
