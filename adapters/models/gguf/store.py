"""The tensors of a GGUF file under the names and in the layouts that a family asks for.

Nothing is kept: each tensor is read, dequantised and put in its layout when it is asked for.
Quantised numbers become float32; others stay what they are.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from adapters.models.errors import DamagedWeights, MissingTensor, MistypedTensor
from adapters.models.gguf.header import Placed
from adapters.models.gguf.layout import Recipe, Source
from adapters.models.store import TensorFacts

__all__ = ["PIECE_BYTES", "GgufStore"]

PIECE_BYTES = 16 << 20
"""Most bytes of dequantised numbers that :meth:`GgufStore.pieces` gives at once."""
_STEP = 1 << 18
"""Numbers that are dequantised at once: the temporaries fit a cache."""
_PLAIN = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
}


class GgufStore:
    """A file as a :class:`~adapters.models.store.PieceStore`.

    Args:
        file: opened for reading; this closes it.
        path: for messages.
        placed: the file's tensors.
        recipes: what is made of them, by the names that are asked for.
    """

    def __init__(
        self,
        file: BinaryIO,
        path: Path,
        placed: Mapping[str, Placed],
        recipes: Mapping[str, Recipe],
    ) -> None:
        self._file = file
        self._path = path
        self._placed = placed
        self._recipes: Mapping[str, Recipe] = recipes
        self._facts = {name: self._facts_of(recipe) for name, recipe in recipes.items()}

    @property
    def tensors(self) -> Mapping[str, TensorFacts]:
        return self._facts

    def read(self, name: str, /) -> Tensor:
        recipe = self._recipe(name)
        if recipe.make is None:
            return self._read(recipe.sources[0])
        return recipe.make(*(self._read(source) for source in recipe.sources)).contiguous()

    def pieces(self, name: str, /) -> Iterator[Tensor]:
        recipe = self._recipe(name)
        if recipe.make is not None:
            yield self.read(name).reshape(-1)
            return
        begin, numbers = self._span(recipe.sources[0])
        placed = self._placed[recipe.sources[0].name]
        step = PIECE_BYTES // _dtype(placed).itemsize
        for first in range(begin, begin + numbers, step):
            yield self._numbers(placed, first, min(step, begin + numbers - first))

    def close(self) -> None:
        self._file.close()
        self._recipes = {}

    def _recipe(self, name: str) -> Recipe:
        recipe = self._recipes.get(name)
        if recipe is None:
            raise MissingTensor(f"{self._path} has no tensor {name}, or is closed")
        kinds = {self._placed[source.name].kind.name for source in recipe.sources}
        whole = [kind for kind in kinds if kind.startswith("I") and not kind.startswith("IQ")]
        if whole:
            raise MistypedTensor(f"{self._path}: {name} holds {whole[0]}, which can't be weights")
        return recipe

    def _facts_of(self, recipe: Recipe) -> TensorFacts:
        parts = [self._placed[source.name] for source in recipe.sources]
        metas = [
            torch.empty(_shape(source, part), dtype=_dtype(part), device="meta")
            for source, part in zip(recipe.sources, parts, strict=True)
        ]
        made = metas[0] if recipe.make is None else recipe.make(*metas)
        read = sum(
            part.kind.bytes_of(meta.numel()) for part, meta in zip(parts, metas, strict=True)
        )
        return TensorFacts(tuple(made.shape), parts[0].kind.name, read)

    def _read(self, source: Source) -> Tensor:
        placed = self._placed[source.name]
        return self._numbers(placed, *self._span(source)).view(_shape(source, placed))

    def _span(self, source: Source) -> tuple[int, int]:
        """The first of a source's numbers in its tensor, and how many they are."""
        placed = self._placed[source.name]
        if source.expert is None:
            return 0, placed.numbers
        each = placed.numbers // placed.shape[0]
        return source.expert * each, each

    def _numbers(self, placed: Placed, first: int, count: int) -> Tensor:
        kind = placed.kind
        begin, length = placed.begin + kind.bytes_of(first), kind.bytes_of(count)
        data = bytearray(length)
        if os.preadv(self._file.fileno(), [data], begin) != length:
            raise DamagedWeights(f"{self._path} was cut short while it was read; copy it again")
        if not count:
            return torch.empty(0, dtype=_dtype(placed))
        plain = _PLAIN.get(kind.name)
        if plain is not None:
            return torch.frombuffer(data, dtype=plain)
        numbers = torch.empty(count, dtype=torch.float32)
        blocks = np.frombuffer(data, dtype=np.uint8)
        for at in range(0, count, _STEP):
            taken = min(_STEP, count - at)
            part = blocks[kind.bytes_of(at) : kind.bytes_of(at + taken)]
            numbers[at : at + taken] = torch.as_tensor(kind.undo(part))
        return numbers


def _shape(source: Source, placed: Placed) -> tuple[int, ...]:
    return placed.shape if source.expert is None else placed.shape[1:]


def _dtype(placed: Placed) -> torch.dtype:
    return _PLAIN.get(placed.kind.name, torch.float32)
