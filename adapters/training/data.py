"""Tokens of the corpus, cut into windows in an order that depends on the seed alone."""

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor

from adapters.training.corpus import Document

__all__ = ["Windows", "encode_documents"]


def encode_documents(tokenizer: Tokenizer, documents: Sequence[Document]) -> list[list[int]]:
    """Token ids of each document, after one end-of-text token that stands for its beginning."""
    encoded = tokenizer.encode_batch([document.text for document in documents])
    return [[0, *encoding.ids] for encoding in encoded]


class Windows:
    """Endless windows of ``length + 1`` tokens; each epoch shifts and shuffles them anew.

    A window may begin within a chapter and run into the next one: the model learns to go on from
    nothing and to start afresh after an end of text.
    """

    def __init__(self, documents: Sequence[Sequence[int]], length: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(documents), generator=draw)
        self._stream = torch.tensor([token for i in order for token in documents[int(i)]])
        self._length = length
        self._seed = seed
        self._starts = torch.empty(0, dtype=torch.int64)
        self._epoch = -1
        self.taken = 0

    @property
    def per_epoch(self) -> int:
        """Windows that one pass over the corpus gives."""
        return (len(self._stream) - 1) // self._length - 1

    def take(self, count: int) -> Tensor:
        """The next ``count`` windows: [count, length + 1] int64."""
        rows = [self._window(self.taken + i) for i in range(count)]
        self.taken += count
        return torch.stack(rows)

    def _window(self, number: int) -> Tensor:
        epoch, place = divmod(number, self.per_epoch)
        if epoch != self._epoch:
            draw = torch.Generator().manual_seed(self._seed * 1000 + epoch)
            shift = int(torch.randint(self._length, (1,), generator=draw))
            self._starts = shift + self._length * torch.randperm(self.per_epoch, generator=draw)
            self._epoch = epoch
        start = int(self._starts[place])
        return self._stream[start : start + self._length + 1]
