"""Tensors on their way from a store to where a model keeps them: copied, counted and hashed."""

from collections.abc import Iterator

import attrs
import torch
from torch import Tensor

from adapters.models.fingerprint import ContentHash
from adapters.models.store import TensorStore, pieces
from kernel.loading import LoadProgress, OnProgress, no_progress

__all__ = ["TensorStream"]


@attrs.define(eq=False)
class TensorStream:
    """Fills tensors of a model from a store, a piece at a time, and tells how far it is."""

    store: TensorStore
    total_bytes: int = 0
    """On disk, of all tensors that will be read."""
    progress: OnProgress = no_progress
    """Called before the first piece and after each; what it raises ends the loading."""
    content: ContentHash | None = None
    """Hashes what is filled in, where a fingerprint is wanted."""
    done_bytes: int = 0

    def fill(self, target: Tensor, name: str) -> None:
        """Copy a tensor's numbers into ``target``.

        Args:
            target: contiguous, as large as the tensor; any float type, any device.
            name: of the tensor in the store.

        Raises:
            WeightsError: the file isn't what it was when its header was read.
        """
        flat, begin = target.view(-1), 0
        for piece in self._counted(name):
            flat[begin : begin + len(piece)].copy_(piece)
            begin += len(piece)
            if self.content is not None:
                self.content.add(name, piece)

    def equals(self, other: Tensor, name: str) -> bool:
        """Whether a tensor has the numbers of ``other``, in the type of ``other``."""
        flat, begin = other.view(-1), 0
        for piece in self._counted(name):
            ours = flat[begin : begin + len(piece)]
            if not torch.equal(ours, piece.to(ours.device, ours.dtype)):
                return False
            begin += len(piece)
        return True

    def _counted(self, name: str) -> Iterator[Tensor]:
        if not self.done_bytes:
            self._tell(name)
        facts = self.store.tensors[name]
        # In bytes on disk: a store that dequantises gives more of them.
        share = facts.num_bytes / max(1, torch.Size(facts.shape).numel())
        before, numbers = self.done_bytes, 0
        for piece in pieces(self.store, name):
            yield piece
            numbers += len(piece)
            self.done_bytes = before + round(numbers * share)
            self._tell(name)

    def _tell(self, name: str) -> None:
        # A matrix that is compared first and then read is counted twice.
        done = min(self.done_bytes, self.total_bytes)
        self.progress(LoadProgress(done, self.total_bytes, name))
