"""Processes that train one model together, each with one thread.

Two torch threads wait for each other at every operation, and on a machine that does other work too
that was measured ten times slower than two processes that meet once or twice a step.
"""

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Peers"]


class Peers:
    """This process's place among ``size``; alone unless ``torch.distributed.run`` started it."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        if self.size > 1:
            dist.init_process_group("gloo")

    @property
    def leads(self) -> bool:
        """True in the one process that prints and writes files."""
        return self.rank == 0

    def mine(self, names: Sequence[str]) -> list[str]:
        """This process's share of a list that all of them hold."""
        return list(names[self.rank :: self.size])

    def total(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)  # pyright: ignore[reportUnknownMemberType]
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, part in zip(tensors, torch.split(flat, sizes), strict=True):
            tensor.copy_(part.view_as(tensor))

    def from_leader(self, values: Sequence[float]) -> list[float]:
        """The leader's numbers, in every process."""
        sent = torch.tensor(values, dtype=torch.float64)
        if self.size > 1:
            dist.broadcast(sent, 0)
        return [float(value) for value in sent]
