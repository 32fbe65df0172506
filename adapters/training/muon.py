"""The optimizer: Muon for the matrices inside the layers, AdamW for everything else.

Muon (Jordan and others, 2024, https://kellerjordan.github.io/posts/muon/) makes each momentum
matrix orthogonal before it is applied, which learns more from each token; on two cores tokens are
what is short. Matrices of one shape are made orthogonal together, in one batched product.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from adapters.training.peers import Peers

__all__ = ["Muon", "make_optimizers"]

_ITERATION = (3.4445, -4.7750, 2.0315)


def orthogonal(matrices: Tensor) -> Tensor:
    """Push all singular values of a stack of matrices [K, rows, columns] near one."""
    wide = matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices
    x: Tensor = wide / (wide.pow(2).sum((1, 2), keepdim=True).sqrt() + 1e-7)
    a, b, c = _ITERATION
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if matrices.shape[1] > matrices.shape[2] else x


class Muon:
    """Momentum made orthogonal; ``rate`` is set from outside before each step."""

    def __init__(
        self, tensors: Mapping[str, Tensor], rate: float, decay: float, peers: Peers
    ) -> None:
        self.rate = rate
        self._peers = peers
        self._decay = decay
        self._tensors = dict(tensors)
        self._momentum = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients that the tensors hold."""
        smoothed = {name: self._nesterov(name) for name in self._tensors}
        updates = {name: torch.zeros_like(tensor) for name, tensor in self._tensors.items()}
        by_shape: dict[tuple[int, ...], list[str]] = {}
        for name, tensor in self._tensors.items():
            by_shape.setdefault(tuple(tensor.shape), []).append(name)
        for names in by_shape.values():
            mine = self._peers.mine(names)
            if mine:
                made = orthogonal(torch.stack([smoothed[name] for name in mine]))
                updates |= dict(zip(mine, made.unbind(), strict=True))
        self._peers.total(list(updates.values()))
        for name, tensor in self._tensors.items():
            scale = self.rate * max(1.0, tensor.shape[0] / tensor.shape[1]) ** 0.5
            tensor.mul_(1 - self.rate * self._decay).sub_(updates[name] * scale)

    def _nesterov(self, name: str) -> Tensor:
        gradient = self._tensors[name].grad
        if gradient is None:
            raise ValueError(f"{name} has no gradient")
        momentum = self._momentum[name]
        momentum.lerp_(gradient, 0.05)
        return gradient.lerp(momentum, 0.95)

    def state_dict(self) -> dict[str, Tensor]:
        """The momenta, for a checkpoint."""
        return self._momentum

    def load_state_dict(self, momenta: Mapping[str, Tensor]) -> None:
        """Take up the momenta of a checkpoint."""
        for name, momentum in self._momentum.items():
            momentum.copy_(momenta[name])


def make_optimizers(
    weights: Mapping[str, Tensor], rate: float, adam_rate: float, peers: Peers
) -> tuple[Muon, torch.optim.AdamW]:
    """Split the weights between the two optimizers by name and shape."""
    matrices = {n: w for n, w in weights.items() if n.startswith("layers.") and w.dim() == 2}
    rest = [w for n, w in weights.items() if n not in matrices]
    adam = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.98), weight_decay=0.0)
    return Muon(matrices, rate, 0.1, peers), adam
