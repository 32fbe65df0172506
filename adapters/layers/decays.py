"""Products of decays inside a chunk, for recurrences whose state decays by a factor a token."""

import torch
from torch import Tensor

from adapters.ragged.indices import ChunkLayout

__all__ = ["shares_left"]


def shares_left(layout: ChunkLayout, log_decay: Tensor) -> Tensor:
    """What is left after each token of each earlier one. Shapes: [..., Q] to [..., Q, Q].

    Each pair's decays are added up by themselves: the difference of two sums from the chunk's
    start is off by the rounding of the larger one, up to a thousandth where a decay is total.
    No sum is above zero, so no exponential overflows.
    """
    steps = torch.where(layout.later.mT, log_decay[..., None], 0.0)
    return steps.cumsum(dim=-2).exp_().tril_()
