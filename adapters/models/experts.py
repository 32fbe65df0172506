"""Stacked experts from either layout in which files hold them.

*Split*: one tensor for each expert and projection, as most published checkpoints have them and
as ``transformers`` writes by default. *Fused*: one tensor for all experts of a projection, as its
``save_original_format=False`` writes. A family says which names it has; the file decides.
"""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from adapters.layers.moe import Experts
from adapters.models.loader import TensorLoader

__all__ = ["load_experts", "load_granite_experts"]

_Activation = Callable[[Tensor], Tensor]


def load_experts(
    weights: TensorLoader,
    *,
    experts: int,
    hidden: int,
    width: int,
    gated: bool = True,
    activation: _Activation = functional.silu,
    split: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Experts:
    """Experts from gate_proj, up_proj and down_proj, split or fused.

    Args:
        weights: under the prefix of the experts, their number not included.
        experts: how many there are.
        hidden: channels that go in and come out.
        width: channels between the two projections.
        gated: whether there is a gate beside each up projection.
        activation: of the gate, or of the up projection where there is no gate.
        split: what the three are called where each expert has its own.
    """
    fused = "gate_up_proj" if gated else "up_proj"
    gate, up, down = split
    into = (gate, up) if gated else (up,)
    rows = len(into) * width
    if weights.has(fused):
        return Experts(
            weights.tensor(fused, experts, rows, hidden),
            weights.tensor("down_proj", experts, hidden, width),
            activation,
        )
    ups = {f"{expert}.{name}.weight": width for expert in range(experts) for name in into}
    downs = {f"{expert}.{down}.weight": hidden for expert in range(experts)}
    return Experts(
        weights.stack(ups, hidden).view(experts, rows, hidden),
        weights.stack(downs, width).view(experts, hidden, width),
        activation,
    )


def load_granite_experts(
    weights: TensorLoader,
    *,
    experts: int,
    hidden: int,
    width: int,
    activation: _Activation = functional.silu,
) -> tuple[Tensor, Experts]:
    """The router's weight, in the compute type, and the experts, as Granite names them.

    Both layouts are fused; the names differ. Arguments as for :func:`load_experts`.
    """
    names = ("router.layer.weight", "input_linear.weight", "output_linear.weight")
    if weights.has("experts.gate_up_proj"):
        names = ("router.weight", "experts.gate_up_proj", "experts.down_proj")
    router, up, down = names
    return weights.vector(router, experts, hidden), Experts(
        weights.tensor(up, experts, 2 * width, hidden),
        weights.tensor(down, experts, hidden, width),
        activation,
    )
